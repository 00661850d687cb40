//! What a machine can reach: nothing, everything outside, the host's own network, or what a policy lists.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// What a machine can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Network {
    /// Its own loopback, nothing else.
    #[default]
    Off,
    /// Everything outside, through a network of the machine's own.
    Open,
    /// The host's network, all of it, services on its loopback included.
    Host,
    /// What a policy allows, and nothing else.
    Policy(Arc<NetworkPolicy>),
}

impl Network {
    /// The name used on the command line and in reports.
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

/// Which hosts a machine may reach, as data. A rule that denies wins over every rule that allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct NetworkPolicy {
    /// Lists of rules that are known by name, such as `github`.
    pub presets: Vec<String>,
    /// What may be reached.
    pub allow: Vec<AllowRule>,
    /// What may not, even if another rule allows it.
    pub deny: Vec<DenyRule>,
}

/// Hosts that may be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AllowRule {
    /// A name, `*.name` for what is below it, `**.name` for both, an address, or a range of addresses.
    pub host: String,
    /// Which ports; by default those of HTTP and HTTPS.
    #[serde(default = "web_ports")]
    pub ports: Vec<u16>,
    /// What is spoken there.
    #[serde(default)]
    pub protocol: NetworkProtocol,
    /// HTTP methods; empty: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// Patterns of paths; empty: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Why, for the people who read the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl AllowRule {
    /// HTTPS and HTTP to this host, on their usual ports.
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

/// Hosts that may not be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DenyRule {
    /// Spelled as in [`AllowRule::host`].
    pub host: String,
    /// Why, for the model that tries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl DenyRule {
    /// Nothing of this host.
    #[must_use]
    pub fn new(host: impl Into<String>) -> Self {
        Self { host: host.into(), reason: None }
    }
}

/// What is spoken with a host.
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
    fn a_policy_is_data_with_defaults_and_no_unknown_words() {
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
