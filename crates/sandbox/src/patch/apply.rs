//! A patch applied as a whole: every result is known before the first byte is written.

use futures::{StreamExt, stream};
use sandbar_machine::{Machine, Target};

use super::{
    Applied, Change, Patch, PatchJournal, PatchLimits, PatchOptions,
    commit::{commit, remove_empty},
    files::{AT_ONCE, Sites, now},
    journal::JournalLock,
    plan::{Planned, plan},
    record::Record,
    recover::{Leftovers, recover_locked, sweep},
};
use crate::{Op, Paths, Result, SandboxError};

/// Number of bytes up to which a patch is planned on the current thread; more would delay the other tasks of the thread.
const INLINE: usize = 256 << 10;

/// Applies a patch: all of it or, with an error, nothing. Each operation sees the results of those before it.
///
/// Do not drop the future once it runs: changes written by then would stay. With a [journal](PatchOptions::journal), an
/// interrupted patch (by a dropped future, by `kill -9`, by a power cut) is first undone by the next call for the same
/// directory.
///
/// # Errors
/// `apply_patch_invalid_path`, `apply_patch_file_not_found`, `apply_patch_decode_error`, `apply_patch_invalid_diff` and
/// `limit_exceeded` leave everything as it was, `apply_patch_invalid_diff` also if another process changed a file meanwhile;
/// `apply_patch_write_error` says whether the written changes are undone.
pub async fn apply(machine: &dyn Machine, paths: &Paths, patch: &Patch, options: &PatchOptions) -> Result<Applied> {
    let lock = lock(machine, paths, options.journal.as_ref(), &options.limits).await?;
    let sites = Sites::read(machine, paths, patch, options).await?;
    let planned =
        if sites.weight(patch) <= INLINE { plan(sites, patch, options)? } else { aside(sites, patch, options).await? };
    let Planned { done, delta, seen, made } = planned;
    let record = begin(lock.as_ref(), machine, paths, &delta, &made).await?;
    if record.is_some() {
        let files = delta.iter().map(|change| change.target.clone()).collect();
        sweep(machine, files, Leftovers::Old, &options.limits).await;
    }
    let committed = commit(machine, &delta, &seen, &made, &options.limits).await;
    finish(lock.as_ref(), record, committed).await?;
    Ok(Applied { done, delta, made, limits: options.limits })
}

/// Locks the journal of a directory and undoes an interrupted patch.
async fn lock(
    machine: &dyn Machine,
    paths: &Paths,
    journal: Option<&PatchJournal>,
    limits: &PatchLimits,
) -> Result<Option<JournalLock>> {
    let Some(journal) = journal else { return Ok(None) };
    let lock = journal.lock().await?;
    if let Some(recovered) = recover_locked(machine, paths, &lock, limits).await? {
        tracing::warn!(files = recovered.undone.len(), "an interrupted patch was taken back");
    }
    Ok(Some(lock))
}

/// Records what is about to change.
async fn begin(
    lock: Option<&JournalLock>,
    machine: &dyn Machine,
    paths: &Paths,
    changes: &[Change],
    made: &[Target],
) -> Result<Option<Record>> {
    let Some(lock) = lock.filter(|_| !changes.is_empty()) else { return Ok(None) };
    let record = Record::new(machine, paths, lock.inode()?, changes, made);
    lock.write(&record).await?;
    Ok(Some(record))
}

/// Clears the record if the patch is complete or undone.
async fn finish(lock: Option<&JournalLock>, record: Option<Record>, committed: Result<()>) -> Result<()> {
    let is_mixed = matches!(&committed, Err(error) if error.context().get("undone") == Some(&false.into()));
    let (Some(lock), Some(record), false) = (lock, record, is_mixed) else { return committed };
    let cleared = lock.clear(record.paths()).await;
    committed.and(cleared)
}

/// Plans on a thread for blocking work.
async fn aside(sites: Sites, patch: &Patch, options: &PatchOptions) -> Result<Planned> {
    let (patch, options) = (patch.clone(), options.clone());
    let planned = tokio::task::spawn_blocking(move || plan(sites, &patch, &options)).await;
    planned.map_err(|ended| SandboxError::apply_patch_write_error("", true).because(ended))?
}

/// Takes an applied patch back: all of it or, with an error, nothing.
///
/// # Errors
/// `apply_patch_invalid_diff` when a file no longer is what the patch left; `apply_patch_write_error` as for [`apply`].
pub async fn undo(machine: &dyn Machine, applied: &Applied) -> Result<()> {
    undo_recorded(machine, applied, None).await
}

/// The same, with a journal.
pub(crate) async fn undo_recorded(
    machine: &dyn Machine,
    applied: &Applied,
    recorded: Option<(&Paths, &PatchJournal)>,
) -> Result<()> {
    let lock = match recorded {
        Some((paths, journal)) => lock(machine, paths, Some(journal), &applied.limits).await?,
        None => None,
    };
    let limits = &applied.limits;
    let looks = applied.delta.iter().map(|change| async move { (change, now(machine, &change.target, limits).await) });
    // In order: what is seen belongs to the change of the same place in the list.
    let mut looks = stream::iter(looks.collect::<Vec<_>>()).buffered(AT_ONCE);
    let mut seen = Vec::with_capacity(applied.delta.len());
    while let Some((change, found)) = looks.next().await {
        let found = found.map_err(|error| SandboxError::machine(Op::ApplyPatch, &*change.path, error))?;
        if !found.is(change.after.as_ref()) {
            let reason = format!("{} has changed since the patch was applied; nothing was undone", change.path);
            return Err(SandboxError::apply_patch_invalid_diff(&*change.path, reason));
        }
        seen.push(found.seen());
    }
    let reverse = |change: &Change| {
        let change = change.clone();
        Change { before: change.after, after: change.before, ..change }
    };
    let changes: Vec<Change> = applied.delta.iter().map(reverse).collect();
    let record = match recorded {
        Some((paths, _)) => begin(lock.as_ref(), machine, paths, &changes, &[]).await?,
        None => None,
    };
    let committed = commit(machine, &changes, &seen, &[], limits).await;
    finish(lock.as_ref(), record, committed).await?;
    // A directory that is in use by now stays.
    let _all_gone = remove_empty(machine, &applied.made, limits).await;
    Ok(())
}
