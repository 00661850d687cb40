//! The rule that decides which requests use a proxy, by target, by secrets and by the configured proxies.

mod bypass;

use std::{ffi::OsString, fmt, str::FromStr};

use reqwest::Url;

use self::bypass::Bypass;
use crate::address::{Credentials, is_loopback};

/// The proxies that a client may use.
///
/// The code that creates a client decides where they come from: [`Proxies::none`], [`Proxies::from_env`], or values of
/// its own. A request never uses a proxy if its target is this host, or if it carries a key over plain http.
///
/// ```
/// use sandbar_http::{Key, Proxies, Route, Url};
///
/// let proxies = Proxies::new().https("http://me:hunter2@10.0.0.1:3128".parse()?).except("internal.example");
/// let route = |url| proxies.route(&Url::parse(url).expect("a URL"), Key::Carried).to_string();
/// assert_eq!(route("https://api.example/v1"), "through the proxy http://10.0.0.1:3128");
/// assert_eq!(route("https://db.internal.example/"), "directly");
/// assert_eq!(route("https://localhost:8443/"), "directly");
/// # Ok::<(), sandbar_http::ProxyError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    bypass: Bypass,
}

/// Whether a request carries a secret: a key, a password or a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The request carries a secret.
    Carried,
    /// The request carries no secret.
    Absent,
}

/// The route to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// A connection to the server itself.
    Direct,
    /// A connection to a proxy.
    Through(&'a Proxy),
}

impl fmt::Display for Route<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => f.write_str("directly"),
            Self::Through(proxy) => write!(f, "through the proxy {proxy}"),
        }
    }
}

impl Proxies {
    /// No proxy: every request goes directly.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Starts without a proxy.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`; the lower-case form of a variable wins.
    /// `HTTP_PROXY` in upper case is ignored if `REQUEST_METHOD` is set: a CGI program gets it from a request's header.
    ///
    /// # Errors
    /// [`ProxyError`] if a variable does not name a proxy; it contains the variable's name, but not its value.
    pub fn from_env() -> Result<Self, ProxyError> {
        Self::from_variables(&|name| std::env::var_os(name))
    }

    /// The same with variables from another source.
    ///
    /// # Errors
    /// The errors of [`from_env`](Self::from_env).
    pub fn from_variables(value: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, ProxyError> {
        let first = |names: &[&'static str]| {
            let set = names.iter().filter_map(|name| value(name).map(|text| (*name, text)));
            set.map(|(name, text)| (name, text.to_string_lossy().trim().to_owned())).find(|(_, text)| !text.is_empty())
        };
        let named = |names: &[&'static str]| first(names).map(|(name, text)| Proxy::read(&text, name)).transpose();
        let is_cgi = value("REQUEST_METHOD").is_some();
        let http: &[&'static str] = if is_cgi { &["http_proxy"] } else { &["http_proxy", "HTTP_PROXY"] };
        let all = named(&["all_proxy", "ALL_PROXY"])?;
        Ok(Self {
            http: named(http)?.or_else(|| all.clone()),
            https: named(&["https_proxy", "HTTPS_PROXY"])?.or(all),
            bypass: first(&["no_proxy", "NO_PROXY"]).map(|(_, list)| Bypass::parse(&list)).unwrap_or_default(),
        })
    }

    /// Sets the proxy for `http` targets.
    #[must_use]
    pub fn http(mut self, proxy: Proxy) -> Self {
        self.http = Some(proxy);
        self
    }

    /// Sets the proxy for `https` targets.
    #[must_use]
    pub fn https(mut self, proxy: Proxy) -> Self {
        self.https = Some(proxy);
        self
    }

    /// Sets the proxy for all targets.
    #[must_use]
    pub fn all(self, proxy: Proxy) -> Self {
        self.http(proxy.clone()).https(proxy)
    }

    /// Sets the targets that are reached directly, in the form of `NO_PROXY`: hosts with all names below them,
    /// addresses, networks like `10.0.0.0/8`, each with or without a port, and `*`; separated by commas or spaces.
    #[must_use]
    pub fn except(mut self, targets: &str) -> Self {
        self.bypass = Bypass::parse(targets);
        self
    }

    /// The route to this target.
    #[must_use]
    pub fn route(&self, target: &Url, key: Key) -> Route<'_> {
        let proxy = match target.scheme() {
            "https" => self.https.as_ref(),
            // The proxy could read the key, and so could every hop on the way to the proxy.
            "http" if key == Key::Absent => self.http.as_ref(),
            _ => None,
        };
        match proxy {
            Some(proxy) if !is_loopback(target) && !self.bypass.covers(target) => Route::Through(proxy),
            _ => Route::Direct,
        }
    }
}

/// The address of a proxy. Its user and password are sent to the proxy, and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy(Url);

impl Proxy {
    fn read(text: &str, setting: &str) -> Result<Self, ProxyError> {
        let malformed = || ProxyError::Malformed { setting: setting.to_owned() };
        let text = text.trim();
        let url = if text.contains("://") { Url::parse(text) } else { Url::parse(&format!("http://{text}")) };
        let url = url.ok().filter(|url| url.host_str().is_some_and(|host| !host.is_empty())).ok_or_else(malformed)?;
        match url.scheme() {
            "http" | "https" | "socks5" | "socks5h" => Ok(Self(url)),
            _ => Err(ProxyError::Unsupported { setting: setting.to_owned() }),
        }
    }

    pub(crate) fn url(&self) -> &Url {
        &self.0
    }

    /// The texts that must not appear in any message.
    pub(crate) fn secrets(&self) -> Vec<String> {
        Credentials::of(&self.0).map(|credentials| credentials.secrets()).unwrap_or_default()
    }
}

impl FromStr for Proxy {
    type Err = ProxyError;

    fn from_str(text: &str) -> Result<Self, ProxyError> {
        Self::read(text, "the address of the proxy")
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.0.scheme(), self.0.host_str().unwrap_or_default())?;
        self.0.port().map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

/// Why a proxy setting cannot be used. Contains no value, because the value may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// The value is not an address.
    #[error("{setting} is malformed; set it to a URL like http://host:3128, or unset it")]
    Malformed {
        /// Name of the variable or setting.
        setting: String,
    },
    /// The value is the address of an unsupported kind of proxy.
    #[error(
        "{setting} names an unsupported kind of proxy; set it to an http, https, socks5 or socks5h URL, or unset it"
    )]
    Unsupported {
        /// Name of the variable or setting.
        setting: String,
    },
}

#[cfg(test)]
mod tests;
