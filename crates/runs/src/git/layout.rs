//! Names that make a directory a git repository: `.git`, or the files of one.

use std::collections::{BTreeMap, BTreeSet};

use sandbar_host_files::{name_of, parent_of};

/// Which parts of a repository a directory has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    head: bool,
    objects: bool,
    refs: bool,
    /// The pointer to the rest, in a worktree's part of a repository.
    common: bool,
}

impl Layout {
    pub(super) const PARTS: [&'static str; 4] = ["HEAD", "objects", "refs", "commondir"];

    /// Adds a name in the directory. Case is ignored, as some file systems do.
    pub(super) fn add(&mut self, name: &[u8]) {
        let parts = [&mut self.head, &mut self.objects, &mut self.refs, &mut self.common];
        for (part, known) in Self::PARTS.iter().zip(parts) {
            *known |= name.eq_ignore_ascii_case(part.as_bytes());
        }
    }

    /// Whether git takes the directory for a repository. The kinds of the parts do not matter: git follows links here.
    pub(super) fn is_repository(self) -> bool {
        self.head && (self.common || (self.objects && self.refs))
    }
}

/// Whether a name is a part of a repository.
pub(crate) fn is_part(name: &[u8]) -> bool {
    Layout::PARTS.iter().any(|part| name.eq_ignore_ascii_case(part.as_bytes()))
}

/// Whether any component of a path is `.git`, without case.
pub(crate) fn is_git(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|part| part.eq_ignore_ascii_case(b".git"))
}

/// The parents of these paths that are repositories.
pub(crate) fn repositories<'a>(paths: impl Iterator<Item = &'a [u8]>) -> BTreeSet<Vec<u8>> {
    let mut layouts: BTreeMap<&[u8], Layout> = BTreeMap::new();
    for path in paths.filter(|path| is_part(name_of(path))) {
        layouts.entry(parent_of(path).unwrap_or_default()).or_default().add(name_of(path));
    }
    layouts.into_iter().filter(|(_, layout)| layout.is_repository()).map(|(path, _)| path.to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_a_git_component_belongs_to_a_repository() {
        for path in [".git", ".git/config", "a/.git/hooks/x", "a/.GIT"] {
            assert!(is_git(path.as_bytes()), "{path}");
        }
        for path in [".gitignore", "a/git", "x.git/y"] {
            assert!(!is_git(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn a_directory_with_all_parts_is_a_repository() {
        let found = |paths: &[&str]| {
            let found = repositories(paths.iter().map(|path| path.as_bytes()));
            found.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(found(&["HEAD", "objects", "refs"]), [""]);
        assert_eq!(found(&["a/HEAD", "a/objects", "b/refs", "c/d/head", "c/d/Objects", "c/d/refs"]), ["c/d"]);
        assert_eq!(found(&["w/HEAD", "w/commondir", "x/commondir"]), ["w"]);
        assert!(found(&["a/HEAD", "a/refs", "a/object"]).is_empty());
    }
}
