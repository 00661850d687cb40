//! Refuses new links that, once all changes are applied, lead out of the directory or into a git repository.

use std::{collections::BTreeMap, io};

use rustix::fs::FileType;
use sandbar_host_files::{ConfinedDir, parent_of};

use super::plan::is_blocked;
use crate::{
    diff::{Change, quoted},
    git::{PathJudge, is_git},
    index::{IndexEntry, PathBytes},
};

/// Largest file that is applied.
const LARGEST: u64 = 4 << 30;

/// Maximum number of links (as in the kernel) and of components on the way of a link.
const HOPS: usize = 40;
const NAMES: usize = 512;

/// The destination as it will be after the commit.
pub(super) struct FutureTree<'a> {
    pub(super) target: &'a ConfinedDir,
    pub(super) judge: &'a PathJudge,
    pub(super) by_path: &'a BTreeMap<&'a [u8], &'a Change>,
}

/// Where a link leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Inside,
    Outside,
    Git,
    /// The target cannot be determined.
    Unknown,
}

impl FutureTree<'_> {
    /// Why an entry is never applied.
    pub(super) fn refusal(&self, path: &PathBytes, new: &IndexEntry) -> Option<String> {
        let IndexEntry::Link { to } = new else { return is_too_large(new).then(|| "it is larger than 4G".to_owned()) };
        let shown = quoted("", to);
        if is_git(&to.0) {
            return Some("it is a link into a git repository".to_owned());
        }
        if !stays_inside(&path.0, &to.0) {
            return Some(format!("it is a link that leads out of the directory, to {shown}"));
        }
        match self.end(&path.0, &to.0) {
            End::Inside => None,
            End::Outside => {
                Some(format!("it is a link that leads out of the directory through another one, to {shown}"))
            }
            End::Git => Some(format!("it is a link into a git repository through another one, to {shown}")),
            End::Unknown => Some(format!("it is a link to {shown}, whose end cannot be determined")),
        }
    }

    /// Follows a link, component by component.
    fn end(&self, path: &[u8], to: &[u8]) -> End {
        let mut at = parent_of(path).unwrap_or_default().to_vec();
        // Remaining components; the next one comes last.
        let mut left = names(to);
        let (mut hops, mut seen) = (0, 0);
        // Links that are being followed, each with the number of components after it.
        let mut begun: Vec<(Vec<u8>, usize)> = Vec::new();
        while let Some(name) = left.pop() {
            begun.retain(|(_, after)| *after <= left.len());
            seen += 1;
            if seen > NAMES {
                return End::Unknown;
            }
            if name == b".." {
                if at.is_empty() {
                    return End::Outside;
                }
                at = parent_of(&at).unwrap_or_default().to_vec();
                continue;
            }
            let above = at.len();
            if above > 0 {
                at.push(b'/');
            }
            at.extend_from_slice(&name);
            if self.judge.is_own(&at) {
                return End::Git;
            }
            match self.link(&at) {
                Ok(None) => {}
                Ok(Some(to)) if to.first() == Some(&b'/') => return End::Outside,
                // A loop leads nowhere.
                Ok(Some(_)) if begun.iter().any(|(link, _)| *link == at) => return End::Inside,
                Ok(Some(to)) => {
                    hops += 1;
                    begun.push((at.clone(), left.len()));
                    if hops > HOPS {
                        return End::Unknown;
                    }
                    at.truncate(above);
                    left.append(&mut names(&to));
                }
                Err(_) => return End::Unknown,
            }
        }
        End::Inside
    }

    /// The target of a future link at a path.
    fn link(&self, path: &[u8]) -> io::Result<Option<Vec<u8>>> {
        match self.by_path.get(path) {
            Some(Change { new: Some(IndexEntry::Link { to }), .. }) => return Ok(Some(to.0.clone())),
            // A refused change leaves the existing file.
            Some(Change { new: Some(new), .. }) if is_too_large(new) => {}
            Some(_) => return Ok(None),
            None => {}
        }
        match self.target.stat(path) {
            Ok(Some(stat)) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
                self.target.link(path).map(Some)
            }
            Ok(_) => Ok(None),
            // The blocking file becomes a directory that contains only new entries.
            Err(error) if is_blocked(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn is_too_large(entry: &IndexEntry) -> bool {
    matches!(entry, IndexEntry::File { size, .. } if *size > LARGEST)
}

/// The components of a path in reverse order, at most one more than the limit.
fn names(way: &[u8]) -> Vec<Vec<u8>> {
    let names = way.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    let mut names: Vec<Vec<u8>> = names.take(NAMES + 1).map(<[u8]>::to_vec).collect();
    names.reverse();
    names
}

/// Whether a link cannot leave its tree, even through other such links: `..` is allowed only at its start, where the parents
/// are real directories.
fn stays_inside(path: &[u8], to: &[u8]) -> bool {
    let mut height = path.iter().filter(|byte| **byte == b'/').count();
    let mut is_going_up = true;
    if to.is_empty() || to[0] == b'/' {
        return false;
    }
    for part in to.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if is_going_up && height > 0 => height -= 1,
            b".." => return false,
            _ => is_going_up = false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_may_go_up_only_at_its_start_and_within_the_tree() {
        for (path, to) in [("a", "b"), ("a", "b/c"), ("d/a", "../b"), ("d/e/a", "../../b/c"), ("a", "./b"), ("a", ".")]
        {
            assert!(stays_inside(path.as_bytes(), to.as_bytes()), "{path} -> {to}");
        }
        for (path, to) in [
            ("a", "/etc/passwd"),
            ("a", ".."),
            ("a", "../b"),
            ("d/a", "../../b"),
            ("d/a", "b/../../c"),
            // Through a link to the top this would lead out.
            ("d/e/a", "../../top/../x"),
            ("a", ""),
        ] {
            assert!(!stays_inside(path.as_bytes(), to.as_bytes()), "{path} -> {to}");
        }
    }
}
