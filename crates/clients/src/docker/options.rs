//! Everything that can be chosen of a container, and what is chosen where nothing is said.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use sandbar_machine::{Access, MachinePath};

use super::{Docker, Engine, InnerWalls, Network, Progress, Pull, Source};

/// What may be chosen of a container.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) env: BTreeMap<String, String>,
    pub(super) ports: Vec<u16>,
    pub(super) binds: Vec<(PathBuf, MachinePath, Access)>,
    pub(super) volumes: Vec<(String, MachinePath)>,
    pub(super) workspace_volume: Option<String>,
    pub(super) network: Network,
    pub(super) memory: u64,
    pub(super) cpus: Option<f64>,
    pub(super) pids: Option<u64>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) register: Option<String>,
    pub(super) runtime: Option<String>,
    pub(super) user: Option<String>,
    pub(super) platform: Option<String>,
    pub(super) read_only: bool,
    pub(super) walls: InnerWalls,
}

/// Enough for a build, and less than what brings a host down.
const MEMORY: u64 = 4 << 30;

impl Default for Options {
    fn default() -> Self {
        Self {
            env: BTreeMap::new(),
            ports: Vec::new(),
            binds: Vec::new(),
            volumes: Vec::new(),
            workspace_volume: None,
            network: Network::None,
            memory: MEMORY,
            cpus: None,
            pids: None,
            labels: BTreeMap::new(),
            register: None,
            runtime: None,
            user: None,
            platform: None,
            read_only: false,
            walls: InnerWalls::Required,
        }
    }
}

impl Docker {
    /// Which engine, instead of the one at this host's usual socket.
    #[must_use]
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self.shared = Arc::default();
        self
    }

    /// When the image is fetched from its registry.
    #[must_use]
    pub fn pull(mut self, when: Pull) -> Self {
        if let Source::Image(_, pull) = &mut self.source {
            *pull = when;
        }
        self
    }

    /// Is told what the engine says while it pulls or builds. Must not block.
    #[must_use]
    pub fn on_progress(mut self, tell: impl Fn(&Progress) + Send + Sync + 'static) -> Self {
        self.tell = Some(Arc::new(tell));
        self
    }

    /// A variable every command gets, over the image's own; a machine's own go over this.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.env.insert(name.into(), value.into());
        self
    }

    /// A port inside that may be reached from this host's loopback, beside those a machine declares.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.options.ports.push(port);
        self
    }

    /// Shows a file or directory of the engine's host inside. The engine's own socket is refused.
    #[must_use]
    pub fn bind(mut self, host: impl AsRef<Path>, inside: MachinePath, access: Access) -> Self {
        self.options.binds.push((host.as_ref().to_owned(), inside, access));
        self
    }

    /// Keeps what is below a path in a named volume, which outlives the machine.
    #[must_use]
    pub fn volume(mut self, name: impl Into<String>, inside: MachinePath) -> Self {
        self.options.volumes.push((name.into(), inside));
        self
    }

    /// Keeps the workspace in a named volume, which outlives the machine, instead of one that ends with it.
    #[must_use]
    pub fn workspace_volume(mut self, name: impl Into<String>) -> Self {
        self.options.workspace_volume = Some(name.into());
        self
    }

    /// What it can reach; nothing, unless this or the machine says so.
    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.options.network = network;
        self
    }

    /// Bytes of memory, swap included; 4 GiB unless said. A machine's own limit goes over this.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.options.memory = bytes;
        self
    }

    /// Processors, in parts: `1.5`. All of them unless said. A machine's own limit goes over this.
    #[must_use]
    pub fn cpus(mut self, count: f64) -> Self {
        self.options.cpus = Some(count);
        self
    }

    /// Processes and threads, instead of what a machine's own limits say.
    #[must_use]
    pub fn pids(mut self, most: u64) -> Self {
        self.options.pids = Some(most);
        self
    }

    /// A label on the container and its volumes.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.labels.insert(name.into(), value.into());
        self
    }

    /// Where the handles of machines that outlive their maker are written down, in words of the caller's. What
    /// [`Engine::leftovers`](super::Engine::leftovers) finds of them says it again, so that the caller can tell a machine
    /// whose handle was never written down, because its maker was killed first.
    #[must_use]
    pub fn register(mut self, name: impl Into<String>) -> Self {
        self.options.register = Some(name.into());
        self
    }

    /// The runtime of the engine's that runs the container: `runsc`, `kata`.
    #[must_use]
    pub fn runtime(mut self, name: impl Into<String>) -> Self {
        self.options.runtime = Some(name.into());
        self
    }

    /// Who commands run as: a name the image knows, or `UID` or `UID:GID`. Unless said, the owner of a workspace of the
    /// host's, else the image's own user if that is not root, else `agent` with the number 1000. A machine that shall know
    /// several users is refused where this is said: its commands run as whom they are told to.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.options.user = Some(user.into());
        self
    }

    /// Which variant of an image, as `linux/arm64`. It must be for this host's own processor.
    #[must_use]
    pub fn platform(mut self, platform: impl Into<String>) -> Self {
        self.options.platform = Some(platform.into());
        self
    }

    /// Makes the image's own tree unchangeable; workspace, home and temporary directories stay writable.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.options.read_only = true;
        self
    }

    /// Which walls stand inside the container, beside the engine's own.
    #[must_use]
    pub fn inner_walls(mut self, walls: InnerWalls) -> Self {
        self.options.walls = walls;
        self
    }
}
