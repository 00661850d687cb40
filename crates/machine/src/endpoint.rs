//! The address of a machine's port: a URL, and the headers that each request must carry.

use std::{collections::BTreeMap, fmt, net::SocketAddr};

use url::{Host, Url};

use crate::{MachineError, Result};

/// The address at which a port of a machine is reached from outside.
///
/// For a machine on this host it is a loopback port, which carries any protocol over TCP. At a provider it is an HTTP URL,
/// which may require headers. Header values can be secret: `Debug` does not print them.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Endpoint {
    /// URL of the port; its scheme is `http` if the connection is not encrypted.
    pub url: Url,
    /// Headers that every request must carry.
    pub headers: BTreeMap<String, String>,
}

impl Endpoint {
    /// The endpoint at this URL, without headers.
    ///
    /// # Errors
    /// [`MachineError::Invalid`] if the text is not a URL or its URL has no host.
    pub fn new(url: &str) -> Result<Self> {
        let bad = |reason: String| MachineError::invalid(format!("endpoint {url:?}"), reason);
        let url = Url::parse(url).map_err(|error| bad(error.to_string()))?;
        if !url.has_host() {
            return Err(bad("names no host".to_owned()));
        }
        Ok(Self { url, headers: BTreeMap::new() })
    }

    /// The endpoint at a port of this host, which carries any protocol over TCP.
    ///
    /// # Errors
    /// Those of [`new`](Self::new); a socket address causes none.
    pub fn at(address: SocketAddr) -> Result<Self> {
        Self::new(&format!("http://{address}/"))
    }

    /// Adds a header that every request must carry.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// The socket address, if the port carries any protocol over TCP; `None` if the URL has a host name instead of an IP
    /// address, or uses TLS.
    #[must_use]
    pub fn socket(&self) -> Option<SocketAddr> {
        if self.is_tls() {
            return None;
        }
        let port = self.url.port_or_known_default()?;
        match self.url.host()? {
            Host::Ipv4(address) => Some((address, port).into()),
            Host::Ipv6(address) => Some((address, port).into()),
            Host::Domain(_) => None,
        }
    }

    /// The host as it is written in the URL, with brackets around an IPv6 address.
    #[must_use]
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// The port number of the URL, or the default port of its scheme.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.url.port_or_known_default()
    }

    /// Whether the connection uses TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        matches!(self.url.scheme(), "https" | "wss")
    }

    /// The URL with another scheme, for example `ws`. If this endpoint uses TLS, `ws` becomes `wss` and `http` becomes
    /// `https`.
    #[must_use]
    pub fn url_for(&self, scheme: &str) -> String {
        let scheme = match (scheme, self.is_tls()) {
            ("http", true) => "https",
            ("ws", true) => "wss",
            (other, _) => other,
        };
        let rest = self.url.as_str().split_once(':').map_or_else(|| self.url.as_str(), |(_, rest)| rest);
        format!("{scheme}:{rest}")
    }
}

/// The URL without the slash of an empty path.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.url.as_str();
        let is_bare = self.url.path() == "/" && self.url.query().is_none() && self.url.fragment().is_none();
        f.write_str(if is_bare { text.trim_end_matches('/') } else { text })
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.headers.keys().collect();
        f.debug_struct("Endpoint").field("url", &self.url.as_str()).field("headers", &names).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_a_complete_url_for_every_protocol() {
        let plain = Endpoint::at(([127, 0, 0, 1], 8080).into()).unwrap();
        assert_eq!(plain.url_for("http"), "http://127.0.0.1:8080/");
        assert_eq!(plain.to_string(), "http://127.0.0.1:8080");
        assert_eq!((plain.host(), plain.port(), plain.is_tls()), ("127.0.0.1", Some(8080), false));
        assert_eq!(plain.socket(), Some(([127, 0, 0, 1], 8080).into()));
        let secure = Endpoint::new("https://[::1]:8443/?token=x").unwrap();
        assert_eq!(secure.url_for("ws"), "wss://[::1]:8443/?token=x");
        assert_eq!((secure.host(), secure.socket()), ("[::1]", None));
        let hosted = Endpoint::new("https://3000-abc.example.com").unwrap();
        assert_eq!((hosted.port(), hosted.socket()), (Some(443), None));
        assert_eq!(Endpoint::new("data:text/plain,x").unwrap_err().code(), "invalid");
    }

    #[test]
    fn values_of_headers_are_not_printed() {
        let endpoint = Endpoint::new("https://example.com").unwrap().header("X-Token", "hunter2");
        let printed = format!("{endpoint:?} {endpoint}");
        assert!(printed.contains("X-Token") && !printed.contains("hunter2"), "{printed}");
    }
}
