//! `sandbar patch`: applies a patch through an isolated machine that sees only the directory.

use std::{
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
};

use sandbar::{
    Access, Intent, Paths, SessionOptions,
    client::{ResidentState, UnixLocal},
    patch::{self, Applied, Done, Patch, PatchJournal, PatchOptions, Profile, Recovered},
};
use sandbar_runs::{
    ConfinedDir, StateDir,
    git::{PathJudge, enclosing_repository},
    transfer::HostSide,
    writable_parent,
};
use serde_json::{Value, json};

use crate::{
    args::{GitArg, PatchArgs, ProfileArg},
    failure::Failure,
    machine::plan,
    render::{Render, inert},
    streams::signals::Signals,
};

/// Exit code of a usage mistake.
const USAGE: u8 = 2;

/// One byte more than the maximum length of a patch.
const TEXT_LIMIT: u64 = (16 << 20) + 1;

pub(crate) async fn run(args: PatchArgs, render: &Render) -> Result<u8, (Failure, u8)> {
    let usage = |failure: Failure| (failure.code("usage"), USAGE);
    plan::directory("--workspace", &args.workspace).map_err(usage)?;
    let text = match &args.patch {
        Some(text) if is_file_name(text) => return Err(usage(file_name(text))),
        Some(text) => text.clone(),
        None => text_of_stdin().map_err(usage)?,
    };
    let applied = apply(&text, &args, render).await.map_err(|failure| (failure, 1))?;
    let report = match (args.json, args.profile) {
        (true, _) => json!({"applied": true, "changes": changes(&applied)}).to_string(),
        (false, ProfileArg::Codex) => inert(&applied.codex_text()),
        (false, ProfileArg::Sdk) => inert(&applied.sdk_text()),
    };
    render.result(format!("{}\n", report.trim_end()).as_bytes()).map_err(|failure| (failure, 1))
}

async fn apply(text: &str, args: &PatchArgs, render: &Render) -> Result<Applied, Failure> {
    let patch = Patch::parse(text)?;
    let profile = match args.profile {
        ProfileArg::Codex => Profile::Codex,
        ProfileArg::Sdk => Profile::Sdk,
    };
    let journal = journal(&args.workspace, render);
    let options = PatchOptions { profile, journal: journal.clone(), ..PatchOptions::default() };
    // Signals are ignored until all files are changed, which takes little time.
    let _ignored = Signals::listen()?;
    let host = HostSide::open(args.workspace.clone(), Access::ReadWrite, args.isolation.into()).await?;
    let (machine, paths) = (host.machine(), Paths::new(host.root()));
    let applied = async {
        if let Some(journal) = &journal {
            let recovered = patch::recover(machine.as_ref(), &paths, journal, &options.limits).await?;
            report(recovered.as_ref(), render);
        }
        leaves_git_alone(&patch, &paths, (args, render))?;
        Ok(patch::apply(machine.as_ref(), &paths, &patch, &options).await?)
    };
    let applied = applied.await;
    host.close().await;
    applied
}

/// Refuses a patch that changes or creates a repository, because git would run its hooks. A patch follows no links, so paths
/// are sufficient.
fn leaves_git_alone(patch: &Patch, paths: &Paths, (args, render): (&PatchArgs, &Render)) -> Result<(), Failure> {
    if args.git == Some(GitArg::Rw) {
        return Ok(());
    }
    let mut changed = Vec::new();
    for path in patch.paths() {
        // Applying the patch refuses paths that lead out of the directory.
        let Ok(target) = paths.target(path, Intent::Read) else { continue };
        let root = paths.root().as_bytes();
        let below = target.path.as_bytes().strip_prefix(root).and_then(|path| path.strip_prefix(b"/"));
        changed.extend(below.map(<[u8]>::to_vec));
    }
    let failed = |error| Failure::new(format!("cannot use --workspace {}", args.workspace.display())).because(error);
    let root = args.workspace.canonicalize().map_err(failed)?;
    let target = ConfinedDir::open(&root).map_err(failed)?;
    let judge = PathJudge::new(&target, &root, &changed.iter().map(Vec::as_slice).collect::<Vec<_>>());
    judge.search_note().into_iter().for_each(|note| render.note(note));
    let obeyed = |path: &[u8]| judge.is_tool_file(path).then_some("git obeys it");
    let mut refused = changed.iter().filter_map(|path| Some((path, judge.refusal(path).or_else(|| obeyed(path))?)));
    if let Some((path, reason)) = refused.next() {
        let what = format!("cannot change {}; {reason}", String::from_utf8_lossy(path));
        return Err(Failure::new(what).code("repository").next("nothing was changed; --git rw allows it"));
    }
    match enclosing_repository(&root) {
        Some(repository) => {
            Err(Failure::new(format!("cannot change files in {}, which belong to git", repository.display()))
                .code("repository")
                .next("nothing was changed; --git rw allows it"))
        }
        None => Ok(()),
    }
}

