//! Commands: `exec_command` to start one, `write_stdin` to type to one that still runs.

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

use super::{Capability, Gear, Workplace};

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
/// // Asks a person before anything that looks like a push.
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

/// The tools of [`Shell`], for whoever wants to change or replace one.
pub struct ShellTools {
    /// Starts a command.
    pub exec_command: Arc<dyn Tool>,
    /// Types to one; not there where machines take no input.
    pub write_stdin: Option<Arc<dyn Tool>>,
    /// Where they work.
    pub place: Workplace,
}

impl Shell {
    /// Any command, without asking.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Who must agree to `exec_command`.
    #[must_use]
    pub fn approval(mut self, approval: Approval) -> Self {
        self.approval = approval;
        self
    }

    /// Changes or replaces tools, whenever an agent is equipped with them.
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

    async fn equip(&self, place: &Workplace) -> Result<Gear, SandboxError> {
        let exec_command = ExecCommand(place.clone()).approval(self.approval.clone());
        let features = place.session().features();
        let write_stdin =
            (features.pty && features.stdin).then(|| Arc::new(WriteStdin(place.clone())) as Arc<dyn Tool>);
        let mut tools = ShellTools { exec_command: Arc::new(exec_command), write_stdin, place: place.clone() };
        if let Some(configure) = &self.configure {
            configure(&mut tools);
        }
        let words = if tools.write_stdin.is_some() { ABOUT } else { ABOUT_WITHOUT_STDIN };
        let gear = Gear::new().words(words).with_tool(tools.exec_command);
        Ok(match tools.write_stdin {
            Some(write_stdin) => gear.with_tool(write_stdin),
            None => gear,
        })
    }
}

struct ExecCommand(Workplace);

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
        let Self(place) = self;
        let mut args: ExecCommandArgs = decode_arguments(arguments)?;
        args.workdir = args.directory().map(|dir| place.anchored(&dir)).or_else(|| place.directory().map(to_text));
        let begun = Instant::now();
        let update = match patch::from_script(&args.cmd) {
            Some(invocation) => apply(place, args.workdir.as_deref(), invocation, begun).await,
            None => run(place, call, args).await,
        };
        Ok(ToolOutput::Text(told(place, update, begun.elapsed()).to_text()))
    }
}

fn to_text(path: &sandbar_sandbox::WorkspacePath) -> String {
    path.as_str().to_owned()
}

/// A patch typed into a command line: the engine applies it, where a shell would look for a program that is not there.
async fn apply(
    place: &Workplace,
    workdir: Option<&str>,
    found: patch::Invocation,
    begun: Instant,
) -> Result<Update, SandboxError> {
    let cwd = found.directory(workdir);
    let options = PatchOptions { profile: Profile::Codex, cwd, ..PatchOptions::default() };
    let applied = place.session().apply_patch(&found.patch, options).await?;
    Ok(place.session().report(applied.codex_text(), begun.elapsed()))
}

/// Runs it; whoever listens to the run hears what it prints.
async fn run(place: &Workplace, call: &ToolContext, args: ExecCommandArgs) -> Result<Update, SandboxError> {
    if !call.is_heard() {
        return place.session().exec_command(args).await;
    }
    let (watcher, mut watching) = oneshot::channel();
    let mut running = std::pin::pin!(place.session().exec_command_watched(args, watcher));
    let deltas = tokio::select! {
        biased;
        deltas = &mut watching => deltas.ok(),
        // Over at once: what it printed may still be on its way.
        update = &mut running => return match watching.try_recv() {
            Ok(deltas) => relayed(call, deltas, std::future::ready(update)).await,
            Err(_never_started) => update,
        },
    };
    match deltas {
        Some(deltas) => relayed(call, deltas, running).await,
        None => running.await,
    }
}

/// Waits for the news, and tells meanwhile what is printed.
async fn relayed(
    call: &ToolContext,
    mut deltas: Deltas,
    news: impl Future<Output = Result<Update, SandboxError>>,
) -> Result<Update, SandboxError> {
    let mut news = std::pin::pin!(news);
    loop {
        tokio::select! {
            biased;
            piece = deltas.next() => match piece {
                Some(piece) => call.tell(String::from_utf8_lossy(&piece)).await,
                None => return news.await,
            },
            update = &mut news => {
                // What was printed before the answer is told before it.
                while let Some(Some(piece)) = futures::FutureExt::now_or_never(deltas.next()) {
                    call.tell(String::from_utf8_lossy(&piece)).await;
                }
                return update;
            }
        }
    }
}

/// What a model reads: what came of it, or why nothing did.
fn told(place: &Workplace, update: Result<Update, SandboxError>, wall_time: Duration) -> Update {
    update.unwrap_or_else(|error| place.session().refusal(&error, wall_time))
}

struct WriteStdin(Workplace);

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
        let Self(place) = self;
        let args: WriteStdinArgs = decode_arguments(arguments)?;
        let begun = Instant::now();
        let deltas = if call.is_heard() { place.session().follow(args.session_id).ok() } else { None };
        let news = place.session().write_stdin(args);
        let update = match deltas {
            Some(deltas) => relayed(call, deltas, news).await,
            None => news.await,
        };
        Ok(ToolOutput::Text(told(place, update, begun.elapsed()).to_text()))
    }
}

impl fmt::Debug for Shell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shell").field("approval", &self.approval).finish_non_exhaustive()
    }
}

impl fmt::Debug for ShellTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShellTools").field("place", &self.place).finish_non_exhaustive()
    }
}
