//! Capabilities: what an agent can do on a machine. A capability changes the manifest before the workspace is created, and
//! adds tools, instructions and settings to the agent when the workspace exists.
//!
//! The default capabilities are [`Filesystem`], [`Shell`] and [`Compaction`]. A type that implements [`Capability`] is a
//! capability of your own. Runs do not change it, and many runs can use one value at the same time; the state of a run
//! belongs in the kit that [`equip`](Capability::equip) returns.
//!
//! ```
//! use sandbar::{CapabilityKit, AgentSession, prelude::*};
//!
//! /// Keeps a notebook in the workspace, and tells the agent how many lines it has.
//! #[derive(Debug)]
//! struct Notebook;
//!
//! #[async_trait]
//! impl Capability for Notebook {
//!     fn kind(&self) -> &str {
//!         "notebook"
//!     }
//!
//!     // The agent writes lines with the shell.
//!     fn requires(&self) -> Vec<&str> {
//!         vec!["shell"]
//!     }
//!
//!     fn shape(&self, manifest: &mut Manifest) -> Result<(), SandboxError> {
//!         manifest.ensure("notes.md", File::new("# Notes\n"));
//!         Ok(())
//!     }
//!
//!     async fn equip(&self, agent_session: &AgentSession) -> Result<CapabilityKit, SandboxError> {
//!         let session = agent_session.session().clone();
//!         Ok(CapabilityKit::new().instructions_from(move || {
//!             let session = session.clone();
//!             async move {
//!                 let notes = session.read("notes.md").await?;
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
use sandbar_agent::{BoxError, InputTransform, Model, ModelSettings, Tool};
use sandbar_sandbox::{Manifest, SandboxError, SandboxSession, WorkspacePath};

pub use self::{
    compaction::{Compaction, CompactionPolicy},
    filesystem::{Filesystem, FilesystemTools, PatchTransport},
    list::Capabilities,
    shell::{Shell, ShellTools},
    windows::context_window,
};

/// A capability: what an agent can do on a machine.
#[async_trait]
pub trait Capability: Send + Sync + fmt::Debug {
    /// Kind of the capability. An agent cannot have two capabilities of one kind.
    fn kind(&self) -> &str;

    /// Kinds of the capabilities that the agent must also have, in any order.
    fn requires(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Changes the manifest before the workspace is created. Called once per fresh session, in the order of the list; for a
    /// live session of the caller, called in each run. A running session accepts only new entries that are not mounts: use
    /// [`Manifest::ensure`], which changes nothing if the entry exists.
    ///
    /// # Errors
    /// The fault of the manifest; no machine is created.
    fn shape(&self, manifest: &mut Manifest) -> Result<(), SandboxError> {
        let _unchanged = manifest;
        Ok(())
    }

    /// Tools, instructions and settings for the agent. Called when the agent begins to work in a run; the workspace exists.
    ///
    /// # Errors
    /// Any error fails the run.
    async fn equip(&self, agent_session: &AgentSession) -> Result<CapabilityKit, SandboxError>;

    /// Called once before the workspace of the session is saved or its machine ends: at the end of the run, or when the
    /// owner of the session stops it.
    ///
    /// # Errors
    /// The session ends also after an error.
    async fn before_stop(&self, session: &SandboxSession) -> Result<(), SandboxError> {
        let _not_needed = session;
        Ok(())
    }
}

/// Session that an agent works in: the live session as the agent's user, the directory where relative paths begin, and the
/// model of the agent. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct AgentSession {
    session: SandboxSession,
    cwd: Option<WorkspacePath>,
    model: Arc<dyn Model>,
}

impl AgentSession {
    /// A session with this model, in which relative paths begin at the root of the workspace. Also for tests of
    /// capabilities.
    pub fn new(session: SandboxSession, model: Arc<dyn Model>) -> Self {
        Self { session, cwd: None, model }
    }

    /// Sets the directory of the workspace where relative paths begin; `None` is the root.
    #[must_use]
    pub fn cwd(mut self, cwd: Option<WorkspacePath>) -> Self {
        self.cwd = cwd;
        self
    }

    /// Live session, which acts as the agent's user.
    #[must_use]
    pub fn session(&self) -> &SandboxSession {
        &self.session
    }

    /// Directory where relative paths begin, if it is not the root of the workspace.
    #[must_use]
    pub fn directory(&self) -> Option<&WorkspacePath> {
        self.cwd.as_ref()
    }

    /// Model of the agent.
    #[must_use]
    pub fn model(&self) -> &Arc<dyn Model> {
        &self.model
    }

    /// Resolves a path of the agent: a relative path begins at the agent's directory, an absolute path is unchanged.
    #[must_use]
    pub fn anchored(&self, path: &str) -> String {
        match &self.cwd {
            Some(cwd) if !path.starts_with('/') => format!("{cwd}/{path}"),
            _ => path.to_owned(),
        }
    }
}

type Instructions = Arc<dyn Fn() -> BoxFuture<'static, Result<Option<String>, BoxError>> + Send + Sync>;

/// Kit of a capability: the instructions, tools and settings that it adds to an agent.
#[derive(Clone, Default)]
#[must_use]
pub struct CapabilityKit {
    pub(crate) instructions: Option<Instructions>,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) settings: ModelSettings,
    pub(crate) input_transforms: Vec<Arc<dyn InputTransform>>,
}

impl CapabilityKit {
    /// An empty kit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the instructions.
    pub fn instructions(self, text: impl Into<String>) -> Self {
        let text = text.into();
        self.instructions_from(move || {
            let text = text.clone();
            async move { Ok(Some(text)) }
        })
    }

    /// Sets a function that writes the instructions for each turn; `None` adds no instructions in that turn.
    pub fn instructions_from<F, Fut>(mut self, make: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<String>, BoxError>> + Send + 'static,
    {
        self.instructions = Some(Arc::new(move || make().boxed()));
        self
    }

    /// Adds a tool. The agent's own tools precede those of capabilities.
    pub fn tool(self, tool: impl Tool + 'static) -> Self {
        self.with_tool(Arc::new(tool))
    }

    /// Adds a tool that is shared with other code.
    pub fn with_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Sets settings of the model. They override the agent's settings and those of capabilities earlier in the list.
    pub fn settings(mut self, settings: ModelSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Adds a transform of the conversation, which is called before each request to the model.
    pub fn input_transform(mut self, transform: impl InputTransform + 'static) -> Self {
        self.input_transforms.push(Arc::new(transform));
        self
    }
}

impl fmt::Debug for CapabilityKit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools: Vec<String> = self.tools.iter().map(|tool| tool.spec().name).collect();
        f.debug_struct("CapabilityKit").field("tools", &tools).finish_non_exhaustive()
    }
}
