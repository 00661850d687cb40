//! Network access of a machine: none, its own network, the host's network, or what a policy allows.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Network access of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Network {
    /// Only the machine's own loopback.
    #[default]
    Off,
    /// Everything outside, through the machine's own network.
    Open,
    /// The whole network of the host, including services on the host's loopback.
    Host,
    /// Only what the policy allows.
    Policy(Arc<NetworkPolicy>),
}

impl Network {
    /// Name on the command line and in reports.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Open => "open",
            Self::Host => "host",
            Self::Policy(_) => "policy",
        }
    }
}

/// Rules about the hosts that a machine may reach. A deny rule overrides every allow rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct NetworkPolicy {
    /// Names of predefined lists of rules, such as `github`.
    pub presets: Vec<String>,
    /// Hosts that may be reached.
    pub allow: Vec<AllowRule>,
    /// Hosts that may not be reached, even if another rule allows it.
    pub deny: Vec<DenyRule>,
}

/// A rule that allows connections to hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AllowRule {
    /// A host name, `*.name` for its subdomains, `**.name` for both, an IP address, or a range of IP addresses.
    pub host: String,
    /// Allowed ports; by default 443 and 80.
    #[serde(default = "web_ports")]
    pub ports: Vec<u16>,
    /// Allowed protocol.
    #[serde(default)]
    pub protocol: NetworkProtocol,
    /// Allowed HTTP methods; empty: all methods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// Patterns of the allowed paths; empty: all paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Reason for the rule, for readers of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl AllowRule {
    /// Allows HTTPS and HTTP to this host, on their default ports.
    #[must_use]
    pub fn new(host: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            ports: web_ports(),
            protocol: NetworkProtocol::default(),
            methods: Vec::new(),
            paths: Vec::new(),
            reason: None,
        }
    }
}

/// A rule that denies connections to hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DenyRule {
    /// Host, in the syntax of [`AllowRule::host`].
    pub host: String,
    /// Reason for the rule, shown to a model whose connection is denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl DenyRule {
    /// Denies all connections to this host.
    #[must_use]
    pub fn new(host: impl Into<String>) -> Self {
        Self { host: host.into(), reason: None }
    }
}

/// Protocol of the connections to a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NetworkProtocol {
    /// HTTP inside TLS.
    #[default]
    Https,
    /// Plain HTTP.
    Http,
    /// Anything over TCP.
    Tcp,
}

fn web_ports() -> Vec<u16> {
    vec![443, 80]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_has_defaults_and_refuses_unknown_fields() {
        let text =
            r#"{"allow": [{"host": "api.github.com", "methods": ["GET"]}], "deny": [{"host": "gist.github.com"}]}"#;
        let policy: NetworkPolicy = serde_json::from_str(text).unwrap();
        assert_eq!(policy.allow[0].ports, [443, 80]);
        assert_eq!(policy.allow[0].protocol, NetworkProtocol::Https);
        let again = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<NetworkPolicy>(&again).unwrap(), policy);
        assert!(serde_json::from_str::<NetworkPolicy>(r#"{"alow": []}"#).is_err());
    }
}
