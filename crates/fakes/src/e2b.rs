//! A fake of E2B: the control plane, the edge that routes to sandboxes, and the `envd` inside each of them.
//!
//! One listener serves both planes. A request belongs to a sandbox if its `Host` is `PORT-ID.DOMAIN` or it has the headers
//! `E2b-Sandbox-Id` and `E2b-Sandbox-Port`; port 49983 is `envd`, every other one is forwarded into the machine. All other
//! requests belong to the control plane.
//!
//! A sandbox is a local machine with the users `user` (in `/home/user`), `root` and the machine's own `agent`. It differs
//! from a sandbox of the service:
//!
//! - Only `/home`, `/tmp` and `/workspace` are writable; the programs of the host are read-only.
//! - File requests have the permissions of the user that they name; `envd` uses those of root. `root` has no capabilities.
//! - The only network is loopback; `allow_internet_access` changes nothing.
//! - A snapshot holds the three writable trees and no processes.
//! - Connections cannot be upgraded, and messages are JSON without compression, as in the SDKs' requests.
//! - Not implemented: building templates, teams, volumes, secrets, logs, forks, directory watchers, metadata of files.

mod catalog;
mod clock;
mod connect;
mod control;
mod edge;
mod entry;
mod envd;
mod files;
mod filesystem;
mod input;
mod multipart;
mod processes;
mod sandbox;
mod service;
mod snapshot;
mod start;

use std::{path::PathBuf, sync::Arc, time::Duration};

use crate::{FakeError, Fault, On, Request, listener::Listener};

/// Options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Templates that exist besides the snapshots.
    pub templates: Vec<String>,
    /// State directory of the machines; the system's temporary directory by default.
    pub state_dir: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { templates: vec!["base".to_owned()], state_dir: None }
    }
}

/// A fake E2B on a port of 127.0.0.1, with its own threads. A drop removes every sandbox and waits for the removal.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    service: Arc<service::Service>,
}

impl Server {
    /// Starts a server with one template, `base`.
    ///
    /// # Errors
    /// [`FakeError::Start`] if the socket, the thread or the runtime cannot be created.
    pub fn start() -> Result<Self, FakeError> {
        Self::with(Options::default())
    }

    /// Starts a server.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn with(options: Options) -> Result<Self, FakeError> {
        let service = Arc::new(service::Service::new(format!("e2b_{}", clock::random_hex(40)), options));
        Ok(Self { listener: Listener::start(service.clone())?, service })
    }

    /// The base of both planes, as in `http://127.0.0.1:4711`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.listener.address)
    }

    /// The one API key that is accepted.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.service.key
    }

    /// The variables that make a client use this server. Hosts of ports are `PORT-ID.localhost:…`: where such names do not
    /// resolve, connect to [`Server::url`] and send the host as a header.
    #[must_use]
    pub fn env(&self) -> Vec<(String, String)> {
        let domain = format!("localhost:{}", self.listener.address.port());
        [
            ("E2B_API_KEY", self.service.key.clone()),
            ("E2B_API_URL", self.url()),
            ("E2B_SANDBOX_URL", self.url()),
            ("E2B_DOMAIN", domain),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// The ids of the sandboxes that are running or paused, oldest first.
    #[must_use]
    pub fn sandboxes(&self) -> Vec<String> {
        self.service.catalog.sandboxes().iter().map(|sandbox| sandbox.id.clone()).collect()
    }

    /// Lets the timeout of a sandbox expire now: it is killed, or paused if it was created so. `false` if it is not there.
    #[must_use]
    pub fn expire(&self, id: &str) -> bool {
        let Some(sandbox) = self.service.catalog.sandbox(id) else { return false };
        sandbox.set_timeout(Duration::ZERO);
        self.service.rescheduled.notify_one();
        true
    }

    /// The requests so far, oldest first; the last 4096 of them.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.listener.log.requests()
    }

    /// Forgets the requests so far.
    pub fn forget_requests(&self) {
        self.listener.log.clear();
    }

    /// Arms a fault for the next `times` requests that match. If several armed faults match, the oldest applies.
    pub fn fault(&self, on: On, fault: Fault, times: usize) {
        self.listener.faults.arm(on, fault, times);
    }
}
