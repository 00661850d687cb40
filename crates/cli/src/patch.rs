//! `sandbar patch`: applies a patch through an isolated machine that sees only the directory.

use std::{
    io::{self, IsTerminal, Read},
    path::Path,
};

use sandbar::{
    Access, SessionOptions,
    sandbox::{
        Paths,
        patch::{self, Applied, Done, Patch, PatchJournal, PatchOptions, Profile, Recovered},
    },
};
use sandbar_runs::{StateDir, check_patch, transfer::HostSide};
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
    let journal = journal(&args.workspace, None, render);
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
        if args.git != Some(GitArg::Rw) {
            check_patch(&args.workspace, &patch, &paths, |note| render.note(note))?;
        }
        Ok(patch::apply(machine.as_ref(), &paths, &patch, &options).await?)
    };
    let applied = applied.await;
    host.close().await;
    applied
}

/// Opens the journal of patches to a directory, in which a sandbox may work. Without a journal, a patch is still applied.
pub(crate) fn journal(workspace: &Path, sandbox: Option<&SessionOptions>, render: &Render) -> Option<PatchJournal> {
    let journal = StateDir::from_env().and_then(|state| state.patch_journal(workspace, sandbox));
    let unjournaled =
        |error| render.note(&format!("a patch that is killed cannot be undone; {}", Failure::from(error)));
    journal.map_err(unjournaled).ok()
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
