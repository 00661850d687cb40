//! Where a run works: a copy of a directory, the directory itself, or an empty one; on a machine of its own.

use std::{
    fmt,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use sandbar::{
    Access, Network, SandboxClient, SandboxSession, SessionOptions, Workspace, agent_file::AgentFile, audit::Jsonl,
};

use super::keyboard::Keyboard;
use crate::{
    args::{GitArg, RunArgs, SandboxArg},
    client,
    failure::Failure,
    git::{Guard, Worktree},
    making::{self, Halt},
    patch, place, plan, progress,
    render::{self, Render},
    runs::{Copied, CopyLimits, CopyProgress, CopyWatch, Name, NotCopied, RunDir, RunRecord, RunStore},
    signals::Signals,
};

/// What a run's workspace is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// A copy of this directory.
    Copy(PathBuf),
    /// This directory itself.
    InPlace(PathBuf),
    /// An empty directory.
    Empty,
    /// A directory that a manifest filled.
    Declared,
}

impl fmt::Display for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copy(path) => write!(f, "copy of {}", path.display()),
            Self::InPlace(path) => write!(f, "in place {}", path.display()),
            Self::Empty => f.write_str("empty"),
            Self::Declared => f.write_str("as its manifest says"),
        }
    }
}

/// What somebody wants the workspace to be.
pub(crate) enum Wanted {
    /// A copy of this directory.
    Copy(PathBuf),
    /// This directory itself.
    InPlace(PathBuf, Access),
    /// An empty directory.
    Empty,
}

/// A run that has a place to work.
pub(crate) struct Begun {
    pub(crate) run: Arc<RunDir>,
    pub(crate) record: RunRecord,
    pub(crate) session: SandboxSession,
    pub(crate) ground: Ground,
    pub(crate) network: Network,
    /// What the agent must not have changed.
    pub(crate) guard: Guard,
    /// Where the repository is of a worktree that is worked on, if it is not shown.
    pub(crate) worktree: Option<String>,
    /// Hushed from before there was anything to see.
    pub(super) keyboard: Option<Keyboard>,
}

/// Makes the place that the arguments ask for.
pub(super) async fn begin(
    args: &RunArgs,
    file: &AgentFile,
    prompt: &str,
    signals: &mut Signals,
    render: &Render,
) -> Result<Begun, Halt> {
    let options = options(args, file)?;
    plan::warn_of_short_secrets(&options.secrets, render);
    plan::warn_of_strangers(args.machine.workspace.as_ref().filter(|_| args.in_place), file.run_as.as_ref(), render);
    let wanted = match &args.machine.workspace {
        None => Wanted::Empty,
        Some(given) if args.in_place => Wanted::InPlace(given.path.clone(), given.access),
        Some(given) => Wanted::Copy(given.path.clone()),
    };
    let git = args.machine.git;
    make(Order { client: args.machine.sandbox.clone(), options, wanted, git }, prompt, signals, render).await
}

/// What a place is made of.
pub(crate) struct Order {
    pub(crate) client: SandboxArg,
    pub(crate) options: SessionOptions,
    pub(crate) wanted: Wanted,
    pub(crate) git: Option<GitArg>,
}

/// Makes a place. If that cannot be, or a signal comes first, nothing of it is left.
pub(crate) async fn make(
    Order { client, mut options, wanted, git }: Order,
    prompt: &str,
    signals: &mut Signals,
    render: &Render,
) -> Result<Begun, Halt> {
    let client = client::choose(&client, render)?;
    let store = RunStore::open()?;
    let run = Arc::new(store.begin(prompt)?);
    let keyboard = if render.has_terminal() { Keyboard::hush() } else { None };
    let begun = async {
        let (ground, access) = place(wanted, &run, signals, render).await?;
        let path = match &ground {
            Ground::InPlace(path) => path.clone(),
            Ground::Copy(_) | Ground::Empty | Ground::Declared => run.workspace(),
        };
        let source = match &ground {
            Ground::InPlace(source) | Ground::Copy(source) => Worktree::of(source),
            Ground::Empty | Ground::Declared => None,
        };
        let worktree = source.and_then(|worktree| worktree.show(&mut options.machine, git));
        // What is in a copy, the agent may change.
        let own = Workspace::Host { path: path.clone(), access };
        let is_own = matches!(ground, Ground::InPlace(_));
        options.machine.workspace = if is_own { own.clone() } else { Workspace::Temporary };
        let (guard, notes) = Guard::set_up(&mut options.machine, &options.manifest, git)?;
        notes.iter().for_each(|note| render.note(note));
        options.machine.workspace = own;
        if is_own && access == Access::ReadWrite {
            options.patch_journal = patch::journal_of(&options, &path, render);
        }
        keeps_away(&options, &run)?;
        let is_filled = !options.manifest.entries.is_empty();
        let network = options.machine.network.clone();
        let session = open((client, options), &run, signals, render).await?;
        if is_filled && matches!(ground, Ground::Copy(_)) {
            given(&run).await?;
        }
        let ground = if is_filled && ground == Ground::Empty { Ground::Declared } else { ground };
        let record = record(&run, &session, &ground)?;
        Ok(Begun { run: Arc::clone(&run), record, session, ground, network, guard, worktree, keyboard })
    };
    let begun = begun.await;
    if begun.is_err() {
        let id = run.id().to_owned();
        drop(run);
        if let Err(failure) = store.remove(&id) {
            render.failure(&failure);
        }
    }
    begun
}

