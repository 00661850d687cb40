//! AI agents, and isolated machines for them to work on: rootless and without a daemon.
//!
//! # An agent on a machine
//!
//! A [`SandboxAgent`] is an agent with a machine of its own. A [`Manifest`] declares the files of its workspace,
//! [`Capabilities`] decide what the agent can do there, and the run decides where the machine is ([`SandboxRun::sandbox`]).
//! In this example the model follows a script; the machine and its commands are real:
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
//! An *agent* is a model with instructions and tools. A *run* asks the model, calls the tools that the reply requests, and
//! asks again until the model gives a final answer. An agent without a model uses the default model of the server that
//! `OPENAI_API_KEY` and `OPENAI_BASE_URL` configure; in this example the model follows a script:
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
//! The names that most programs need are here and in the [`prelude`]; the modules [`agent`], [`sandbox`] and [`machine`] have
//! everything. The folder `examples` has one program for each feature: `hello_agent`, `tools`, `streaming`, `structured_output`, `handoffs`,
//! `agents_as_tools`, `guardrails`, `approvals`, `budget`, `hooks_and_traces`, `local_model`; none of them needs a key.
//! Arguments and outputs of your own types need `serde`, and `schemars` in version 1, among your dependencies.
//!
//! # The machine
//!
//! A *client* creates *machines*; a *session* is a live workspace on a machine, declared by a *manifest*. The local client
//! needs no installed software and no privileges. Its machines have their own namespaces and file tree, but no network, no
//! Linux capabilities, and no variables of the caller's environment.
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
//! A session works on a [`Machine`], which runs commands, stores files and can be stopped:
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
//! machine.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Code that uses a machine takes `&dyn Machine`; a test can pass it a [`MemoryMachine`](machine::MemoryMachine), which runs nothing on the host.

pub mod agent_file;
pub mod capability;
pub mod choice;
mod environment;
mod live_additions;
mod prompt;
mod run_config;
mod sandbox_agent;
mod secrets;

#[doc(hidden)]
pub use sandbar_agent::__private;
pub use sandbar_agent::__private::schemars;

pub use self::{prelude::*, run_config::Snapshot};

/// The result of a program that uses sandbar: every error of this library becomes a [`BoxError`] by `?`.
pub type Result<T, E = BoxError> = std::result::Result<T, E>;

pub mod agent {
    //! Agents, runs, models, tools and approvals: everything that needs no machine.

    pub use sandbar_agent::{__private::sandbar_tool as tool, agent::*, *};
}

pub mod machine {
    //! Everything about machines: the traits that a client implements, their types, fallbacks, and the conformance suite.

    pub use sandbar_machine::*;
}

pub mod sandbox {
    //! Everything about workspaces: manifests and their entries, sessions, processes, patches, archives, secrets and audit.

    pub use sandbar_sandbox::*;
}

pub mod client {
    //! Clients, which create machines.

    #[cfg(all(feature = "docker", target_os = "linux"))]
    pub use sandbar_clients::{Docker, docker};
    #[cfg(all(feature = "e2b", target_os = "linux"))]
    pub use sandbar_clients::{E2b, e2b};
    pub use sandbar_clients::{GuestMachine, Registry, Source, UnixLocal, registry};
    #[cfg(target_os = "linux")]
    pub use sandbar_clients::{Remainder, Resident, ResidentState};
}

pub mod doctor {
    //! Report of what this host supports for local machines.

    pub use sandbar_clients::{
        CgroupState, CgroupVersion, ControllerState, cgroups,
        doctor::{LandlockReport, LevelReport, Report, Setting, probe},
    };
}

#[cfg(feature = "mock")]
pub mod mock {
    //! A model server that follows a script over real HTTP, for tests and demonstrations. Needs the feature `mock`.

    pub use sandbar_mock::*;
}

pub mod prelude {
    //! The names that most programs need.

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
        capability::{AgentSession, Capabilities, Capability, CapabilityKit, Compaction, Filesystem, Shell},
        run_config::{SandboxRun, SandboxRunConfig},
        sandbox_agent::SandboxAgent,
    };
}
