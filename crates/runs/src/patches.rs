//! Patches to directories of the host: they leave git repositories alone, and an interrupted one can be undone.

use std::{io, path::Path};

use sandbar::{
    SessionOptions,
    client::{ResidentState, UnixLocal},
    sandbox::{
        Intent, Paths,
        patch::{Patch, PatchJournal},
    },
};
use sandbar_host_files::ConfinedDir;

use crate::{
    Error, ErrorKind, Result, StateDir,
    git::{PathJudge, enclosing_repository},
    writable_parent,
};

/// Refuses a patch that changes or creates a git repository in a directory, because git would run its hooks. A patch follows
/// no links, so paths are sufficient. `note` is told if not all of
/// the directory was searched.
pub fn check_patch(dir: &Path, patch: &Patch, paths: &Paths, note: impl FnMut(&str)) -> Result<()> {
    let mut changed = Vec::new();
    for path in patch.paths() {
        // Applying the patch refuses paths that lead out of the directory.
        let Ok(target) = paths.target(path, Intent::Read) else { continue };
        let root = paths.root().as_bytes();
        let below = target.path.as_bytes().strip_prefix(root).and_then(|path| path.strip_prefix(b"/"));
        changed.extend(below.map(<[u8]>::to_vec));
    }
    let failed = |error: io::Error| Error::io(format!("cannot use {}", dir.display()), error);
    let root = dir.canonicalize().map_err(failed)?;
    let target = ConfinedDir::open(&root).map_err(failed)?;
    let judge = PathJudge::new(&target, &root, &changed.iter().map(Vec::as_slice).collect::<Vec<_>>());
    judge.search_note().into_iter().for_each(note);
    let obeyed = |path: &[u8]| judge.is_tool_file(path).then_some("git obeys it");
    let mut refused = changed.iter().filter_map(|path| Some((path, judge.refusal(path).or_else(|| obeyed(path))?)));
    let message = match (refused.next(), enclosing_repository(&root)) {
        (Some((path, reason)), _) => format!("cannot change {}; {reason}", String::from_utf8_lossy(path)),
        (None, Some(repository)) => format!("cannot change files in {}, which belong to git", repository.display()),
        (None, None) => return Ok(()),
    };
    Err(Error::new(ErrorKind::RepositoryPatch, message).with_advice("nothing was changed"))
}

impl StateDir {
    /// Opens the journal of patches to a directory, so that a patch that is killed can be undone. A sandbox that works in the
    /// directory must not be able to forge the records.
    pub fn patch_journal(&self, dir: &Path, sandbox: Option<&SessionOptions>) -> Result<PatchJournal> {
        let directory = self.patches();
        if let Some(place) = sandbox.and_then(|options| writable_parent(&directory.join("journal"), options)) {
            let message = format!("the sandbox can write to {}", place.display());
            return Err(Error::new(ErrorKind::StateDir, message));
        }
        Ok(PatchJournal::open(directory, dir)?.probing(|machine| {
            let machines = UnixLocal::new().machines().unwrap_or_default();
            machines.iter().any(|found| found.id == machine && found.state == ResidentState::Running)
        }))
    }
}
