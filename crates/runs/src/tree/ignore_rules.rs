//! Ignore rules of a tree: `.gitignore` and `.ignore` files, and the exclude list of a repository.

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

use super::confined_dir::{DIRECTORY, READING, as_path, read_up_to, regular};
use crate::{describe, format_size, index::PathBytes};

/// Files with ignore rules. A later one overrules an earlier one.
pub(crate) const RULE_FILES: [&str; 3] = [".git/info/exclude", ".gitignore", ".ignore"];

/// Largest ignore file of a trusted tree.
const LARGEST: u64 = 1 << 20;

/// Limits for ignore files of a working copy, which an agent may write: compiling patterns takes time.
const COPY_LARGEST: u64 = 64 << 10;
const COPY_TOTAL: u64 = 256 << 10;
const COPY_FILES: usize = 1_000;
const COPY_DEPTH: usize = 32;

/// Ignore rules from one directory above the tree, in the same repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OuterRules {
    /// Path of the tree below that directory.
    below: PathBytes,
    /// Concatenated ignore files of that directory; the strongest comes last.
    rules: String,
}

/// An ignore file that cannot be followed.
#[derive(Debug)]
pub(crate) struct RuleFileError {
    /// Path below the tree, or an absolute path if the file is above the tree.
    pub(crate) path: PathBuf,
    pub(crate) reason: String,
}

/// How to treat ignore files that cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The rules say what must not be copied: an ignore file that cannot be followed is an error.
    Source,
    /// The rules only shorten a listing: where one cannot be followed, nothing is ignored.
    Copy,
}

/// The rules above a directory, up to the top of its repository; the top comes first.
pub(crate) fn outer(dir: &Path) -> Result<Vec<OuterRules>, RuleFileError> {
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
                let text = text.map(|text| without_bom(&text));
                text.as_ref().map_or(Ok(None), |text| read(b"", text))?;
                Ok(text)
            });
            texts.extend(text.map_err(|reason| RuleFileError { path, reason })?);
        }
        let rules = texts.join("\n");
        let below = dir.strip_prefix(above).map(|below| below.as_os_str().as_bytes().to_vec()).unwrap_or_default();
        if !rules.is_empty() {
            read(b"", &rules).map_err(|reason| RuleFileError { path: above.join(RULE_FILES[1]), reason })?;
            outer.push(OuterRules { below: PathBytes(below), rules });
        }
    }
    Ok(outer)
}

/// The text of an ignore file. As in git, a missing file, a link or a non-file has no rules.
fn text_of(opened: io::Result<OwnedFd>, limit: u64) -> Result<Option<Vec<u8>>, String> {
    let file = match opened.and_then(regular) {
        Ok((file, _)) => file,
        Err(error) => {
            let harmless = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::NXIO].map(Errno::raw_os_error);
            // No error number: the path is not a regular file.
            return match error.raw_os_error() {
                Some(code) if !harmless.contains(&code) => Err(describe(&error)),
                _ => Ok(None),
            };
        }
    };
    let text = read_up_to(file, limit + 1).map_err(|error| describe(&error))?;
    if text.len() as u64 > limit {
        return Err(format!("it is larger than {}", format_size(limit)));
    }
    Ok(Some(text))
}

/// The text without a byte order mark.
fn without_bom(text: &[u8]) -> String {
    String::from_utf8_lossy(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)).into_owned()
}

/// The rules that apply at one directory of a walk.
#[derive(Debug)]
pub(crate) struct IgnoreRules {
    trust: Trust,
    /// Rules from the top down, each with its depth. `None`: nothing is ignored from here on.
    levels: Vec<(usize, Option<Gitignore>)>,
    /// Ignore files and bytes read so far.
    files: usize,
    bytes: u64,
    /// Rules from above the tree, each with the path of the tree below it.
    outer: Vec<(Vec<u8>, Gitignore)>,
}

impl IgnoreRules {
    pub(crate) fn new(outer: &[OuterRules], trust: Trust) -> Self {
        // These rules were valid when they were saved.
        let read = |outer: &OuterRules| Some((outer.below.0.clone(), read(b"", &outer.rules).ok()??));
        Self { trust, levels: Vec::new(), files: 0, bytes: 0, outer: outer.iter().filter_map(read).collect() }
    }

    /// Adds an ignore file of the directory at this path and depth.
    pub(crate) fn enter(
        &mut self,
        depth: usize,
        (dir, path): (&OwnedFd, &[u8]),
        file: &str,
    ) -> Result<(), RuleFileError> {
        match self.file(depth, (dir, path), file) {
            Ok(rules) => self.levels.extend(rules.map(|rules| (depth, Some(rules)))),
            Err(reason) if self.trust == Trust::Source => {
                return Err(RuleFileError { path: as_path(path).join(file), reason });
            }
            Err(_) => self.levels.push((depth, None)),
        }
        Ok(())
    }

    fn file(&mut self, depth: usize, (dir, path): (&OwnedFd, &[u8]), file: &str) -> Result<Option<Gitignore>, String> {
        let limit = match self.trust {
            Trust::Source => LARGEST,
            Trust::Copy if depth > COPY_DEPTH || self.files >= COPY_FILES => {
                return Err("there are too many".to_owned());
            }
            Trust::Copy => COPY_LARGEST.min(COPY_TOTAL - self.bytes),
        };
        let Some(text) = text_of(open(dir, file), limit)? else { return Ok(None) };
        self.files += 1;
        self.bytes = self.bytes.saturating_add(text.len() as u64);
        read(path, &without_bom(&text))
    }

    /// Drops the rules of this depth and below.
    pub(crate) fn leave(&mut self, depth: usize) {
        self.levels.retain(|(at, _)| *at < depth);
    }

    /// Whether a path below the root is ignored. The deepest matching rule decides.
    pub(crate) fn matches(&self, path: &[u8], is_dir: bool) -> bool {
        for (_, rules) in self.levels.iter().rev() {
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

/// Opens a file below a directory without following links.
fn open(dir: &OwnedFd, path: &str) -> io::Result<OwnedFd> {
    let mut at = dir.try_clone()?;
    let mut parts = path.split('/').peekable();
    while let Some(part) = parts.next() {
        let flags: OFlags = if parts.peek().is_some() { DIRECTORY } else { READING };
        at = rustix::fs::openat(at.as_fd(), part, flags, Mode::empty())?;
    }
    Ok(at)
}

/// Compiles the rules of one directory. As in git, faulty lines are skipped.
fn read(dir: &[u8], text: &str) -> Result<Option<Gitignore>, String> {
    let mut builder = GitignoreBuilder::new(as_path(dir));
    for line in text.lines() {
        let _faulty_lines_mean_nothing = builder.add_line(None, line);
    }
    let rules = builder.build().map_err(|_| "its patterns are too large or too many".to_owned())?;
    Ok((!rules.is_empty()).then_some(rules))
}
