//! `sandbar patch`: a patch to the files of a directory, all of it or nothing, by the guest of a machine that sees only them.

use std::{
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
};

use sandbar::{
    Access, Intent, Paths, SessionOptions,
    client::{ResidentState, UnixLocal},
    patch::{self, Applied, Done, Patch, PatchJournal, PatchOptions, Profile, Recovered},
};
use serde_json::{Value, json};

use crate::{
    args::{GitArg, PatchArgs, ProfileArg},
    failure::Failure,
    git::{Judge, around},
    host_side::HostSide,
    place, plan,
    render::{Render, inert},
    runs::beneath::Beneath,
    session,
    signals::Signals,
};

/// The exit code of wrong use.
const USAGE: u8 = 2;

/// One byte more than the longest patch.
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
    // Between the first file and the last there is no good moment to end; it is soon over.
    let _deaf = Signals::listen()?;
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

/// Refuses a patch that would change a repository, or make one: git would run what it says. A patch goes through no link, so
/// that paths say enough.
fn leaves_git_alone(patch: &Patch, paths: &Paths, (args, render): (&PatchArgs, &Render)) -> Result<(), Failure> {
    if args.git == Some(GitArg::Rw) {
        return Ok(());
    }
    let mut changed = Vec::new();
    for path in patch.paths() {
        // What leads elsewhere is refused by the patch itself.
        let Ok(target) = paths.target(path, Intent::Read) else { continue };
        let root = paths.root().as_bytes();
        let below = target.path.as_bytes().strip_prefix(root).and_then(|path| path.strip_prefix(b"/"));
        changed.extend(below.map(<[u8]>::to_vec));
    }
    let failed = |error| Failure::new(format!("cannot use --workspace {}", args.workspace.display())).because(error);
    let root = args.workspace.canonicalize().map_err(failed)?;
    let target = Beneath::open(&root).map_err(failed)?;
    let judge = Judge::new(&target, &root, &changed.iter().map(Vec::as_slice).collect::<Vec<_>>());
    judge.note.iter().for_each(|note| render.note(note));
    let obeyed = |path: &[u8]| judge.is_obeyed(path).then_some("git obeys it");
    let mut refused = changed.iter().filter_map(|path| Some((path, judge.refusal(path).or_else(|| obeyed(path))?)));
    if let Some((path, reason)) = refused.next() {
        let what = format!("cannot change {}; {reason}", String::from_utf8_lossy(path));
        return Err(Failure::new(what).code("repository").next("nothing was changed; --git rw allows it"));
    }
    match around(&root) {
        Some(repository) => Err(Failure::new(format!("cannot change what belongs to {}", repository.display()))
            .code("repository")
            .next("nothing was changed; --git rw allows it")),
        None => Ok(()),
    }
}

/// Where patches to a directory are recorded while they are applied. One that cannot be recorded is applied all the same.
fn journal(workspace: &Path, render: &Render) -> Option<PatchJournal> {
    opened(journals().and_then(|directory| Ok(PatchJournal::open(directory, workspace)?)), render)
}

/// The same for a sandbox that works in the directory, unless it could write a record of its own: those are believed.
pub(crate) fn journal_of(options: &SessionOptions, workspace: &Path, render: &Render) -> Option<PatchJournal> {
    let journal = journals().and_then(|directory| match place::writable_above(&directory.join("journal"), options) {
        Some(place) => Err(Failure::new(format!("the sandbox may write to {}", place.display()))),
        None => Ok(PatchJournal::open(directory, workspace)?),
    });
    opened(journal, render)
}

fn journals() -> Result<PathBuf, Failure> {
    Ok(session::state_directory()?.join("patches"))
}

fn opened(journal: Result<PatchJournal, Failure>, render: &Render) -> Option<PatchJournal> {
    match journal {
        Ok(journal) => Some(journal.probing(|machine| {
            let machines = UnixLocal::new().machines().unwrap_or_default();
            machines.iter().any(|found| found.id == machine && found.state == ResidentState::Running)
        })),
        Err(failure) => {
            render.note(&format!("if it is killed in the middle, a patch cannot be taken back: {failure}"));
            None
        }
    }
}

/// Says what became of a patch that was interrupted.
pub(crate) fn report(recovered: Option<&Recovered>, render: &Render) {
    let Some(Recovered { undone, changed_since, .. }) = recovered else { return };
    if !undone.is_empty() {
        render.note(&format!("an earlier patch was interrupted; took it back in {} files", undone.len()));
    }
    for path in changed_since.iter().take(10) {
        render.note(&format!("an earlier patch was interrupted; {path} was changed since, and stays as it is"));
    }
    if changed_since.len() > 10 {
        render.note(&format!("and {} more that were changed since", changed_since.len() - 10));
    }
}

/// Whether somebody gave the name of a patch for the patch.
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
        return Err(Failure::new("there is no patch").next("give it as an argument, or on standard input"));
    }
    let mut text = Vec::new();
    let read = stdin.lock().take(TEXT_LIMIT).read_to_end(&mut text);
    read.map_err(|error| Failure::new("cannot read the patch").because(error))?;
    String::from_utf8(text).map_err(|error| Failure::new("the patch is not UTF-8").because(error.utf8_error()))
}

/// What was done, for programs.
fn changes(applied: &Applied) -> Vec<Value> {
    let change = |done: &Done| match done {
        Done::Created(path) => json!({"action": "created", "path": path}),
        Done::Updated(path) => json!({"action": "updated", "path": path}),
        Done::Moved(path, to) => json!({"action": "moved", "path": path, "to": to}),
        Done::Deleted(path) => json!({"action": "deleted", "path": path}),
    };
    applied.done.iter().map(change).collect()
}
