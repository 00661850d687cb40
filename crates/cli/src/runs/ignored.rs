//! Which parts of a tree somebody wants ignored: its `.gitignore` and `.ignore` files, and a repository's own list.

use std::{
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::{
    beneath::{DIRECTORY, READING, as_path, read_up_to, regular},
    index::Name,
};
use crate::{failure::without_number, progress::size};

/// The files that say it, in the order of their weight: a later one overrules an earlier one.
pub(super) const RULE_FILES: [&str; 3] = [".git/info/exclude", ".gitignore", ".ignore"];

/// Such a file of somebody's own is not larger than this.
const LARGEST: u64 = 1 << 20;

/// What of a working copy's rules is read: so much of one file and of all of them, and of files no deeper than this. To
/// understand rules takes long, and whoever works there may write as many as they like.
const COPY_LARGEST: u64 = 64 << 10;
const COPY_TOTAL: u64 = 256 << 10;
const COPY_FILES: usize = 1_000;
const COPY_DEPTH: usize = 32;

/// Rules of a repository that a tree is only a part of, from one directory above it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outer {
    /// Where the tree is below that directory.
    below: Name,
    /// What its files of rules say, the one that overrules the others at last.
    rules: String,
}

/// A file of rules that cannot be followed.
#[derive(Debug)]
pub(super) struct Unusable {
    /// Below the tree, or from the root of the file system if it is above the tree.
    pub(super) path: PathBuf,
    pub(super) reason: String,
}

/// How much the rules of a tree count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// They say what must not be copied: one file that cannot be followed, and nothing is.
    Own,
    /// They only say what is not worth showing: where one cannot be followed, everything is shown.
    Copy,
}

/// The rules above a directory, up to the top of the repository it is in; the top comes first. None if it is in none.
pub(super) fn outer(dir: &Path) -> Result<Vec<Outer>, Unusable> {
    let is_top = |dir: &Path| fs::symlink_metadata(dir.join(".git")).is_ok();
    let above: Vec<&Path> = dir.ancestors().skip(1).collect();
    let Some(top) = above.iter().position(|above| is_top(above)).filter(|_| !is_top(dir)) else {
        return Ok(Vec::new());
    };
    let mut outer = Vec::new();
    for above in above[..=top].iter().rev() {
        let mut texts = Vec::new();
        for file in RULE_FILES {
            let path = above.join(file);
            let opened = rustix::fs::open(&path, READING, Mode::empty()).map_err(io::Error::from);
            let text = text_of(opened, LARGEST).and_then(|text| {
                let text = text.map(|text| words(&text));
                text.as_ref().map_or(Ok(None), |text| read(b"", text))?;
                Ok(text)
            });
            texts.extend(text.map_err(|reason| Unusable { path, reason })?);
        }
        let rules = texts.join("\n");
        let below = dir.strip_prefix(above).map(|below| below.as_os_str().as_bytes().to_vec()).unwrap_or_default();
        if !rules.is_empty() {
            read(b"", &rules).map_err(|reason| Unusable { path: above.join(RULE_FILES[1]), reason })?;
            outer.push(Outer { below: Name(below), rules });
        }
    }
    Ok(outer)
}

/// What a file of rules says. As with git, what is missing, a link or no file says nothing.
fn text_of(opened: io::Result<OwnedFd>, limit: u64) -> Result<Option<Vec<u8>>, String> {
    let file = match opened.and_then(regular) {
        Ok((file, _)) => file,
        Err(error) => {
            let harmless = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::NXIO].map(Errno::raw_os_error);
            // Without a number it is something else than a file.
            return match error.raw_os_error() {
                Some(code) if !harmless.contains(&code) => Err(without_number(&error.to_string())),
                _ => Ok(None),
            };
        }
    };
    let text = read_up_to(file, limit + 1).map_err(|error| without_number(&error.to_string()))?;
    if text.len() as u64 > limit {
        return Err(format!("it is larger than {}", size(limit)));
    }
    Ok(Some(text))
}

