//! The capability to run commands: `exec_command` starts a command, `write_stdin` sends input to a running command.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use sandbar_agent::{
    Approval, BoxError, Tool, ToolContext, ToolExt as _, ToolKind, ToolOutput, ToolSpec, decode_arguments,
};
use sandbar_sandbox::{
    SandboxError,
    patch::{self, PatchOptions, Profile},
    processes::{Deltas, ExecCommandArgs, Update, WriteStdinArgs},
};
use tokio::sync::oneshot;

use super::{AgentSession, Capability, CapabilityKit};

const ABOUT: &str = "\
Run shell commands with `exec_command`. A command that is still running when the call returns has a session ID; read its \
news, or type to it, with `write_stdin`. Start what you may have to interrupt or answer with `tty=true`, and send Ctrl-C as \
`\\u0003`. Search with `rg` and `rg --files` where they are installed. Do not print large files whole; look at the part you \
need.";

const ABOUT_WITHOUT_STDIN: &str = "\
Run shell commands with `exec_command`. Search with `rg` and `rg --files` where they are installed. Do not print large \
files whole; look at the part you need.";

type Configure = Arc<dyn Fn(&mut ShellTools) + Send + Sync>;

/// Lets an agent run commands.
///
/// ```
/// use sandbar::prelude::*;
///
/// // Asks a person about every command that contains `git push`.
/// let careful = Shell::new().approval(Approval::when(|_call, arguments| async move {
///     arguments["cmd"].as_str().is_none_or(|cmd| cmd.contains("git push"))
/// }));
/// let agent = SandboxAgent::new("coder").capabilities(Capabilities::none().with(careful).with(Filesystem::new()));
/// ```
#[derive(Clone, Default)]
pub struct Shell {
    approval: Approval,
    configure: Option<Configure>,
}

/// The tools of [`Shell`], which [`Shell::configure_tools`] can change or replace.
pub struct ShellTools {
    /// Tool that starts a command.
    pub exec_command: Arc<dyn Tool>,
    /// Tool that sends input to a running command; absent if the machine does not support input or terminals.
    pub write_stdin: Option<Arc<dyn Tool>>,
    /// Session that the tools work in.
    pub agent_session: AgentSession,
}

impl Shell {
    /// A capability that runs every command without approval.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets which calls of `exec_command` need approval.
    #[must_use]
    pub fn approval(mut self, approval: Approval) -> Self {
        self.approval = approval;
        self
    }

    /// Sets a function that changes or replaces the tools, each time an agent is equipped.
    #[must_use]
    pub fn configure_tools(mut self, configure: impl Fn(&mut ShellTools) + Send + Sync + 'static) -> Self {
        self.configure = Some(Arc::new(configure));
        self
    }
}

#[async_trait]
impl Capability for Shell {
    fn kind(&self) -> &str {
        "shell"
    }

    async fn equip(&self, agent_session: &AgentSession) -> Result<CapabilityKit, SandboxError> {
        let exec_command = ExecCommand(agent_session.clone()).approval(self.approval.clone());
        let features = agent_session.session().machine().features();
        let write_stdin =
            (features.pty && features.stdin).then(|| Arc::new(WriteStdin(agent_session.clone())) as Arc<dyn Tool>);
        let mut tools =
            ShellTools { exec_command: Arc::new(exec_command), write_stdin, agent_session: agent_session.clone() };
        if let Some(configure) = &self.configure {
            configure(&mut tools);
        }
        let instructions = if tools.write_stdin.is_some() { ABOUT } else { ABOUT_WITHOUT_STDIN };
        let kit = CapabilityKit::new().instructions(instructions).with_tool(tools.exec_command);
        Ok(match tools.write_stdin {
            Some(write_stdin) => kit.with_tool(write_stdin),
            None => kit,
        })
    }
}

struct ExecCommand(AgentSession);

#[async_trait]
impl Tool for ExecCommand {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "exec_command".to_owned(),
            description:
                "Runs a command, and returns what it prints, or a session ID to go on with if it is still running."
                    .to_owned(),
            kind: ToolKind::Function { parameters: ExecCommandArgs::schema(), strict: false },
        }
    }

    async fn call(&self, call: &ToolContext, arguments: &str) -> Result<ToolOutput, BoxError> {
        let Self(agent_session) = self;
        let mut args: ExecCommandArgs = decode_arguments(arguments)?;
        args.workdir =
            args.directory().map(|dir| agent_session.anchored(&dir)).or_else(|| agent_session.directory().map(to_text));
        let started = Instant::now();
        let update = match patch::from_script(&args.cmd) {
            Some(invocation) => apply(agent_session, args.workdir.as_deref(), invocation, started).await,
            None => run(agent_session, call, args).await,
        };
        Ok(ToolOutput::Text(report(agent_session, update, started.elapsed()).to_text()))
    }
}

