//! Where a port of a machine is reached: a URL, and the headers that a request to it must carry.

use std::{collections::BTreeMap, fmt, net::SocketAddr};

use url::{Host, Url};

use crate::{MachineError, Result};

/// Where a port of a machine is reached from outside.
///
/// On this host it is a port of loopback, open to any protocol over TCP; at a provider it is an address for HTTP, and may
/// take headers, which can be secret: `Debug` hides their values.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Endpoint {
    /// The address; `http` where nothing encrypts the way.
    pub url: Url,
    /// What every request must carry.
    pub headers: BTreeMap<String, String>,
}

impl Endpoint {
    /// This address, without headers.
    ///
    /// # Errors
    /// [`MachineError::Invalid`] when it is not the URL of a host.
    pub fn new(url: &str) -> Result<Self> {
        let bad = |reason: String| MachineError::invalid(format!("endpoint {url:?}"), reason);
        let url = Url::parse(url).map_err(|error| bad(error.to_string()))?;
        if !url.has_host() {
            return Err(bad("names no host".to_owned()));
        }
        Ok(Self { url, headers: BTreeMap::new() })
    }

    /// A port of this host, open to any protocol over TCP.
    ///
    /// # Errors
    /// None that an address can cause.
    pub fn at(address: SocketAddr) -> Result<Self> {
        Self::new(&format!("http://{address}/"))
    }

    /// Asks for one more header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// The address of a socket, where any protocol over TCP can be spoken; `None` where the URL names a host, or where
    /// something on the way speaks TLS.
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

    /// The host as a URL spells it, with brackets around an address of version 6.
    #[must_use]
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// The port on that host.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.url.port_or_known_default()
    }

    /// Whether the way there is encrypted.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        matches!(self.url.scheme(), "https" | "wss")
    }

    /// The address for another protocol, say `ws`: encrypted where this endpoint is, so that `ws` becomes `wss`.
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

/// As people write it: without the slash of an empty path.
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
    fn an_address_is_complete_for_every_protocol() {
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
