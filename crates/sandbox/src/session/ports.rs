//! The exposed ports of a session.

use sandbar_machine::Endpoint;
use serde_json::json;

use super::{SandboxSession, observed, within};
use crate::{Op, Result, SandboxError};

/// The ports of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionPorts<'a>(&'a SandboxSession);

impl SandboxSession {
    /// The declared ports of the session.
    #[must_use]
    pub fn ports(&self) -> SessionPorts<'_> {
        SessionPorts(self)
    }
}

impl<'a> SessionPorts<'a> {
    /// The declared ports.
    #[must_use]
    pub fn declared(self) -> &'a [u16] {
        &self.0.shared.identity.ports
    }

    /// Makes a declared port reachable.
    ///
    /// # Errors
    /// `exposed_port_unavailable`: the port was not declared, or the machine cannot expose it.
    pub async fn resolve(self, port: u16) -> Result<Endpoint> {
        let Self(SandboxSession { shared, .. }) = self;
        observed(shared, Op::ResolveExposedPort, json!({"server.port": port}), async {
            shared.live()?;
            let ports = shared.identity.ports.clone();
            if !ports.contains(&port) {
                return Err(SandboxError::exposed_port_unavailable(port, ports, "not_configured"));
            }
            let unavailable = |reason| SandboxError::exposed_port_unavailable(port, ports.clone(), reason);
            let facet = shared.machine.ports().ok_or_else(|| unavailable("not_supported"))?;
            let open = facet.open(port);
            let opened = within(shared.limits.operation, Op::ResolveExposedPort, "a port", open).await?;
            opened.map_err(|cause| unavailable("unreachable").because(cause))
        })
        .await
    }
}
