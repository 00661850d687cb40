//! A computer of its own for an AI agent: isolated, rootless, daemon-free; and the agent.
//!
//! # An agent on a machine
//!
//! A [`SandboxAgent`] is an agent with a computer of its own: a [`Manifest`] says what is on it, [`Capabilities`] what the
//! agent can do there, and the run where it is ([`SandboxRun::sandbox`]). Here the model follows a script; the machine, and
//! everything that happens on it, is real:
//!
//! ```
//! use sandbar::{client::UnixLocal, prelude::*};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let model = ScriptedModel::new([
//!     vec![Item::function_call("call_1", "exec_command", r#"{"cmd":"wc -w < letter.txt"}"#)],
//!     vec![Item::assistant("The letter has three words.")],
//! ]);
//! let clerk = SandboxAgent::new("clerk")
//!     .model(model) // or a name: .model("gpt-5.5")
//!     .instructions("Look before you answer.")
//!     .manifest(Manifest::new().file("letter.txt", "Dear Sir, no.\n"));
//! let result = run(&clerk, "How long is the letter?").sandbox(UnixLocal::new()).await?;
//! assert_eq!(result.final_output(), "The letter has three words.");
//! # Ok(())
//! # }
//! ```
//!
//! Examples: `renewal_packet`, `coding_task`, `long_running_pty`, `sandbox_handoff`, `sandbox_agents_as_tools`,
//! `custom_tool_beside_capabilities`, `own_capability`, `website_preview`.
//!
//! # The agent
//!
//! An *agent* is a model with instructions and tools. A *run* asks the model, calls the tools it wants, and asks again until
//! there is an answer. Without a name the model is the usual one of the server that `OPENAI_API_KEY` and `OPENAI_BASE_URL` say;
//! here it follows a script:
//!
//! ```
//! use sandbar::prelude::*;
//!
//! /// Says what the weather is like.
//! #[tool]
//! async fn weather(city: String) -> String {
//!     format!("Rain in {city}, 8 degrees.")
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let model = ScriptedModel::new([
//!     vec![Item::function_call("call_1", "weather", r#"{"city":"Oslo"}"#)],
//!     vec![Item::assistant("Take a raincoat.")],
//! ]);
//! let agent = Agent::new("guide").instructions("Answer in one sentence.").tool(weather).model(model);
//! let result = run(&agent, "What should I wear in Oslo?").await?;
//! assert_eq!(result.final_output(), "Take a raincoat.");
//! # Ok(())
//! # }
//! ```
//!
//! All of it is in the module [`agent`], the names most programs need also here and in the [`prelude`]. The folder
//! `examples` has one program per idea: `hello_agent`, `tools`, `streaming`, `structured_output`, `handoffs`,
//! `agents_as_tools`, `guardrails`, `approvals`, `budget`, `hooks_and_traces`, `local_model`; none of them needs a key.
//! Arguments and outputs of your own types need `serde`, and `schemars` in version 1, among your dependencies.
//!
//! # The computer
//!
//! A *client* makes *machines*; a *session* is a live workspace on one, declared by a *manifest*. The local client needs
//! nothing installed and no privileges: its machines have their own namespaces and file tree, no network, no
//! capabilities, and nothing of the caller's environment.
//!
//! ```
//! use std::sync::Arc;
//!
//! use sandbar::{client::UnixLocal, prelude::*};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), SandboxError> {
//! let manifest = Manifest::new().file("note.txt", "milk\n").env("GREETING", "hello");
//! let session = SandboxSession::open(Arc::new(UnixLocal::new()), SessionOptions::new(manifest)).await?;
//!
//! let result = session.exec(Exec::shell("echo $GREETING; cat note.txt")).await?;
//! assert_eq!(result.stdout_text(), "hello\nmilk\n");
//!
//! session.write("note.txt", "bread\n").await?;
//! assert_eq!(session.read("note.txt").await?, "bread\n");
//! session.delete().await
//! # }
//! ```
//!
//! Below a session is a [`Machine`], which runs commands, keeps files and can be stopped:
//!
//! ```
//! use sandbar::{client::UnixLocal, prelude::*};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> sandbar::Result<()> {
//! let machine = UnixLocal::new().create(MachineSpec::default()).await?;
//! let mut process = machine.spawn(Command::new(["sh", "-c", "echo hello from $(pwd)"])).await?;
//! while let Some(output) = process.output.recv().await {
//!     match output? {
//!         Output::Stdout(bytes) => assert_eq!(bytes, "hello from /workspace\n"),
//!         Output::Stderr(_) | Output::Omitted(_) => {}
//!         Output::Exit(exit) => assert!(exit.success()),
//!     }
//! }
//! machine.stop().await
//! # }
//! ```
//!
//! Code that talks to a machine takes `&dyn Machine` and can be tested without any host at all, with a [`MemoryMachine`].

pub mod agent_file;
mod capability;
pub mod choice;
mod environment;
mod joining;
mod prompt;
mod run_config;
mod sandbox_agent;
mod secrets;

#[doc(hidden)]
pub use sandbar_agent::__private;
pub use sandbar_agent::{
    // What `#[tool]` writes comes from here then, and not from a crate that nobody named.
    __private::sandbar_tool as tool,
    __private::{async_trait, schemars},
    Agent,
    AgentError,
    ApiKey,
    App,
    Approval,
    Budget,
    Chat,
    CustomTool,
    Enabled,
    FunctionTool,
    Grammar,
    Handoff,
    HookContext,
    Hooks,
    HostedTool,
    Interruption,
    Item,
    Json,
    Lens,
    Look,
    Model,
    ModelError,
    ModelSettings,
    ModelSource,
    Models,
    OutputType,
    Part,
    Price,
    Prices,
    Prompt,
    Question,
    Recovery,
    Responses,
    Run,
    RunBuilder,
    RunConfig,
    RunError,
    RunEvent,
    RunItem,
    RunItemKind,
    RunResult,
    RunState,
    RunStream,
    ScriptedModel,
    Spent,
    Step,
    Stop,
    Tool,
    ToolChoice,
    ToolContext,
    ToolExt,
    ToolKind,
    ToolOutput,
    ToolSpec,
    Usage,
    run,
};
pub use sandbar_machine::*;
pub use sandbar_sandbox::{
    ArchiveFormat, ArchiveLimits, Attributes, AzureBlobMount, BoxMount, Content, Credential, DamagedSession, Dir,
    Entries, Entry, EntryGroup, EnvSource, EnvValue, Environment, Exec, ExecResult, Extract, File, Format, GcsMount,
    GitRepo, Grant, Group, Intent, LeftOut, LocalDir, LocalFile, Manifest, MaskStream, Materialised, Mount, MountPoint,
    MountStrategy, Op, Outlook, Owner, PathFault, PathGrant, Paths, Permissions, Progress, ProgressEvent, R2Mount,
    Receipt, RemoteDir, RemoteFile, S3FilesMount, S3Mount, Said, SandboxError, SandboxSession, SavedManifest, Scope,
    Secret, SecretMask, SecretStore, SessionLimits, SessionOptions, SessionState, SessionStore, Settings, Shape,
    Symlinks, Unchecked, User, WorkspacePath, archive, audit, fetch, image, is_leftover, patch, processes,
};

pub use self::{
    capability::{
        Capabilities, Capability, Compaction, CompactionPolicy, Filesystem, FilesystemTools, Gear, PatchTransport,
        Shell, ShellTools, Workplace, context_window,
    },
    run_config::{SandboxRun, SandboxRunConfig, Snapshot},
    sandbox_agent::SandboxAgent,
};

pub mod agent {
    //! Agents, runs, models, tools, approvals: all of the thinking half.

    pub use sandbar_agent::{__private::sandbar_tool as tool, agent::*, *};
}

pub mod client {
    //! Where machines come from.

    #[cfg(all(feature = "docker", target_os = "linux"))]
    pub use sandbar_clients::{Docker, docker};
    pub use sandbar_clients::{GuestMachine, UnixLocal};
    #[cfg(target_os = "linux")]
    pub use sandbar_clients::{Remainder, Resident, ResidentState};
}

pub mod doctor {
    //! What this host can do for local machines.

    pub use sandbar_clients::{
        CgroupState, CgroupVersion, ControllerState, cgroups,
        doctor::{LandlockReport, LevelReport, Report, Setting, probe},
    };
}

#[cfg(feature = "mock")]
pub mod mock {
    //! A model server that plays a script over real HTTP, for tests and demonstrations. Behind the feature `mock`.

    pub use sandbar_mock::*;
}

pub mod prelude {
    //! What most programs need.

    pub use sandbar_agent::{
        __private::{async_trait, sandbar_tool as tool},
        Agent, AgentError, App, Approval, BoxError, Budget, Chat, CustomTool, Enabled, FunctionTool, Handoff,
        HookContext, Hooks, HostedTool, Interruption, Item, Json, Model, ModelSettings, Models, Part, Recovery,
        Responses, RunConfig, RunError, RunEvent, RunItem, RunItemKind, RunResult, RunState, ScriptedModel, Stop, Tool,
        ToolChoice, ToolContext, ToolExt, ToolOutput,
        agent::ToolUse,
        guardrail::{Finding, InputGuardrail, OutputGuardrail, ToolInputGuardrail, ToolOutputGuardrail, ToolVerdict},
        run,
    };
    pub use sandbar_machine::{
        Access, Command, Control, Cpus, Exit, ExitReason, FileIdentity, HostMount, Isolation, Lifetime, Limits,
        Machine, MachineError, MachinePath, MachineSpec, Network, Output, Process, SandboxClient, Signal, Target,
        TerminalSize, Workspace, collect, once,
    };
    pub use sandbar_sandbox::{
        Dir, EnvValue, Exec, ExecResult, File, GitRepo, LocalDir, LocalFile, Manifest, Mount, PathGrant, RemoteDir,
        RemoteFile, SandboxError, SandboxSession, SecretStore, SessionLimits, SessionOptions, SessionState,
        patch::{PatchOptions, Profile},
    };

    pub use crate::{
        Capabilities, Capability, Compaction, Filesystem, Gear, SandboxAgent, SandboxRun, SandboxRunConfig, Shell,
        Workplace,
    };
}
