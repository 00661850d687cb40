//! The options of a container and their defaults.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use sandbar_machine::{Access, MachinePath};

use super::{Docker, Engine, InnerWalls, Network, Progress, Pull, Source};

/// The options of a container.
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

/// Enough for a build, and not enough to exhaust a host.
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
    /// Sets the engine; the default is the one at this host's default socket.
    #[must_use]
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self.shared = Arc::default();
        self
    }

    /// Sets when the image is pulled from its registry.
    #[must_use]
    pub fn pull(mut self, when: Pull) -> Self {
        if let Source::Image(_, pull) = &mut self.source {
            *pull = when;
        }
        self
    }

    /// Sets a listener for the progress of pulls and builds. It must not block.
    #[must_use]
    pub fn on_progress(mut self, listener: impl Fn(&Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(listener));
        self
    }

    /// Sets a variable of every command. It overrides the image's; a machine's own variables override it.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.env.insert(name.into(), value.into());
        self
    }

    /// Adds a port inside that can be reached from this host's loopback interface, in addition to those that a machine
    /// declares.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.options.ports.push(port);
        self
    }

    /// Mounts a file or directory of the engine's host. The engine's own socket is refused.
    #[must_use]
    pub fn bind(mut self, host: impl AsRef<Path>, inside: MachinePath, access: Access) -> Self {
        self.options.binds.push((host.as_ref().to_owned(), inside, access));
        self
    }

    /// Mounts a named volume, which outlives the machine.
    #[must_use]
    pub fn volume(mut self, name: impl Into<String>, inside: MachinePath) -> Self {
        self.options.volumes.push((name.into(), inside));
        self
    }

    /// Stores the workspace in a named volume, which outlives the machine.
    #[must_use]
    pub fn workspace_volume(mut self, name: impl Into<String>) -> Self {
        self.options.workspace_volume = Some(name.into());
        self
    }

    /// Sets the network; the default is none, unless the machine's specification asks for one.
    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.options.network = network;
        self
    }

    /// Sets the limit of memory and swap in bytes; the default is 4 GiB. A machine's own limit overrides it.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.options.memory = bytes;
        self
    }

    /// Sets the number of processors, with fractions: `1.5`. The default is all of them. A machine's own limit
    /// overrides it.
    #[must_use]
    pub fn cpus(mut self, count: f64) -> Self {
        self.options.cpus = Some(count);
        self
    }

    /// Sets the number of processes and threads. It overrides a machine's own limit.
    #[must_use]
    pub fn pids(mut self, most: u64) -> Self {
        self.options.pids = Some(most);
        self
    }

    /// Adds a label to the container and its volumes.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.labels.insert(name.into(), value.into());
        self
    }

    /// Sets the name of the register in which the caller records the handles of detached machines.
    /// [`Engine::leftovers`](super::Engine::leftovers) returns this name with each such container, so that the caller
    /// recognises a machine whose creator was killed before it could record the handle.
    #[must_use]
    pub fn register(mut self, name: impl Into<String>) -> Self {
        self.options.register = Some(name.into());
        self
    }

    /// Sets the engine's runtime for the container: `runsc`, `kata`.
    #[must_use]
    pub fn runtime(mut self, name: impl Into<String>) -> Self {
        self.options.runtime = Some(name.into());
        self
    }

    /// Sets the user that commands run as: a name in the image, `UID` or `UID:GID`. The default is the owner of the
    /// host's workspace, otherwise the image's user if that is not root, otherwise `agent` with uid 1000. A machine
    /// with several users refuses this option: each of its commands names its user.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.options.user = Some(user.into());
        self
    }

    /// Sets the platform of the image, as `linux/arm64`. It must match this host's processor.
    #[must_use]
    pub fn platform(mut self, platform: impl Into<String>) -> Self {
        self.options.platform = Some(platform.into());
        self
    }

    /// Makes the image's tree read-only; workspace, home and temporary directories stay writable.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.options.read_only = true;
        self
    }

    /// Sets the isolation inside the container, in addition to the engine's.
    #[must_use]
    pub fn inner_walls(mut self, walls: InnerWalls) -> Self {
        self.options.walls = walls;
        self
    }
}
