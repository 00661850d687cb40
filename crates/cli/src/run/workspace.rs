//! The workspace of a run: a copy of a directory, the directory itself, or an empty one; on a machine of its own.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use sandbar::{
    Access, Network, SandboxClient, SandboxSession, SessionOptions, Workspace, agent_file::AgentFile, client::Source,
    machine::Support, sandbox::audit::Jsonl,
};
use sandbar_runs::{
    CancellationToken, CopyOptions, CopyReport, RunDir, RunRecord,
    git::{Guard, Worktree},
};

use super::keyboard::Keyboard;
use crate::{
    args::{GitArg, RunArgs},
    failure::Failure,
    machine::{
        client, plan, progress,
        provision::{self, Halt},
    },
    patch,
    render::{self, Render},
    runs,
    streams::signals::Signals,
};

/// How a machine gets the workspace of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// The machine shows the directory of the run.
    Shown,
    /// The machine has its own workspace, and the files are sent.
    Sent,
}

/// Kind of the workspace, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RunWorkspace {
    /// A copy of this directory.
    Copy(PathBuf),
    /// This directory itself.
    InPlace(PathBuf),
    /// An empty directory.
    Empty,
    /// An empty directory that a manifest filled.
    Declared,
}

impl fmt::Display for RunWorkspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copy(path) => write!(f, "copy of {}", path.display()),
            Self::InPlace(path) => write!(f, "in place {}", path.display()),
            Self::Empty => f.write_str("empty"),
            Self::Declared => f.write_str("as its manifest says"),
        }
    }
}

/// Kind of workspace that the arguments choose.
pub(crate) enum WorkspaceChoice {
    /// A copy of this directory.
    Copy(PathBuf),
    /// This directory itself.
    InPlace(PathBuf, Access),
    /// An empty directory.
    Empty,
}

/// A run whose machine and workspace exist.
pub(crate) struct StartedRun {
    pub(crate) run: Arc<RunDir>,
    pub(crate) record: RunRecord,
    pub(crate) session: SandboxSession,
    pub(crate) ground: RunWorkspace,
    pub(crate) network: Network,
    /// How the machine got the workspace.
    pub(crate) sharing: Sharing,
    /// Repositories that the agent must not change.
    pub(crate) guard: Guard,
    /// Note about the repository of a worktree, if the repository is not shown.
    pub(crate) worktree: Option<String>,
    /// The terminal's keyboard, without echo from the start.
    pub(super) keyboard: Option<Keyboard>,
}

/// Creates the run that the arguments describe.
pub(super) async fn begin(
    args: &RunArgs,
    file: &AgentFile,
    prompt: &str,
    signals: &mut Signals,
    render: &Render,
) -> Result<StartedRun, Halt> {
    let options = options(args, file)?;
    plan::warn_of_short_secrets(&options.secrets, render);
    plan::warn_of_foreign_files(
        args.machine.workspace.as_ref().filter(|_| args.in_place),
        file.run_as.as_ref(),
        render,
    );
    let wanted = match &args.machine.workspace {
        None => WorkspaceChoice::Empty,
        Some(given) if args.in_place => WorkspaceChoice::InPlace(given.path.clone(), given.access),
        Some(given) => WorkspaceChoice::Copy(given.path.clone()),
    };
    let git = args.machine.git;
    make(RunOrder { client: args.machine.sandbox.clone(), options, wanted, git }, prompt, signals, render).await
}

/// What a run is created from.
pub(crate) struct RunOrder {
    pub(crate) client: Source,
    pub(crate) options: SessionOptions,
    pub(crate) wanted: WorkspaceChoice,
    pub(crate) git: Option<GitArg>,
}

