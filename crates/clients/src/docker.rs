//! Machines in containers of a Docker engine: any image, with the guest copied into it as PID 1.
//!
//! ```text
//!  Docker (options) ─┬─► image    there, pulled or built; for which processor
//!                    ├─► users    who commands run as, from the image's own accounts, and whoever is added to them
//!                    ├─► plan     everything the engine is told, as data
//!                    └─► boot     create ─► upload the guest ─► attach ─► start ─► hello
//! ```
//!
//! A machine is bound to its maker by the one stream it is attached with: when that ends, for whatever reason, the engine
//! closes the guest's input, the guest ends, and the engine removes the container and its volumes by itself. A detached one is
//! let go of as soon as it is ready; whoever has its handle comes in at a door that the guest keeps, over a bridge that the
//! engine executes inside.
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
mod report;
mod upload;
mod users;

use std::{fmt, sync::Arc};

pub use self::{
    build::Build,
    engine::{Engine, Unreachable},
    leftovers::{Claim, Found, Kind, Leftovers},
    report::EngineReport,
};
use self::{client::Shared, options::Options};

/// When an image is fetched from its registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pull {
    /// When the engine does not have it.
    #[default]
    Missing,
    /// Before every machine.
    Always,
    /// Not at all.
    Never,
}

/// What a container can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Its own loopback, nothing else.
    #[default]
    None,
    /// The engine's default network, and through it the world.
    Bridge,
    /// A network of the engine's by its name.
    Named(String),
}

/// Which walls stand inside the container, beside the engine's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InnerWalls {
    /// The guest's seccomp filter and Landlock; without them nothing runs.
    #[default]
    Required,
    /// None: for runtimes that know neither. `no_new_privs` and the lack of capabilities stay.
    EngineOnly,
}

/// What an engine says while it pulls or builds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The layer this is about; empty for the whole.
    pub layer: String,
    /// The engine's words.
    pub status: String,
    /// Bytes so far, and in all, where it counts.
    pub bytes: Option<(u64, u64)>,
}

/// Makes machines in containers of a Docker engine.
///
/// Clones share their machines and their connection: what one made, another finds. A detached machine is found by every client
/// of the same engine, in this process and in others. What asks for less than the hardened
/// default says so by name; a privileged container is not on offer.
#[derive(Clone)]
pub struct Docker {
    engine: Engine,
    source: Source,
    options: Options,
    tell: Option<Tell>,
    shared: Arc<Shared>,
}

type Tell = Arc<dyn Fn(&Progress) + Send + Sync>;

#[derive(Clone, Debug)]
enum Source {
    Image(String, Pull),
    Build(Build),
}

impl Docker {
    /// Machines out of this image: `debian:bookworm-slim`, `ghcr.io/me/tools@sha256:…`.
    #[must_use]
    pub fn image(name: impl Into<String>) -> Self {
        Self::new(Source::Image(name.into(), Pull::default()))
    }

    /// Machines out of an image that the engine builds first.
    #[must_use]
    pub fn build(build: Build) -> Self {
        Self::new(Source::Build(build))
    }

    fn new(source: Source) -> Self {
        let shared = Arc::default();
        Self { engine: Engine::local(), source, options: Options::default(), tell: None, shared }
    }

    fn told(&self, progress: &Progress) {
        if let Some(tell) = &self.tell {
            tell(progress);
        }
    }
}

/// Without the variables' values, which may be secret.
impl fmt::Debug for Docker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Docker");
        shown.field("engine", &self.engine).field("source", &self.source);
        shown.field("network", &self.options.network).field("user", &self.options.user).finish_non_exhaustive()
    }
}
