//! Whether a change to a directory would touch a repository, or make one.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{
    layout::{Layout, is_git, is_part},
    search::{Bounds, Repositories, below, is_repository},
};
use crate::runs::beneath::{Beneath, as_path, at_and_above, name_of, parent_of};

/// What must not be changed in a directory, as far as git is concerned.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    own: BTreeSet<Vec<u8>>,
    /// What is part of a working tree, and git obeys.
    named: BTreeSet<Vec<u8>>,
    /// What would make a directory a repository.
    parts: BTreeSet<Vec<u8>>,
    /// What could not be looked at.
    pub(crate) note: Option<String>,
}

impl Judge {
    /// Looks through a directory in which all of these paths are to be changed.
    pub(crate) fn new(target: &Beneath, root: &Path, changed: &[&[u8]]) -> Self {
        let real = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let found = Repositories::search(target, (&real, b""), Bounds::default());
        let note = found.blind_spot(root);
        let named: BTreeSet<Vec<u8>> = found.named.into_iter().map(|path| path.0).collect();
        let own = found.own.into_keys().map(|path| path.0).filter(|path| !named.contains(path));
        let mut own: BTreeSet<Vec<u8>> = own.collect();
        // Wherever something changes it is looked, however large the rest is.
        let dirs: BTreeSet<&[u8]> = changed.iter().flat_map(|path| at_and_above(path).skip(1)).collect();
        own.extend(dirs.into_iter().filter(|dir| is_repository(&real.join(as_path(dir)))).map(<[u8]>::to_vec));
        Self { own, named, parts: parts(target, changed), note }
    }

    /// Why a path is not to be changed.
    pub(crate) fn refusal(&self, path: &[u8]) -> Option<&'static str> {
        match path {
            path if self.is_own(path) => Some("it belongs to a repository"),
            path if at_and_above(path).any(|above| self.parts.contains(above)) => Some("it would make a repository"),
            _ => None,
        }
    }

    /// Whether a path is part of a working tree that git reads as configuration or runs.
    pub(crate) fn is_obeyed(&self, path: &[u8]) -> bool {
        at_and_above(path).any(|above| self.named.contains(above))
    }

    /// Whether a path belongs to a repository.
    pub(crate) fn is_own(&self, path: &[u8]) -> bool {
        is_git(path) || at_and_above(path).any(|above| self.own.contains(above))
    }
}

/// What among new paths would, with what is there, make a directory a repository.
fn parts(target: &Beneath, added: &[&[u8]]) -> BTreeSet<Vec<u8>> {
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
            // What cannot be looked at counts as there.
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