/// Creates a run with its machine and workspace. After an error or a signal, nothing is left.
pub(crate) async fn make(
    RunOrder { client, mut options, wanted, git }: RunOrder,
    prompt: &str,
    signals: &mut Signals,
    render: &Render,
) -> Result<StartedRun, Halt> {
    let sharing = sharing(&client, &wanted)?;
    let client = client::choose(&client, render)?;
    let store = runs::store()?;
    let run = Arc::new(store.begin(prompt)?);
    let keyboard = if render.has_terminal() { Keyboard::mute() } else { None };
    let begun = async {
        let (ground, access) = place(wanted, &run, signals, render).await?;
        let path = match &ground {
            RunWorkspace::InPlace(path) => path.clone(),
            RunWorkspace::Copy(_) | RunWorkspace::Empty | RunWorkspace::Declared => run.workspace(),
        };
        let source = match &ground {
            RunWorkspace::InPlace(source) | RunWorkspace::Copy(source) => Worktree::of(source),
            RunWorkspace::Empty | RunWorkspace::Declared => None,
        };
        let worktree = source.and_then(|worktree| plan::hidden(&worktree, &mut options.machine, git));
        let own = Workspace::Host { path: path.clone(), access };
        let is_own = matches!(ground, RunWorkspace::InPlace(_));
        options.machine.workspace = if is_own { own.clone() } else { Workspace::Temporary };
        let (guard, notes) = Guard::set_up(&mut options.machine, &options.manifest, plan::git_access(git))?;
        notes.iter().for_each(|note| render.note(note));
        if sharing == Sharing::Shown {
            options.machine.workspace = own;
        }
        if is_own && access == Access::ReadWrite {
            options.patch_journal = patch::journal(&path, Some(&options), render);
        }
        run.check_sandbox(&options)?;
        let is_filled = !options.manifest.entries.is_empty();
        let network = options.machine.network.clone();
        let sent = (sharing == Sharing::Sent && matches!(ground, RunWorkspace::Copy(_))).then_some(&*run);
        let session = open((client, options), (&run, sent), signals, render).await?;
        if is_filled && matches!(ground, RunWorkspace::Copy(_)) {
            if sharing == Sharing::Sent {
                run.fetch_workspace(&session).await?;
            }
            given(&run).await?;
        }
        let ground = if is_filled && ground == RunWorkspace::Empty { RunWorkspace::Declared } else { ground };
        let source = match &ground {
            RunWorkspace::Copy(source) => Some(&**source),
            _ => None,
        };
        let record = run.save_session(&session, source)?;
        Ok(StartedRun { run: Arc::clone(&run), record, session, ground, network, sharing, guard, worktree, keyboard })
    };
    let begun = begun.await;
    if begun.is_err() {
        let id = run.id().to_owned();
        drop(run);
        if let Err(error) = store.remove(&id) {
            render.failure(&error.into());
        }
    }
    begun
}

/// How machines of this source get the files of the run.
fn sharing(source: &Source, wanted: &WorkspaceChoice) -> Result<Sharing, Failure> {
    let registry = client::registry();
    let provider = registry.provider(source.provider())?;
    match (provider.supports().give(Support::HostDirectories), wanted) {
        (true, _) => Ok(Sharing::Shown),
        (false, WorkspaceChoice::InPlace(..)) => {
            let what = format!("--in-place cannot be used with {}: its machines are not on this host", provider.name());
            Err(Failure::new(what).next("leave it out: the run works on a copy, and `sandbar apply` brings it back"))
        }
        (false, WorkspaceChoice::Copy(_) | WorkspaceChoice::Empty) => Ok(Sharing::Sent),
    }
}

/// Excludes the files of a manifest from the diff: they are neither the agent's work nor part of the source.
async fn given(run: &Arc<RunDir>) -> Result<(), Failure> {
    let run = Arc::clone(run);
    let taken = tokio::task::spawn_blocking(move || run.mark_additions_as_given()).await;
    Ok(taken.map_err(|error| Failure::new("cannot look at the workspace").because(error))??)
}

/// The options of the session, without its workspace and listeners.
fn options(args: &RunArgs, file: &AgentFile) -> Result<SessionOptions, Failure> {
    if let Some(given) = &args.machine.workspace
        && given.access == Access::ReadOnly
        && !args.in_place
    {
        return Err(Failure::new("a copy need not be read-only").next("leave :ro out, or add --in-place"));
    }
    plan::can_be_filled(&args.machine)?;
    let spec = plan::spec(&args.machine)?;
    let manifest = match (&args.fill.manifest, file.manifest()?) {
        (None, Some(manifest)) => {
            let manifest = plan::with_addresses(manifest, &args.fill);
            plan::granting(plan::with_env(manifest, &args.env)?, &args.fill.grants)?
        }
        _ => plan::manifest(&args.fill, &args.env)?,
    };
    let manifest = plan::with_user(manifest, file.run_as.as_ref())?;
    let mut options = SessionOptions::new(manifest).machine(spec);
    options.secrets = plan::secrets_of_tools(&args.fill, &args.show_secrets)?;
    options.proxies = plan::proxies(&args.fill)?;
    Ok(options)
}

