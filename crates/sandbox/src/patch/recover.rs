//! A patch that was interrupted: taken back by what its journal says, without touching what was changed since.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    time::{Duration, UNIX_EPOCH},
};

use futures::{StreamExt as _, stream};
use sandbar_machine::{DirEntry, EntryKind, Expected, Machine, MachinePath, Target};

use super::{
    Content, PatchJournal, PatchLimits,
    commit::{put, remove_empty},
    files::{AT_ONCE, Now, now, within},
    journal::JournalLock,
    record::{Record, RecordedChange, boot},
};
use crate::{Intent, Paths, Result, SandboxError, staging::is_staged_file};

/// How long the machine of an interrupted patch may take to end.
const ENDING: Duration = Duration::from_secs(10);

/// How long a staged file may go without a write before it counts as left behind.
const OLD: Duration = Duration::from_secs(10 * 60);

/// What became of a patch that was interrupted. Paths are relative to the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The files that are as they were before it again; none if it had come to its end, or had changed nothing yet.
    pub undone: Vec<String>,
    /// Files of it that are neither what they were nor what it wrote: they were changed since, and stay.
    pub changed_since: Vec<String>,
}

/// Takes an interrupted patch back, if there is one. One that had come to its end stays.
///
/// # Errors
/// `apply_patch_write_error` when another patch is being applied, or a file cannot be written; the next call tries again.
pub async fn recover(
    machine: &dyn Machine,
    paths: &Paths,
    journal: &PatchJournal,
    limits: &PatchLimits,
) -> Result<Option<Recovered>> {
    let lock = journal.lock().await?;
    recover_locked(machine, paths, &lock, limits).await
}

pub(super) async fn recover_locked(
    machine: &dyn Machine,
    paths: &Paths,
    lock: &JournalLock,
    limits: &PatchLimits,
) -> Result<Option<Recovered>> {
    let Some(record) = lock.read().await? else { return Ok(None) };
    if record.inode != lock.inode()? {
        tracing::warn!("an interrupted patch was to another directory that had this name; it is forgotten");
        lock.clear(Vec::new()).await?;
        return Ok(None);
    }
    ended(lock.journal(), &record).await;
    let sites = sites(machine, paths, &record, limits).await;
    let is_complete = !sites.iter().any(|site| matches!(site.state, State::Before | State::Torn));
    let changed_since = named(&sites, &[State::Changed]);
    let mut recovered = Recovered { undone: Vec::new(), changed_since };
    if !is_complete {
        take_back(machine, &sites, limits).await?;
        recovered.undone = named(&sites, &[State::After, State::Torn]);
    }
    let files = sites.iter().filter_map(|site| site.target.clone()).collect();
    sweep(machine, files, Leftovers::Of(&sites), limits).await;
    if !is_complete {
        let made: Vec<Target> = record.made.iter().filter_map(|path| target(paths, path, None)).collect();
        remove_empty(machine, &made, limits).await;
    }
    lock.clear(record.paths()).await?;
    Ok(Some(recovered))
}

/// Waits until nothing that the interrupted patch asked for can still happen.
async fn ended(journal: &PatchJournal, record: &Record) {
    let Some(machine) = &record.machine else { return };
    let gone = async {
        while journal.lives(machine) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(ENDING, gone).await.is_err() {
        tracing::warn!(machine, "the machine of an interrupted patch still lives");
    }
}

/// One file of the patch, and what is there now.
pub(super) struct Site<'r> {
    change: &'r RecordedChange,
    /// Nothing where this machine may not write.
    target: Option<Target>,
    state: State,
    now: Now,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Before,
    After,
    /// What a power cut left of the new bytes.
    Torn,
    Changed,
}

