//! Where a port of a session can be reached.

use sandbar_machine::MachineError;
use serde::Serialize;
use serde_json::json;

use super::SandboxSession;
use crate::{Op, Result, SandboxError};

/// Where a port of a session can be reached from here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExposedPort {
    /// The host to connect to.
    pub host: String,
    /// The port there.
    pub port: u16,
    /// Whether it speaks TLS.
    pub tls: bool,
    /// What must be appended to every address, without the question mark.
    pub query: Option<String>,
}

impl ExposedPort {
    /// An address with this scheme, `http` or `ws`; with TLS it becomes `https` or `wss`.
    #[must_use]
    pub fn url_for(&self, scheme: &str) -> String {
        let secure = if self.tls { "s" } else { "" };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let query = self.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        format!("{scheme}{secure}://{host}:{}/{query}", self.port)
    }
}

impl SandboxSession {
    /// The ports that were declared.
    #[must_use]
    pub fn exposed_ports(&self) -> &[u16] {
        &self.shared.ports
    }

    /// Makes a declared port reachable.
    ///
    /// # Errors
    /// `exposed_port_unavailable`: it was not declared, or the machine cannot show it.
    pub async fn resolve_exposed_port(&self, port: u16) -> Result<ExposedPort> {
        self.observed(Op::ResolveExposedPort, json!({"server.port": port}), async {
            self.live()?;
            let ports = self.shared.ports.clone();
            if !ports.contains(&port) {
                return Err(SandboxError::exposed_port_unavailable(port, ports, "not_configured"));
            }
            let resolve = self.shared.machine.port(port);
            let resolved = self.within(self.shared.limits.operation, Op::ResolveExposedPort, "a port", resolve).await?;
            let endpoint = resolved.map_err(|cause| {
                let reason =
                    if matches!(cause, MachineError::Unsupported(_)) { "not_supported" } else { "unreachable" };
                SandboxError::exposed_port_unavailable(port, ports, reason).because(cause)
            })?;
            let (host, port) = (endpoint.address.ip().to_string(), endpoint.address.port());
            Ok(ExposedPort { host, port, tls: false, query: None })
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_complete() {
        let plain = ExposedPort { host: "127.0.0.1".into(), port: 8080, tls: false, query: None };
        assert_eq!(plain.url_for("http"), "http://127.0.0.1:8080/");
        let secure = ExposedPort { host: "::1".into(), port: 443, tls: true, query: Some("token=x".into()) };
        assert_eq!(secure.url_for("ws"), "wss://[::1]:443/?token=x");
    }
}