/// Copies or checks the directory of the workspace.
async fn place(
    wanted: WorkspaceChoice,
    run: &Arc<RunDir>,
    signals: &mut Signals,
    render: &Render,
) -> Result<(RunWorkspace, Access), Halt> {
    match wanted {
        WorkspaceChoice::Empty => Ok((RunWorkspace::Empty, Access::ReadWrite)),
        WorkspaceChoice::InPlace(path, access) => {
            plan::directory("--workspace", &path)?;
            let failed = |error| Failure::new(format!("cannot use --workspace {}", path.display())).because(error);
            Ok((RunWorkspace::InPlace(std::fs::canonicalize(&path).map_err(failed)?), access))
        }
        WorkspaceChoice::Copy(path) => {
            plan::directory("--workspace", &path)?;
            Ok((copy(&path, run, signals, render).await?, Access::ReadWrite))
        }
    }
}

/// Copies a directory on separate threads. A signal cancels the copy.
async fn copy(source: &Path, run: &Arc<RunDir>, signals: &mut Signals, render: &Render) -> Result<RunWorkspace, Halt> {
    let cancel = CancellationToken::new();
    let mut options = CopyOptions::default().cancel(cancel.clone());
    let is_watched = render.has_terminal();
    if is_watched {
        options =
            options.progress(|at| render::status(&format!("copying the workspace: {}/{} files", at.done, at.total)));
    }
    let (run_dir, path) = (Arc::clone(run), source.to_owned());
    let mut copying = tokio::task::spawn_blocking(move || {
        let copied = run_dir.copy_in(&path, &options);
        if is_watched {
            render::status("");
        }
        copied
    });
    let mut stopped_by = None;
    let copied = loop {
        tokio::select! {
            copied = &mut copying => break copied,
            signal = signals.next() => {
                cancel.cancel();
                stopped_by = Some(signal);
            }
        }
    };
    match (copied, stopped_by) {
        (_, Some(signal)) => Err(Halt::Signal(signal)),
        (Ok(copied), None) => Ok(RunWorkspace::Copy(report_copy(copied?, render))),
        (Err(error), None) => Err(Failure::new("cannot copy the workspace").because(error).into()),
    }
}

/// Prints what was not copied, and returns the directory that was.
fn report_copy(copied: CopyReport, render: &Render) -> PathBuf {
    let CopyReport { files, bytes, ignored, .. } = copied;
    tracing::info!(files, bytes, ignored, "copied the workspace");
    for (path, why) in copied.left_out.iter().take(5) {
        render.note(&format!("left out {path}: {why}"));
    }
    if copied.left_out.len() > 5 {
        render.note(&format!("left out {} more", copied.left_out.len() - 5));
    }
    copied.source
}

/// Creates the session and fills its workspace; the files of the run come first if they are sent.
async fn open(
    (client, mut options): (Arc<dyn SandboxClient>, SessionOptions),
    (run, sent): (&RunDir, Option<&RunDir>),
    signals: &mut Signals,
    render: &Render,
) -> Result<SandboxSession, Halt> {
    let audit = Jsonl::open(run.audit_path());
    let failed = |error| Failure::new(format!("cannot write {}", run.audit_path().display())).because(error);
    options = options.audit(audit.map_err(failed)?);
    let meter = progress::Meter::choose(render);
    options.progress = meter.as_ref().map(progress::Meter::listener);
    let session = provision::session(client, options, signals).await?;
    patch::report(session.patches().recover().await.map_err(Failure::from)?.as_ref(), render);
    if let Some(run) = sent {
        let sending = provision::unless_signalled(run.send_workspace(&session), signals).await;
        if let Err(halt) = sending {
            provision::discard(&session).await;
            return Err(halt);
        }
    }
    let arrived = provision::fill(&session, signals).await?;
    drop(meter);
    render.left_out(&arrived);
    for port in session.ports().declared() {
        let endpoint = session.ports().resolve(*port).await.map_err(Failure::from)?;
        render.port(*port, &endpoint);
    }
    Ok(session)
}