fn to_text(path: &sandbar_sandbox::WorkspacePath) -> String {
    path.as_str().to_owned()
}

/// Applies a patch that a command line contains. The machine has no program `apply_patch`, so a shell could not run it.
async fn apply(
    agent_session: &AgentSession,
    workdir: Option<&str>,
    invocation: patch::Invocation,
    started: Instant,
) -> Result<Update, SandboxError> {
    let cwd = invocation.directory(workdir);
    let options = PatchOptions { profile: Profile::Codex, cwd, ..PatchOptions::default() };
    let applied = agent_session.session().apply_patch(&invocation.patch, options).await?;
    Ok(agent_session.session().processes().report(applied.codex_text(), started.elapsed()))
}

/// Runs a command. If the run is streamed, its output is emitted while the command runs.
async fn run(agent_session: &AgentSession, call: &ToolContext, args: ExecCommandArgs) -> Result<Update, SandboxError> {
    if !call.is_heard() {
        return agent_session.session().processes().exec_command(args).await;
    }
    let (sender, mut receiver) = oneshot::channel();
    let mut running = std::pin::pin!(agent_session.session().processes().exec_command_watched(args, sender));
    let deltas = tokio::select! {
        biased;
        deltas = &mut receiver => deltas.ok(),
        // The command ended at once; its output may still be in the channel.
        update = &mut running => return match receiver.try_recv() {
            Ok(deltas) => relay(call, deltas, std::future::ready(update)).await,
            Err(_never_started) => update,
        },
    };
    match deltas {
        Some(deltas) => relay(call, deltas, running).await,
        None => running.await,
    }
}

/// Waits for the update, and emits the output of the command in the meantime.
async fn relay(
    call: &ToolContext,
    mut deltas: Deltas,
    update: impl Future<Output = Result<Update, SandboxError>>,
) -> Result<Update, SandboxError> {
    let mut update = std::pin::pin!(update);
    loop {
        tokio::select! {
            biased;
            delta = deltas.next() => match delta {
                Some(delta) => call.tell(String::from_utf8_lossy(&delta)).await,
                None => return update.await,
            },
            update = &mut update => {
                // Output that precedes the update is emitted before it.
                while let Some(Some(delta)) = futures::FutureExt::now_or_never(deltas.next()) {
                    call.tell(String::from_utf8_lossy(&delta)).await;
                }
                return update;
            }
        }
    }
}

/// The update for the model: an error becomes a report of the error.
fn report(agent_session: &AgentSession, update: Result<Update, SandboxError>, wall_time: Duration) -> Update {
    update.unwrap_or_else(|error| agent_session.session().processes().refusal(&error, wall_time))
}

struct WriteStdin(AgentSession);

#[async_trait]
impl Tool for WriteStdin {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "write_stdin".to_owned(),
            description:
                "Types to a command that is still running, or only asks for its news, and returns what it prints."
                    .to_owned(),
            kind: ToolKind::Function { parameters: WriteStdinArgs::schema(), strict: false },
        }
    }

    async fn call(&self, call: &ToolContext, arguments: &str) -> Result<ToolOutput, BoxError> {
        let Self(agent_session) = self;
        let args: WriteStdinArgs = decode_arguments(arguments)?;
        let started = Instant::now();
        let deltas =
            if call.is_heard() { agent_session.session().processes().follow(args.session_id).ok() } else { None };
        let update = agent_session.session().processes().write_stdin(args);
        let update = match deltas {
            Some(deltas) => relay(call, deltas, update).await,
            None => update.await,
        };
        Ok(ToolOutput::Text(report(agent_session, update, started.elapsed()).to_text()))
    }
}

impl fmt::Debug for Shell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shell").field("approval", &self.approval).finish_non_exhaustive()
    }
}

impl fmt::Debug for ShellTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShellTools").field("agent_session", &self.agent_session).finish_non_exhaustive()
    }
}