/// Opens the journal of patches to a directory. Without a journal, a patch is still applied.
fn journal(workspace: &Path, render: &Render) -> Option<PatchJournal> {
    opened(journals().and_then(|directory| Ok(PatchJournal::open(directory, workspace)?)), render)
}

/// Opens the journal for a sandbox that works in the directory, unless the sandbox could forge its records.
pub(crate) fn journal_of(options: &SessionOptions, workspace: &Path, render: &Render) -> Option<PatchJournal> {
    let journal = journals().and_then(|directory| match writable_parent(&directory.join("journal"), options) {
        Some(place) => Err(Failure::new(format!("the sandbox can write to {}", place.display()))),
        None => Ok(PatchJournal::open(directory, workspace)?),
    });
    opened(journal, render)
}

fn journals() -> Result<PathBuf, Failure> {
    Ok(StateDir::from_env()?.patches())
}

fn opened(journal: Result<PatchJournal, Failure>, render: &Render) -> Option<PatchJournal> {
    match journal {
        Ok(journal) => Some(journal.probing(|machine| {
            let machines = UnixLocal::new().machines().unwrap_or_default();
            machines.iter().any(|found| found.id == machine && found.state == ResidentState::Running)
        })),
        Err(failure) => {
            render.note(&format!("a patch that is killed cannot be undone; {failure}"));
            None
        }
    }
}

/// Reports the recovery from an interrupted patch.
pub(crate) fn report(recovered: Option<&Recovered>, render: &Render) {
    let Some(Recovered { undone, changed_since, .. }) = recovered else { return };
    if !undone.is_empty() {
        render.note(&format!("an earlier patch was interrupted; undid its changes to {} files", undone.len()));
    }
    for path in changed_since.iter().take(10) {
        render.note(&format!("an earlier patch was interrupted; {path} was changed since, and is not restored"));
    }
    if changed_since.len() > 10 {
        render.note(&format!("and {} more that were changed since", changed_since.len() - 10));
    }
}

/// Whether the argument is the name of a file instead of a patch.
fn is_file_name(text: &str) -> bool {
    let begins_like_one = ["***", "{", "["].iter().any(|begin| text.starts_with(begin));
    !text.contains('\n') && (!begins_like_one || Path::new(text).is_file())
}

fn file_name(text: &str) -> Failure {
    let start: String = text.chars().take(200).collect();
    Failure::new(format!("{start} is not a patch")).next(format!("to apply a file: sandbar patch < {start}"))
}

fn text_of_stdin() -> Result<String, Failure> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Err(Failure::new("there is no patch").next("pass it as an argument, or on standard input"));
    }
    let mut text = Vec::new();
    let read = stdin.lock().take(TEXT_LIMIT).read_to_end(&mut text);
    read.map_err(|error| Failure::new("cannot read the patch").because(error))?;
    String::from_utf8(text).map_err(|error| Failure::new("the patch is not UTF-8").because(error.utf8_error()))
}

/// Changes of a patch as JSON.
fn changes(applied: &Applied) -> Vec<Value> {
    let change = |done: &Done| match done {
        Done::Created(path) => json!({"action": "created", "path": path}),
        Done::Updated(path) => json!({"action": "updated", "path": path}),
        Done::Moved(path, to) => json!({"action": "moved", "path": path, "to": to}),
        Done::Deleted(path) => json!({"action": "deleted", "path": path}),
    };
    applied.done.iter().map(change).collect()
}
