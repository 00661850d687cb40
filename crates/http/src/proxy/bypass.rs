//! The targets that are reached without a proxy, in the form of `NO_PROXY`.

use ipnet::IpNet;
use reqwest::Url;

use crate::address::Host;

/// A list of rules; a target that one of them covers is reached directly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bypass(Vec<Rule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    hosts: Hosts,
    /// `None` matches every port.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    All,
    Network(IpNet),
    /// The name, and every name below it.
    Domain(String),
}

impl Bypass {
    /// A malformed entry covers nothing: its targets use the proxy.
    pub(super) fn parse(list: &str) -> Self {
        let entries = list.split(|letter: char| letter == ',' || letter.is_whitespace());
        Self(entries.filter(|entry| !entry.is_empty()).filter_map(Rule::parse).collect())
    }

    pub(super) fn covers(&self, target: &Url) -> bool {
        let (host, port) = (Host::of(target), target.port_or_known_default());
        self.0.iter().any(|rule| rule.covers(&host, port))
    }
}

impl Rule {
    fn parse(entry: &str) -> Option<Self> {
        if let Some(hosts) = Hosts::parse(entry) {
            return Some(Self { hosts, port: None });
        }
        let (host, port) = entry.rsplit_once(':')?;
        Some(Self { hosts: Hosts::parse(host)?, port: Some(port.parse().ok()?) })
    }

    fn covers(&self, host: &Host, port: Option<u16>) -> bool {
        let fits = match (&self.hosts, host) {
            (Hosts::All, _) => true,
            (Hosts::Network(network), Host::Ip(ip)) => network.contains(ip),
            (Hosts::Domain(domain), Host::Name(name)) => {
                name.strip_suffix(domain.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            (Hosts::Network(_), Host::Name(_)) | (Hosts::Domain(_), Host::Ip(_)) => false,
        };
        fits && (self.port.is_none() || self.port == port)
    }
}

impl Hosts {
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        if let Ok(network) = text.parse::<IpNet>() {
            return Some(Self::Network(network));
        }
        match Host::parse(text) {
            Host::Ip(ip) => Some(Self::Network(ip.into())),
            Host::Name(name) => {
                let name = name.strip_prefix('*').unwrap_or(&name).trim_start_matches('.');
                let is_name = !name.is_empty() && !name.contains([':', '/', '*', '[', ']']);
                is_name.then(|| Self::Domain(name.to_owned()))
            }
        }
    }
}
