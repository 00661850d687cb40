//! Writing the planned changes: each file in one step, and all of them undone if one fails.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
};

use futures::{StreamExt, stream};
use sandbar_machine::{Expected, Machine, MachineError, Stamp, Target, once};

use super::{
    Change, Content, PatchLimits,
    files::{AT_ONCE, is_still, now, within},
};
use crate::{Result, SandboxError};

/// Result of one change.
#[derive(Debug)]
enum Outcome {
    /// Not begun.
    Skipped,
    /// Not begun: the file has changed since it was read, or could not be checked because of this error.
    Stale(Option<MachineError>),
    Made,
    /// Failed; the file may or may not have changed.
    Failed(MachineError),
}

/// Makes every change, or none of them. `seen` is what each file looked like when it was read.
///
/// # Errors
/// `apply_patch_invalid_diff` when a file does not look so any more; `apply_patch_write_error`, whose `undone` says whether everything is as it was.
pub(super) async fn commit(
    machine: &dyn Machine,
    changes: &[Change],
    seen: &[Option<Stamp>],
    made: &[Target],
    limits: &PatchLimits,
) -> Result<()> {
    // Nothing is removed before everything is written: a move never has fewer than one copy.
    let all = changes.iter().zip(seen);
    let (writes, removals): (Vec<_>, Vec<_>) = all.partition(|(change, _)| change.after.is_some());
    let mut outcomes = Vec::with_capacity(changes.len());
    let stop = AtomicBool::new(false);
    for phase in [writes, removals] {
        let steps =
            phase.into_iter().map(|(change, seen)| step(machine, change, *seen, limits, &stop)).collect::<Vec<_>>();
        // Those under way when one fails are waited for: what they did must be known before it is taken back.
        outcomes.extend(stream::iter(steps).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await);
    }
    if !stop.into_inner() {
        return Ok(());
    }
    let undone = take_back(machine, &outcomes, made, limits).await;
    let failed = outcomes.into_iter().find_map(|(change, outcome)| match outcome {
        Outcome::Failed(error) | Outcome::Stale(Some(error)) => Some((change, Some(error))),
        Outcome::Stale(None) => Some((change, None)),
        Outcome::Skipped | Outcome::Made => None,
    });
    let Some((Change { path, .. }, error)) = failed else { return Ok(()) };
    let changed = format!("{path} changed while the patch was being applied; read it again");
    Err(match error {
        Some(error) => SandboxError::apply_patch_write_error(path, undone).because(error),
        None if undone => SandboxError::apply_patch_invalid_diff(path, changed),
        None => SandboxError::apply_patch_write_error(path, undone).because(io::Error::other(changed)),
    })
}

async fn step<'c>(
    machine: &dyn Machine,
    change: &'c Change,
    seen: Option<Stamp>,
    limits: &PatchLimits,
    stop: &AtomicBool,
) -> (&'c Change, Outcome) {
    if stop.load(Ordering::Relaxed) {
        return (change, Outcome::Skipped);
    }
    // The machine looks at a file right before it replaces it; only a removal has to be preceded by a look from here.
    let still = match change.after {
        Some(_) => Ok(true),
        None => is_still(machine, &change.target, seen, limits).await,
    };
    let expected = seen.map_or(Expected::Nothing, Expected::File);
    let target = change.target.clone().expecting(expected);
    let outcome = match still {
        Ok(true) => match put(machine, &target, change.before.as_ref(), change.after.as_ref(), limits).await {
            Ok(()) => return (change, Outcome::Made),
            Err(MachineError::Changed(_)) => Outcome::Stale(None),
            Err(error) => Outcome::Failed(error),
        },
        Ok(false) => Outcome::Stale(None),
        Err(error) => Outcome::Stale(Some(error)),
    };
    stop.store(true, Ordering::Relaxed);
    (change, outcome)
}

/// Writes or removes one file. Permissions that the change does not name are kept.
pub(super) async fn put(
    machine: &dyn Machine,
    target: &Target,
    before: Option<&Content>,
    after: Option<&Content>,
    limits: &PatchLimits,
) -> sandbar_machine::Result<()> {
    let Some(after) = after else { return within(limits, "remove a file", machine.remove(target)).await };
    let mode = (before.map(|before| before.mode) != Some(after.mode)).then_some(after.mode & 0o777);
    let target = Target { mode, ..target.clone() };
    within(limits, "write a file", machine.write(&target, once(after.bytes.clone()))).await
}

/// Undoes all changes; returns whether that worked.
async fn take_back(
    machine: &dyn Machine,
    outcomes: &[(&Change, Outcome)],
    made: &[Target],
    limits: &PatchLimits,
) -> bool {
    let mut touched: Vec<_> =
        outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Made | Outcome::Failed(_))).collect();
    // What frees space comes first: the disk may be full.
    touched.sort_by_key(|(change, _)| {
        let length = |content: &Option<Content>| content.as_ref().map_or(0, |content| content.bytes.len());
        (change.before.is_some(), length(&change.before).saturating_sub(length(&change.after)))
    });
    let mut undone = true;
    for (change, outcome) in touched {
        if matches!(outcome, Outcome::Failed(_)) {
            let found = now(machine, &change.target, limits).await;
            // The file is unchanged, or another process has changed it: there is nothing of this patch to undo.
            if found.is_ok_and(|found| !found.is(change.after.as_ref())) {
                continue;
            }
        }
        undone &= put(machine, &change.target, change.after.as_ref(), change.before.as_ref(), limits).await.is_ok();
    }
    undone & remove_empty(machine, made, limits).await
}

/// Removes the created directories that are empty, children first. Returns whether all of them are gone, except those that have
/// other files in them.
pub(super) async fn remove_empty(machine: &dyn Machine, made: &[Target], limits: &PatchLimits) -> bool {
    let mut gone = true;
    for target in made.iter().rev() {
        gone &= match within(limits, "list a directory", machine.list(target)).await {
            Ok(entries) if entries.is_empty() => {
                within(limits, "remove a directory", machine.remove(target)).await.is_ok()
            }
            Ok(_) | Err(MachineError::NotFound(_)) => true,
            Err(_) => false,
        };
    }
    gone
}
