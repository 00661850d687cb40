//! Moves a staged tree into an existing directory: plans all renames, then executes them.

use std::{
    collections::{HashMap, VecDeque},
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use bytes::BytesMut;
use futures::{StreamExt, TryStreamExt, stream};
use sandbar::{
    Machine, MachineError, Target,
    machine::{
        DirEntry, EntryKind,
        tar::{self, Kind, Member},
    },
    once,
};

use super::stage::{Stage, below};

type Result<T> = std::result::Result<T, MachineError>;

/// Maximum number of concurrent renames.
const AT_ONCE: usize = 16;

/// Permissions that the owner of a directory needs to change its entries, or to move it.
const OWNER_ALL: u32 = 0o700;

/// Renames in one directory.
struct Level {
    dir: Vec<u8>,
    moves: Vec<Move>,
}

/// A rename.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Move {
    path: Vec<u8>,
    kind: EntryKind,
    mode: u32,
    /// Whether an existing directory must be removed first.
    replaces_dir: bool,
}

/// Action for a staged entry.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Renamed: the name is free, or names a file or a link.
    Rename,
    /// Renamed after the existing directory is removed.
    Replace,
    /// Merged: both are directories.
    Enter,
    /// Refused: the destination of a directory exists, and is not a directory.
    Refuse,
}

fn judge(staged: EntryKind, found: Option<EntryKind>) -> Verdict {
    use EntryKind::Dir;
    match (staged, found) {
        (_, None) => Verdict::Rename,
        (Dir, Some(Dir)) => Verdict::Enter,
        (Dir, Some(_)) => Verdict::Refuse,
        (_, Some(Dir)) => Verdict::Replace,
        (_, Some(_)) => Verdict::Rename,
    }
}

/// Renames of a merge, and permission bits of directories.
#[derive(Default)]
struct Plan {
    levels: Vec<Level>,
    /// Directories to move that their owner cannot write to: their permissions must be changed first.
    locked: Vec<(Vec<u8>, u32)>,
    /// Permission bits to set at the end.
    modes: Vec<(Vec<u8>, u32)>,
}

/// Renames all entries of `stage` into `target`. If an entry is refused, nothing is changed.
pub(super) async fn merge(stage: &Stage<'_>, from: &Target, target: &Target) -> Result<()> {
    let machine = stage.machine;
    let plan = plan(machine, from, target).await?;
    if !plan.locked.is_empty() {
        let open = plan.locked.iter().map(|(path, mode)| (path, mode | OWNER_ALL));
        set_modes(machine, from, open).await?;
    }
    let mut redone: Vec<Vec<u8>> = Vec::new();
    for Level { dir, moves } in plan.levels {
        if redone.iter().any(|above| is_within(&dir, above)) {
            continue;
        }
        let renames = stream::iter(&moves).map(|one| rename(machine, from, target, one));
        let renamed: Result<()> = renames.buffer_unordered(AT_ONCE).try_collect().await;
        match renamed {
            Ok(()) => {}
            Err(error) if dir.is_empty() || !is_refusal(&error) => return Err(error),
            Err(error) => {
                // The directory is a separate mount, and renames do not cross mounts: stage the copy again inside the mount.
                tracing::debug!(%error, "staging again");
                restage(stage, &below(from, OsStr::from_bytes(&dir))?, &below(target, OsStr::from_bytes(&dir))?)
                    .await?;
                redone.push(dir);
            }
        }
    }
    let modes = plan.locked.iter().chain(&plan.modes).map(|(path, mode)| (path, *mode)).collect::<Vec<_>>();
    if modes.is_empty() {
        return Ok(());
    }
    set_modes(machine, target, modes.into_iter()).await
}