/// A text of rules without the mark that some editors put at its beginning.
fn words(text: &[u8]) -> String {
    String::from_utf8_lossy(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)).into_owned()
}

/// The rules in force at one directory of a walk.
#[derive(Debug)]
pub(super) struct Ignored {
    trust: Trust,
    /// From the top down, each with the depth it was found at. Where there is none, everything is shown.
    found: Vec<(usize, Option<Gitignore>)>,
    /// How many files were read, and how much of them.
    files: usize,
    bytes: u64,
    /// The same from above the tree, each with where the tree is below it.
    outer: Vec<(Vec<u8>, Gitignore)>,
}

impl Ignored {
    pub(super) fn new(outer: &[Outer], trust: Trust) -> Self {
        // They were understood when they were written down.
        let read = |outer: &Outer| Some((outer.below.0.clone(), read(b"", &outer.rules).ok()??));
        Self { trust, found: Vec::new(), files: 0, bytes: 0, outer: outer.iter().filter_map(read).collect() }
    }

    /// Adds the file of rules that is called so in a directory at this path and depth.
    pub(super) fn enter(&mut self, depth: usize, (dir, path): (&OwnedFd, &[u8]), file: &str) -> Result<(), Unusable> {
        match self.file(depth, (dir, path), file) {
            Ok(rules) => self.found.extend(rules.map(|rules| (depth, Some(rules)))),
            Err(reason) if self.trust == Trust::Own => {
                return Err(Unusable { path: as_path(path).join(file), reason });
            }
            Err(_) => self.found.push((depth, None)),
        }
        Ok(())
    }

    fn file(&mut self, depth: usize, (dir, path): (&OwnedFd, &[u8]), file: &str) -> Result<Option<Gitignore>, String> {
        let limit = match self.trust {
            Trust::Own => LARGEST,
            Trust::Copy if depth > COPY_DEPTH || self.files >= COPY_FILES => {
                return Err("there are too many".to_owned());
            }
            Trust::Copy => COPY_LARGEST.min(COPY_TOTAL - self.bytes),
        };
        let Some(text) = text_of(open(dir, file), limit)? else { return Ok(None) };
        self.files += 1;
        self.bytes = self.bytes.saturating_add(text.len() as u64);
        read(path, &words(&text))
    }

    /// Forgets what was found at this depth and below it.
    pub(super) fn leave(&mut self, depth: usize) {
        self.found.retain(|(at, _)| *at < depth);
    }

    /// Whether these rules name a path relative to the tree's root. The deepest word counts.
    pub(super) fn names(&self, path: &[u8], is_dir: bool) -> bool {
        for (_, rules) in self.found.iter().rev() {
            let Some(rules) = rules else { return false };
            match rules.matched(as_path(path), is_dir) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        for (below, rules) in self.outer.iter().rev() {
            match rules.matched(as_path(&[below, path].join(&b'/')), is_dir) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }
}

/// Opens a file in a directory, through no link.
fn open(dir: &OwnedFd, path: &str) -> io::Result<OwnedFd> {
    let mut at = dir.try_clone()?;
    let mut parts = path.split('/').peekable();
    while let Some(part) = parts.next() {
        let flags: OFlags = if parts.peek().is_some() { DIRECTORY } else { READING };
        at = rustix::fs::openat(at.as_fd(), part, flags, Mode::empty())?;
    }
    Ok(at)
}

/// The rules of a directory, if there are any; faulty lines mean nothing, as with git. All of them may be too much.
fn read(dir: &[u8], text: &str) -> Result<Option<Gitignore>, String> {
    let mut builder = GitignoreBuilder::new(as_path(dir));
    for line in text.lines() {
        let _faulty_lines_mean_nothing = builder.add_line(None, line);
    }
    let rules = builder.build().map_err(|_| "its patterns are too large or too many".to_owned())?;
    Ok((!rules.is_empty()).then_some(rules))
}
