//! Machines in containers of a Docker engine: any image, with the guest copied into it as PID 1.
//!
//! ```text
//!  Docker (options) ─┬─► image    present, pulled or built; checked for its platform
//!                    ├─► users    the user that commands run as, from the image's accounts and the added ones
//!                    ├─► plan     the whole container request, as data
//!                    └─► boot     create ─► upload the guest ─► attach ─► start ─► hello
//! ```
//!
//! A bound machine depends on the one stream through which its creator is attached. When that stream ends, for any
//! reason, the engine closes the guest's input, the guest ends, and the engine removes the container and its volumes. A
//! detached machine does not depend on that stream once it is ready. A process that has its handle connects to the
//! guest's door through a bridge: a program that the engine executes inside.
//!
//! ```no_run
//! use sandbar_clients::{Docker, docker::{Engine, Network}};
//!
//! # fn main() -> sandbar_machine::Result<()> {
//! let client = Docker::image("python:3.12-slim").engine(Engine::from_env()?).network(Network::Bridge).memory(512 << 20);
//! # Ok(())
//! # }
//! ```

mod attach;
mod boot;
mod build;
mod client;
mod container;
mod detached;
mod engine;
mod ignore;
mod image;
mod labels;
mod leftovers;
mod options;
mod plan;
mod provider;
mod report;
mod upload;
mod users;

use std::{fmt, sync::Arc};

pub(crate) use self::provider::DockerProvider;
pub use self::{
    build::Build,
    engine::Engine,
    leftovers::{Claim, DockerLeftover, Kind, Leftovers},
    report::EngineReport,
};
use self::{client::Shared, options::Options};

/// When an image is pulled from its registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pull {
    /// If the engine does not have it.
    #[default]
    Missing,
    /// Before every machine.
    Always,
    /// Never.
    Never,
}

/// The network of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Only the container's own loopback interface.
    #[default]
    None,
    /// The engine's default network, which reaches the Internet.
    Bridge,
    /// A network of the engine, by name.
    Named(String),
}

/// The isolation inside the container, in addition to the engine's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InnerWalls {
    /// The guest's seccomp filter and Landlock; without them the machine does not start.
    #[default]
    Required,
    /// None, for runtimes that support neither. `no_new_privs` and the dropped capabilities remain.
    EngineOnly,
}

/// The progress of a pull or a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Id of the layer; empty for the whole image.
    pub layer: String,
    /// The engine's text.
    pub status: String,
    /// Bytes done and bytes in total, if the engine counts them.
    pub bytes: Option<(u64, u64)>,
}

/// Creates machines in containers of a Docker engine.
///
/// Clones share their machines and their connection: a machine that one created can be found by the others. A detached
/// machine can be found by every client of the same engine, in this process and in others. Every option that weakens
/// the hardened default is explicit; there are no privileged containers.
#[derive(Clone)]
pub struct Docker {
    engine: Engine,
    source: Source,
    options: Options,
    progress: Option<ProgressListener>,
    shared: Arc<Shared>,
}

type ProgressListener = Arc<dyn Fn(&Progress) + Send + Sync>;

#[derive(Clone, Debug)]
enum Source {
    Image(String, Pull),
    Build(Build),
}

impl Docker {
    /// Creates machines from this image: `debian:bookworm-slim`, `ghcr.io/me/tools@sha256:…`.
    #[must_use]
    pub fn image(name: impl Into<String>) -> Self {
        Self::new(Source::Image(name.into(), Pull::default()))
    }

    /// Creates machines from an image that the engine builds first.
    #[must_use]
    pub fn build(build: Build) -> Self {
        Self::new(Source::Build(build))
    }

    fn new(source: Source) -> Self {
        let shared = Arc::default();
        Self { engine: Engine::local(), source, options: Options::default(), progress: None, shared }
    }

    fn report_progress(&self, progress: &Progress) {
        if let Some(listener) = &self.progress {
            listener(progress);
        }
    }
}

/// Without the values of the variables, which may be secret.
impl fmt::Debug for Docker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Docker");
        shown.field("engine", &self.engine).field("source", &self.source);
        shown.field("network", &self.options.network).field("user", &self.options.user).finish_non_exhaustive()
    }
}