async fn plan(machine: &dyn Machine, from: &Target, target: &Target) -> Result<Plan> {
    let mut plan = Plan::default();
    let mut waiting = VecDeque::from([Vec::new()]);
    while let Some(dir) = waiting.pop_front() {
        let there = below(target, OsStr::from_bytes(&dir))?;
        let found: HashMap<OsString, DirEntry> =
            machine.list(&there).await?.into_iter().map(|entry| (entry.name.clone(), entry)).collect();
        let mut moves = Vec::new();
        for staged in machine.list(&below(from, OsStr::from_bytes(&dir))?).await? {
            let path = join(&dir, &staged.name);
            let old = found.get(&staged.name);
            let mode = staged.mode & 0o777;
            match judge(staged.kind, old.map(|old| old.kind)) {
                Verdict::Refuse => return Err(in_the_way(below(&there, &staged.name)?, old)),
                Verdict::Enter => {
                    let old_mode = old.map_or(mode, |old| old.mode & 0o777);
                    if old_mode & OWNER_ALL != OWNER_ALL {
                        set_modes(machine, target, [(&path, old_mode | OWNER_ALL)].into_iter()).await?;
                    }
                    if old_mode & OWNER_ALL != OWNER_ALL || old_mode != mode {
                        plan.modes.push((path.clone(), mode));
                    }
                    waiting.push_back(path);
                }
                verdict => {
                    if staged.kind == EntryKind::Dir && mode & OWNER_ALL != OWNER_ALL {
                        plan.locked.push((path.clone(), mode));
                    }
                    let replaces_dir = verdict == Verdict::Replace;
                    moves.push(Move { path, kind: staged.kind, mode, replaces_dir });
                }
            }
        }
        plan.levels.push(Level { dir, moves });
    }
    // The top level comes last: directories that cannot be written to are usually below, and fail before new entries appear.
    if !plan.levels.is_empty() {
        plan.levels.rotate_left(1);
    }
    Ok(plan)
}

async fn rename(machine: &dyn Machine, from: &Target, target: &Target, one: &Move) -> Result<()> {
    let path = OsStr::from_bytes(&one.path);
    let (staged, place) = (below(from, path)?, below(target, path)?);
    if one.replaces_dir {
        machine.remove(&place).await?;
    }
    match machine.rename(&staged, &place).await {
        // The name may be a separate mount, which cannot be replaced; for other causes, writing gives a better error.
        Err(MachineError::File { .. }) if one.kind == EntryKind::File => {
            machine.write(&place.mode(one.mode), machine.read(&staged).await?).await
        }
        renamed => renamed,
    }
}

/// Copies a staged directory into a directory that renames cannot reach.
async fn restage(stage: &Stage<'_>, from: &Target, target: &Target) -> Result<()> {
    stage.sweep(target).await;
    let tar = stage.machine.pack(from, &[]).await?;
    // Recursive through `merge`, once for each mount inside a mount.
    Box::pin(stage.fill(target, tar)).await
}

/// Sets the permission bits of directories by unpacking an archive of them.
async fn set_modes<'a>(
    machine: &dyn Machine,
    root: &Target,
    modes: impl Iterator<Item = (&'a Vec<u8>, u32)>,
) -> Result<()> {
    let mut archive = BytesMut::new();
    for (path, mode) in modes {
        archive.extend_from_slice(&Member::new(Kind::Dir, path, mode).encode());
    }
    archive.extend_from_slice(&tar::end());
    machine.unpack(root, once(archive.freeze())).await
}

/// Whether a rename failed for a reason that may not apply to a file that is created in the directory.
fn is_refusal(error: &MachineError) -> bool {
    matches!(error, MachineError::Denied { .. } | MachineError::File { .. })
}

fn in_the_way(place: Target, found: Option<&DirEntry>) -> MachineError {
    let path = place.path;
    if found.is_some_and(|found| found.kind == EntryKind::Symlink) {
        let reason = "is a symbolic link where a directory is to be copied".to_owned();
        return MachineError::Denied { path, reason };
    }
    MachineError::File { action: "unpack into", path, source: io::ErrorKind::NotADirectory.into() }
}

fn join(dir: &[u8], name: &OsStr) -> Vec<u8> {
    if dir.is_empty() {
        return name.to_owned().into_vec();
    }
    [dir, b"/", name.as_bytes()].concat()
}

fn is_within(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}