async fn sites<'r>(machine: &dyn Machine, paths: &Paths, record: &'r Record, limits: &PatchLimits) -> Vec<Site<'r>> {
    let rebooted = record.boot != boot();
    let looks = record.changes.iter().map(|change| async move {
        let target = target(paths, &change.path, change.user.as_ref());
        let found = match &target {
            Some(target) => now(machine, target, limits).await.unwrap_or(Now::Other),
            None => Now::Other,
        };
        let state = match &found {
            _ if found.is(change.before.as_ref()) => State::Before,
            _ if found.is(change.after.as_ref()) => State::After,
            Now::File(content, _) if rebooted && is_torn(content, change.after.as_ref()) => State::Torn,
            _ => State::Changed,
        };
        Site { change, target, state, now: found }
    });
    stream::iter(looks.collect::<Vec<_>>()).buffered(AT_ONCE).collect().await
}

/// Whether these may be the bytes that were to be written, of which not all came to the disk.
fn is_torn(found: &Content, wanted: Option<&Content>) -> bool {
    let written = found.bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    wanted.is_some_and(|wanted| wanted.bytes.starts_with(&found.bytes[..written]))
}

fn named(sites: &[Site<'_>], states: &[State]) -> Vec<String> {
    let found = sites.iter().filter(|site| states.contains(&site.state));
    found.map(|site| String::from_utf8_lossy(&site.change.path).into_owned()).collect()
}

async fn take_back(machine: &dyn Machine, sites: &[Site<'_>], limits: &PatchLimits) -> Result<()> {
    let mut written: Vec<&Site<'_>> =
        sites.iter().filter(|site| matches!(site.state, State::After | State::Torn)).collect();
    // What frees space comes first: the disk may be full.
    written.sort_by_key(|site| site.change.before.as_ref().map(|content| content.bytes.len()));
    for site in written {
        let Some(target) = &site.target else { continue };
        let expected = site.now.seen().map_or(Expected::Nothing, Expected::File);
        let target = target.clone().expecting(expected);
        let RecordedChange { before, after, .. } = site.change;
        put(machine, &target, after.as_ref(), before.as_ref(), limits).await.map_err(|error| {
            let path = String::from_utf8_lossy(&site.change.path).into_owned();
            SandboxError::apply_patch_write_error(path, false).because(error)
        })?;
    }
    Ok(())
}

fn target(paths: &Paths, path: &[u8], user: Option<&String>) -> Option<Target> {
    let target = paths.target(OsStr::from_bytes(path), Intent::Write).ok()?;
    Some(Target { user: user.cloned(), ..target })
}

/// Which of the files that were staged and never got their name are removed.
pub(super) enum Leftovers<'s> {
    /// The beginning of something that a patch, or taking it back, was to write.
    Of(&'s [Site<'s>]),
    /// Those that have not been written to for so long that no writer can be left.
    Old,
}

impl Leftovers<'_> {
    fn include(&self, entry: &DirEntry, content: &Content) -> bool {
        match self {
            Self::Of(sites) => {
                let mut contents = sites.iter().flat_map(|site| [&site.change.before, &site.change.after]).flatten();
                contents.any(|known| known.bytes.starts_with(&content.bytes))
            }
            Self::Old => {
                let written = Duration::from_nanos(u64::try_from(entry.modified_ns).unwrap_or_default());
                (UNIX_EPOCH + written).elapsed().is_ok_and(|age| age > OLD)
            }
        }
    }
}

/// Removes leftovers from the directories of these files.
pub(super) async fn sweep(machine: &dyn Machine, files: Vec<Target>, which: Leftovers<'_>, limits: &PatchLimits) {
    let mut seen: BTreeSet<MachinePath> = BTreeSet::new();
    for target in files {
        let Some(parent) = target.path.parent() else { continue };
        if !seen.insert(parent.clone()) {
            continue;
        }
        let dir = Target { path: parent.clone(), ..target.clone() };
        let Ok(entries) = within(limits, "list a directory", machine.list(&dir)).await else { continue };
        for entry in entries {
            let is_staged = entry.kind == EntryKind::File && is_staged_file(entry.name.as_bytes());
            let (true, Ok(path)) = (is_staged, parent.join(&entry.name)) else { continue };
            let leftover = Target { path, ..target.clone() };
            let Ok(Now::File(found, _)) = now(machine, &leftover, limits).await else { continue };
            if which.include(&entry, &found) {
                let _stays_behind = within(limits, "remove a file", machine.remove(&leftover)).await;
            }
        }
    }
}
