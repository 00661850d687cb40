//! What an agent can do on a machine: a capability shapes the workspace before it is made, and lends tools, words and
//! settings once it is there.
//!
//! The usual ones are [`Filesystem`], [`Shell`] and [`Compaction`]. One's own is a type that is [`Capability`]; it is never
//! changed by a run, and one value serves many runs at once. What belongs to a run lives in what [`equip`](Capability::equip)
//! returns.
//!
//! ```
//! use sandbar::{Gear, Workplace, prelude::*};
//!
//! /// Keeps a notebook in the workspace, and tells the agent how many lines are in it.
//! #[derive(Debug)]
//! struct Notebook;
//!
//! #[async_trait]
//! impl Capability for Notebook {
//!     fn kind(&self) -> &str {
//!         "notebook"
//!     }
//!
//!     // Lines are written with the shell.
//!     fn requires(&self) -> Vec<&str> {
//!         vec!["shell"]
//!     }
//!
//!     fn shape(&self, manifest: &mut Manifest) -> Result<(), SandboxError> {
//!         manifest.ensure("notes.md", File::new("# Notes\n"));
//!         Ok(())
//!     }
//!
//!     async fn equip(&self, place: &Workplace) -> Result<Gear, SandboxError> {
//!         let place = place.clone();
//!         Ok(Gear::new().words_from(move || {
//!             let place = place.clone();
//!             async move {
//!                 let notes = place.session().read("notes.md").await?;
//!                 let lines = notes.iter().filter(|byte| **byte == b'\n').count();
//!                 Ok(Some(format!("Keep what is worth remembering in `notes.md` ({lines} lines so far).")))
//!             }
//!         }))
//!     }
//! }
//!
//! let agent = SandboxAgent::new("clerk").capability(Notebook);
//! ```

pub(crate) mod compaction;
pub(crate) mod filesystem;
mod list;
mod shell;
mod windows;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use futures::future::{BoxFuture, FutureExt as _};
use sandbar_agent::{BoxError, Lens, Model, ModelSettings, Tool};
use sandbar_sandbox::{Manifest, SandboxError, SandboxSession, WorkspacePath};

pub use self::{
    compaction::{Compaction, CompactionPolicy},
    filesystem::{Filesystem, FilesystemTools, PatchTransport},
    list::Capabilities,
    shell::{Shell, ShellTools},
    windows::context_window,
};

/// Something an agent can do on a machine.
#[async_trait]
pub trait Capability: Send + Sync + fmt::Debug {
    /// What kind it is. No agent has two of one kind.
    fn kind(&self) -> &str;

    /// The kinds that must be there as well, in any order.
    fn requires(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Shapes the workspace before it is made; called once per session, in the order of the list. On a session that is
    /// running already only entries that are no mounts can be added, so add with
    /// [`Manifest::ensure`], which does nothing the second time.
    ///
    /// # Errors
    /// What is wrong with the manifest; no machine is made then.
    fn shape(&self, manifest: &mut Manifest) -> Result<(), SandboxError> {
        let _unchanged = manifest;
        Ok(())
    }

    /// What it lends the agent, now that the workspace is there. Called when the agent begins to work in a run.
    ///
    /// # Errors
    /// Whatever keeps it from doing so; the run fails.
    async fn equip(&self, place: &Workplace) -> Result<Gear, SandboxError>;

    /// Called once before the session's work is saved or its machine ends: at the end of the run, or when whoever made the
    /// session stops it.
    ///
    /// # Errors
    /// What went wrong; the session ends all the same.
    async fn before_stop(&self, session: &SandboxSession) -> Result<(), SandboxError> {
        let _not_needed = session;
        Ok(())
    }
}

/// Where an agent works: the live session under the agent's identity, where relative paths begin, and who thinks. Cheap to
/// clone.
#[derive(Clone, Debug)]
pub struct Workplace {
    session: SandboxSession,
    cwd: Option<WorkspacePath>,
    model: Arc<dyn Model>,
}

impl Workplace {
    /// A place, also for the tests of capabilities.
    pub fn new(session: SandboxSession, model: Arc<dyn Model>) -> Self {
        Self { session, cwd: None, model }
    }

    /// The same, where relative paths begin at this directory of the workspace.
    #[must_use]
    pub fn cwd(mut self, cwd: Option<WorkspacePath>) -> Self {
        self.cwd = cwd;
        self
    }

    /// The live session, acting as the agent's user.
    #[must_use]
    pub fn session(&self) -> &SandboxSession {
        &self.session
    }

    /// Where relative paths begin, if not at the root of the workspace.
    #[must_use]
    pub fn directory(&self) -> Option<&WorkspacePath> {
        self.cwd.as_ref()
    }

    /// The model that thinks for the agent.
    #[must_use]
    pub fn model(&self) -> &Arc<dyn Model> {
        &self.model
    }

    /// A path as the agent means it: relative ones begin at the agent's directory, absolute ones are left alone.
    #[must_use]
    pub fn anchored(&self, path: &str) -> String {
        match &self.cwd {
            Some(cwd) if !path.starts_with('/') => format!("{cwd}/{path}"),
            _ => path.to_owned(),
        }
    }
}

type Words = Arc<dyn Fn() -> BoxFuture<'static, Result<Option<String>, BoxError>> + Send + Sync>;

/// What a capability lends an agent.
#[derive(Clone, Default)]
#[must_use]
pub struct Gear {
    pub(crate) words: Option<Words>,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) settings: ModelSettings,
    pub(crate) lenses: Vec<Arc<dyn Lens>>,
}

impl Gear {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the agent is told about it.
    pub fn words(self, text: impl Into<String>) -> Self {
        let text = text.into();
        self.words_from(move || {
            let text = text.clone();
            async move { Ok(Some(text)) }
        })
    }

    /// What the agent is told about it, made anew for each turn.
    pub fn words_from<F, Fut>(mut self, make: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<String>, BoxError>> + Send + 'static,
    {
        self.words = Some(Arc::new(move || make().boxed()));
        self
    }

    /// A tool. The agent's own come first.
    pub fn tool(self, tool: impl Tool + 'static) -> Self {
        self.with_tool(Arc::new(tool))
    }

    /// A tool that somebody else holds too.
    pub fn with_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Laid over the agent's settings, and over those of capabilities before it.
    pub fn settings(mut self, settings: ModelSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Looks at the conversation before each question.
    pub fn lens(mut self, lens: impl Lens + 'static) -> Self {
        self.lenses.push(Arc::new(lens));
        self
    }
}

impl fmt::Debug for Gear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools: Vec<String> = self.tools.iter().map(|tool| tool.spec().name).collect();
        f.debug_struct("Gear").field("tools", &tools).finish_non_exhaustive()
    }
}