/// What a manifest put into the copy is not the agent's work, and does not belong to the directory that was copied.
async fn given(run: &Arc<RunDir>) -> Result<(), Failure> {
    let run = Arc::clone(run);
    let taken = tokio::task::spawn_blocking(move || run.take_as_given()).await;
    taken.map_err(|error| Failure::new("cannot look at the workspace").because(error))?
}

fn record(run: &RunDir, session: &SandboxSession, ground: &Ground) -> Result<RunRecord, Failure> {
    let mut record = run.record().map_err(|reason| Failure::new(format!("cannot read the run; {reason}")))?;
    record.session_id = Some(session.id().to_owned());
    if let Ground::Copy(source) = ground {
        record.source = Some(Name(source.as_os_str().as_bytes().to_vec()));
    }
    run.save(&record)?;
    Ok(record)
}

/// What the session is made of, but for its workspace and its listeners.
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

/// The workspace's own files, before any manifest.
async fn place(
    wanted: Wanted,
    run: &Arc<RunDir>,
    signals: &mut Signals,
    render: &Render,
) -> Result<(Ground, Access), Halt> {
    match wanted {
        Wanted::Empty => Ok((Ground::Empty, Access::ReadWrite)),
        Wanted::InPlace(path, access) => {
            plan::directory("--workspace", &path)?;
            let failed = |error| Failure::new(format!("cannot use --workspace {}", path.display())).because(error);
            Ok((Ground::InPlace(std::fs::canonicalize(&path).map_err(failed)?), access))
        }
        Wanted::Copy(path) => {
            plan::directory("--workspace", &path)?;
            Ok((copy(&path, run, signals, render).await?, Access::ReadWrite))
        }
    }
}

/// A run must not be able to change what is written down about it.
fn keeps_away(options: &SessionOptions, run: &RunDir) -> Result<(), Failure> {
    match place::writable_above(&run.audit_path(), options) {
        None => Ok(()),
        Some(path) => Err(Failure::new(format!("cannot let an agent change {}", path.display()))
            .because(std::io::Error::other("what is written down about its runs is there"))
            .next("set XDG_STATE_HOME to a directory outside of it")),
    }
}

/// Writes down what is being copied, so that half a copy is known for one.
fn begin_copy(source: &Path, run: &RunDir) -> Result<(), Failure> {
    let mut record = run.record().map_err(|reason| Failure::new(format!("cannot read the run; {reason}")))?;
    let source = source.canonicalize().unwrap_or_else(|_said_later| source.to_owned());
    record.source = Some(Name(source.as_os_str().as_bytes().to_vec()));
    run.save(&record)
}

/// Copies a directory, on threads of its own; a signal ends it.
async fn copy(source: &Path, run: &Arc<RunDir>, signals: &mut Signals, render: &Render) -> Result<Ground, Halt> {
    begin_copy(source, run)?;
    let cancelled = Arc::new(AtomicBool::new(false));
    let watched = render.has_terminal();
    let (flag, run_dir, path) = (Arc::clone(&cancelled), Arc::clone(run), source.to_owned());
    let mut copying = tokio::task::spawn_blocking(move || {
        let tell = |at: CopyProgress| {
            if watched {
                render::status(&format!("copying the workspace: {}/{} files", at.done, at.total));
            }
        };
        let watch = CopyWatch { progress: &tell, cancelled: &flag };
        let copied = run_dir.copy_in(&path, CopyLimits::default(), &watch);
        if watched {
            render::status("");
        }
        copied
    });
    let mut stopped_by = None;
    let copied = loop {
        tokio::select! {
            copied = &mut copying => break copied,
            signal = signals.next() => {
                cancelled.store(true, Ordering::Relaxed);
                stopped_by = Some(signal);
            }
        }
    };
    match (copied, stopped_by) {
        (_, Some(signal)) => Err(Halt::Signal(signal)),
        (Ok(Ok(copied)), None) => {
            let Copied { files, bytes, ignored, .. } = copied;
            tracing::info!(files, bytes, ignored, "copied the workspace");
            for (path, why) in copied.left_out.iter().take(5) {
                render.note(&format!("left out {path}: {why}"));
            }
            if copied.left_out.len() > 5 {
                render.note(&format!("left out {} more", copied.left_out.len() - 5));
            }
            Ok(Ground::Copy(copied.source))
        }
        (Ok(Err(NotCopied::Failed(failure))), None) => Err(Halt::Failed(failure)),
        (Ok(Err(NotCopied::Cancelled)), None) => Err(Failure::new("the copy was given up").into()),
        (Err(error), None) => Err(Failure::new("cannot copy the workspace").because(error).into()),
    }
}

/// Makes the session and fills its workspace.
async fn open(
    (client, mut options): (Arc<dyn SandboxClient>, SessionOptions),
    run: &RunDir,
    signals: &mut Signals,
    render: &Render,
) -> Result<SandboxSession, Halt> {
    let audit = Jsonl::open(run.audit_path());
    let failed = |error| Failure::new(format!("cannot write {}", run.audit_path().display())).because(error);
    options = options.audit(audit.map_err(failed)?);
    let meter = progress::Meter::choose(render);
    options.progress = meter.as_ref().map(progress::Meter::listener);
    let session = making::session(client, options, signals).await?;
    patch::report(session.recover_patch().await.map_err(Failure::from)?.as_ref(), render);
    let arrived = making::fill(&session, signals).await?;
    drop(meter);
    render.left_out(&arrived);
    for port in session.exposed_ports() {
        let endpoint = session.resolve_exposed_port(*port).await.map_err(Failure::from)?;
        render.port(*port, &endpoint);
    }
    Ok(session)
}
