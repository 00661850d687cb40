//! Where a new link would lead once all changes are applied: never out of the directory, nor into a repository's own.

use std::{collections::BTreeMap, io};

use rustix::fs::FileType;

use super::plan::is_blocked;
use crate::{
    git::{Judge, is_git},
    runs::{
        beneath::{Beneath, parent_of},
        changes::Change,
        index::{Entry, Name},
        unified::quoted,
    },
};

/// A larger file is not brought back.
const LARGEST: u64 = 4 << 30;

/// As many links may be on the way of a link, as the kernel has it, and as many names.
const HOPS: usize = 40;
const NAMES: usize = 512;

/// A directory as it will be.
pub(super) struct Future<'a> {
    pub(super) target: &'a Beneath,
    pub(super) judge: &'a Judge,
    pub(super) by_path: &'a BTreeMap<&'a [u8], &'a Change>,
}

/// Where a way ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Inside,
    Outside,
    Git,
    /// It cannot be told.
    Unknown,
}

impl Future<'_> {
    /// Why something is never brought back.
    pub(super) fn refusal(&self, path: &Name, new: &Entry) -> Option<String> {
        let Entry::Link { to } = new else { return is_too_large(new).then(|| "it is larger than 4G".to_owned()) };
        let shown = quoted("", to);
        if is_git(&to.0) {
            return Some("it is a link to something of a repository's own".to_owned());
        }
        if !stays_inside(&path.0, &to.0) {
            return Some(format!("it is a link that leads out of the directory, to {shown}"));
        }
        match self.end(&path.0, &to.0) {
            End::Inside => None,
            End::Outside => {
                Some(format!("it is a link that leads out of the directory through another one, to {shown}"))
            }
            End::Git => {
                Some(format!("it is a link to something of a repository's own through another one, to {shown}"))
            }
            End::Unknown => Some(format!("it is a link to {shown}, and it cannot be told where that leads")),
        }
    }

    /// Goes the way of a link, name by name and from link to link.
    fn end(&self, path: &[u8], to: &[u8]) -> End {
        let mut at = parent_of(path).unwrap_or_default().to_vec();
        // The names still to come, the next one at last.
        let mut left = names(to);
        let (mut hops, mut seen) = (0, 0);
        // The links whose ways are being gone, each with what comes after it.
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
                // On its own way again: it goes round for ever, and leads nowhere.
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

    /// Where what will be at a path leads, if that is a link.
    fn link(&self, path: &[u8]) -> io::Result<Option<Vec<u8>>> {
        match self.by_path.get(path) {
            Some(Change { new: Some(Entry::Link { to }), .. }) => return Ok(Some(to.0.clone())),
            // What is refused leaves what is there.
            Some(Change { new: Some(new), .. }) if is_too_large(new) => {}
            Some(_) => return Ok(None),
            None => {}
        }
        match self.target.stat(path) {
            Ok(Some(stat)) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
                self.target.link(path).map(Some)
            }
            Ok(_) => Ok(None),
            // What is in the way now is a directory then, with nothing in it but what is new.
            Err(error) if is_blocked(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn is_too_large(entry: &Entry) -> bool {
    matches!(entry, Entry::File { size, .. } if *size > LARGEST)
}

/// The names of a way, the first one at last; one more than are gone is enough.
fn names(way: &[u8]) -> Vec<Vec<u8>> {
    let names = way.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    let mut names: Vec<Vec<u8>> = names.take(NAMES + 1).map(<[u8]>::to_vec).collect();
    names.reverse();
    names
}

/// Whether a link cannot lead out of its tree, whatever other such links its way goes through: it may go up only at its
/// beginning, where its way is through real directories.
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
    fn a_link_goes_up_only_at_its_beginning_and_not_too_far() {
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
