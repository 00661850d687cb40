//! The exposed ports of a session.

use sandbar_machine::Endpoint;
use serde_json::json;

use super::SandboxSession;
use crate::{Op, Result, SandboxError};

impl SandboxSession {
    /// The declared ports.
    #[must_use]
    pub fn exposed_ports(&self) -> &[u16] {
        &self.shared.ports
    }

    /// Makes a declared port reachable.
    ///
    /// # Errors
    /// `exposed_port_unavailable`: the port was not declared, or the machine cannot expose it.
    pub async fn resolve_exposed_port(&self, port: u16) -> Result<Endpoint> {
        self.observed(Op::ResolveExposedPort, json!({"server.port": port}), async {
            self.live()?;
            let ports = self.shared.ports.clone();
            if !ports.contains(&port) {
                return Err(SandboxError::exposed_port_unavailable(port, ports, "not_configured"));
            }
            let unavailable = |reason| SandboxError::exposed_port_unavailable(port, ports.clone(), reason);
            let facet = self.shared.machine.ports().ok_or_else(|| unavailable("not_supported"))?;
            let open = facet.open(port);
            let opened = self.within(self.shared.limits.operation, Op::ResolveExposedPort, "a port", open).await?;
            opened.map_err(|cause| unavailable("unreachable").because(cause))
        })
        .await
    }
}
