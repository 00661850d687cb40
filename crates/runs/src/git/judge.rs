//! Decides whether a change to a directory touches a git repository, or creates one.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use sandbar_host_files::{ConfinedDir, as_path, at_and_above, name_of, parent_of};

use super::{
    layout::{Layout, is_git, is_part},
    search::{Bounds, Repositories, below, is_repository},
};

/// The paths of a directory that belong to git repositories.
#[derive(Debug, Default)]
pub struct PathJudge {
    own: BTreeSet<Vec<u8>>,
    /// Files of a working tree that git runs or reads as configuration.
    named: BTreeSet<Vec<u8>>,
    /// New paths that would make a directory a repository.
    parts: BTreeSet<Vec<u8>>,
    search_note: Option<String>,
}

impl PathJudge {
    /// Searches a directory in which these paths are about to change.
    pub fn new(target: &ConfinedDir, root: &Path, changed: &[&[u8]]) -> Self {
        let real = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let found = Repositories::search(target, (&real, b""), Bounds::default());
        let search_note = found.search_note(root);
        let named: BTreeSet<Vec<u8>> = found.named.into_iter().map(|path| path.0).collect();
        let own = found.own.into_keys().map(|path| path.0).filter(|path| !named.contains(path));
        let mut own: BTreeSet<Vec<u8>> = own.collect();
        // The parents of changed paths are always checked, even if the search is incomplete.
        let dirs: BTreeSet<&[u8]> = changed.iter().flat_map(|path| at_and_above(path).skip(1)).collect();
        own.extend(dirs.into_iter().filter(|dir| is_repository(&real.join(as_path(dir)))).map(<[u8]>::to_vec));
        Self { own, named, parts: parts(target, changed), search_note }
    }

    /// Why the search of the directory was incomplete.
    pub fn search_note(&self) -> Option<&str> {
        self.search_note.as_deref()
    }

    /// Why a path must not be changed.
    pub fn refusal(&self, path: &[u8]) -> Option<&'static str> {
        match path {
            path if self.is_own(path) => Some("it belongs to a repository"),
            path if at_and_above(path).any(|above| self.parts.contains(above)) => Some("it would make a repository"),
            _ => None,
        }
    }

    /// Whether git runs a path of the working tree, or reads it as configuration.
    pub fn is_tool_file(&self, path: &[u8]) -> bool {
        at_and_above(path).any(|above| self.named.contains(above))
    }

    /// Whether a path belongs to a repository.
    pub fn is_own(&self, path: &[u8]) -> bool {
        is_git(path) || at_and_above(path).any(|above| self.own.contains(above))
    }
}

/// The new paths that, together with existing ones, would make a directory a repository.
fn parts(target: &ConfinedDir, added: &[&[u8]]) -> BTreeSet<Vec<u8>> {
    let mut added_to: BTreeMap<&[u8], BTreeSet<&[u8]>> = BTreeMap::new();
    for path in added {
        for part in at_and_above(path).filter(|path| is_part(name_of(path))) {
            added_to.entry(parent_of(part).unwrap_or_default()).or_default().insert(part);
        }
    }
    let mut parts = BTreeSet::new();
    for (dir, added) in added_to {
        let mut layout = Layout::default();
        added.iter().for_each(|part| layout.add(name_of(part)));
        for part in Layout::PARTS {
            // A path that cannot be read counts as existing.
            if !matches!(target.stat(&below(dir, part.as_bytes())), Ok(None)) {
                layout.add(part.as_bytes());
            }
        }
        if layout.is_repository() {
            parts.extend(added.into_iter().map(<[u8]>::to_vec));
        }
    }
    parts
}
