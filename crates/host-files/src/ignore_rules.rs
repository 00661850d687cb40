//! Ignore rules of a tree: given patterns, `.gitignore` and `.ignore` files, and the exclude list of a repository.

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

use super::confined_dir::{DIRECTORY, READING, as_path, read_up_to, regular};

/// Files with the rules of a repository. A later one overrules an earlier one.
const REPOSITORY_FILES: [&str; 3] = [".git/info/exclude", GITIGNORE, ".ignore"];

const GITIGNORE: &str = ".gitignore";

/// Largest ignore file of a trusted tree.
const LARGEST: u64 = 1 << 20;

/// Limits for ignore files of a working copy, which an agent may write: compiling patterns takes time.
const COPY_LARGEST: u64 = 64 << 10;
const COPY_TOTAL: u64 = 256 << 10;
const COPY_FILES: usize = 1_000;
const COPY_DEPTH: usize = 32;

/// Which files of a tree contain ignore rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// No files: only given patterns apply.
    #[default]
    None,
    /// The `.gitignore` files. Rules apply to `.git` as to every other directory.
    GitIgnore,
    /// The exclude list of a repository, `.gitignore` and `.ignore` files. No rules apply to `.git`.
    Repository,
}

/// How to treat ignore files that cannot be followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// The rules say what must not be copied: an ignore file that cannot be followed is an error.
    #[default]
    Source,
    /// The rules only shorten a listing: where one cannot be followed, nothing is ignored.
    Copy,
    /// The rules are a hint: of a large file the beginning counts, and an unreadable file has no rules.
    Hint,
}

/// The rules of a walk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules<'a> {
    /// Which files of the tree contain rules.
    pub dialect: Dialect,
    /// How to treat files that cannot be followed.
    pub trust: Trust,
    /// Rules from above the tree, which are weaker than those of the tree.
    pub outer: &'a [OuterRules],
    /// Patterns that are stronger than those of the tree.
    pub patterns: Option<&'a Patterns>,
}

/// Patterns in `.gitignore` syntax that apply to a whole tree.
#[derive(Clone, Debug)]
pub struct Patterns(Gitignore);

impl Patterns {
    /// Compiles patterns. The error names the invalid one.
    pub fn new(patterns: &[String]) -> Result<Self, String> {
        let mut builder = GitignoreBuilder::new("");
        for pattern in patterns {
            builder.add_line(None, pattern).map_err(|error| format!("ignore pattern {pattern:?}: {error}"))?;
        }
        builder.build().map(Self).map_err(|error| error.to_string())
    }
}

/// Ignore rules from one directory above the tree, in the same repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OuterRules {
    /// Path of the tree below that directory.
    pub below: Vec<u8>,
    /// Concatenated ignore files of that directory; the strongest comes last.
    pub rules: String,
}

/// An ignore file that cannot be followed.
#[derive(Debug)]
pub struct RuleFileError {
    /// Path below the tree, or an absolute path if the file is above the tree.
    pub path: PathBuf,
    /// Why the file cannot be followed.
    pub problem: RuleProblem,
}

/// Why an ignore file cannot be followed.
#[derive(Debug)]
pub enum RuleProblem {
    /// The file cannot be read.
    Unreadable(io::Error),
    /// The file is larger than this number of bytes.
    TooLarge(u64),
    /// The tree has more ignore files than a working copy may have.
    TooManyFiles,
    /// The patterns cannot be compiled: they are too large or too many.
    Patterns,
}

/// The rules above a directory, up to the top of its repository; the top comes first.
pub fn outer_rules(dir: &Path) -> Result<Vec<OuterRules>, RuleFileError> {
    let is_top = |dir: &Path| fs::symlink_metadata(dir.join(".git")).is_ok();
    let above: Vec<&Path> = dir.ancestors().skip(1).collect();
    let Some(top) = above.iter().position(|above| is_top(above)).filter(|_| !is_top(dir)) else {
        return Ok(Vec::new());
    };
    let mut outer = Vec::new();
    for above in above[..=top].iter().rev() {
        let mut texts = Vec::new();
        for file in REPOSITORY_FILES {
            let path = above.join(file);
            let opened = rustix::fs::open(&path, READING, Mode::empty()).map_err(io::Error::from);
            let text = text_of(opened, LARGEST, Trust::Source).and_then(|text| {
                let text = text.map(|text| without_bom(&text));
                text.as_ref().map_or(Ok(None), |text| compile(b"", text))?;
                Ok(text)
            });
            texts.extend(text.map_err(|problem| RuleFileError { path, problem })?);
        }
        let rules = texts.join("\n");
        let below = dir.strip_prefix(above).map(|below| below.as_os_str().as_bytes().to_vec()).unwrap_or_default();
        if !rules.is_empty() {
            let path = || above.join(GITIGNORE);
            compile(b"", &rules).map_err(|problem| RuleFileError { path: path(), problem })?;
            outer.push(OuterRules { below, rules });
        }
    }
    Ok(outer)
}

/// The text of an ignore file. As in git, a missing file, a link or a non-file has no rules.
fn text_of(opened: io::Result<OwnedFd>, limit: u64, trust: Trust) -> Result<Option<Vec<u8>>, RuleProblem> {
    let file = match opened.and_then(regular) {
        Ok((file, _)) => file,
        Err(error) => {
            let harmless = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::NXIO].map(Errno::raw_os_error);
            // No error number: the path is not a regular file.
            return match error.raw_os_error() {
                Some(code) if !harmless.contains(&code) => Err(RuleProblem::Unreadable(error)),
                _ => Ok(None),
            };
        }
    };
    let mut text = read_up_to(file, limit + 1).map_err(RuleProblem::Unreadable)?;
    if text.len() as u64 > limit {
        if trust != Trust::Hint {
            return Err(RuleProblem::TooLarge(limit));
        }
        text.pop();
    }
    Ok(Some(text))
}

/// The text without a byte order mark.
fn without_bom(text: &[u8]) -> String {
    String::from_utf8_lossy(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)).into_owned()
}

/// The rules that apply at one directory of a walk.
#[derive(Debug)]
pub(crate) struct IgnoreRules<'a> {
    dialect: Dialect,
    trust: Trust,
    /// Rules that are stronger than those of the tree.
    patterns: Option<&'a Patterns>,
    /// Rules from the top down, each with its depth. `None`: nothing is ignored from here on.
    levels: Vec<(usize, Option<Gitignore>)>,
    /// Ignore files and bytes read so far.
    files: usize,
    bytes: u64,
    /// Rules from above the tree, each with the path of the tree below it.
    outer: Vec<(&'a [u8], Gitignore)>,
}

impl<'a> IgnoreRules<'a> {
    pub(crate) fn new(rules: &Rules<'a>) -> Self {
        // These rules were valid when they were saved.
        let compiled = |outer: &'a OuterRules| Some((outer.below.as_slice(), compile(b"", &outer.rules).ok()??));
        Self {
            dialect: rules.dialect,
            trust: rules.trust,
            patterns: rules.patterns,
            levels: Vec::new(),
            files: 0,
            bytes: 0,
            outer: rules.outer.iter().filter_map(compiled).collect(),
        }
    }

    /// The files that contain rules. A later one overrules an earlier one.
    pub(crate) fn files(&self) -> &'static [&'static str] {
        match self.dialect {
            Dialect::None => &[],
            Dialect::GitIgnore => &[GITIGNORE],
            Dialect::Repository => &REPOSITORY_FILES,
        }
    }

    /// Whether no rules apply to entries of this name and below them.
    pub(crate) fn exempts(&self, name: &[u8]) -> bool {
        self.dialect == Dialect::Repository && name == b".git"
    }

    /// Adds an ignore file of the directory at this path and depth.
    pub(crate) fn enter(
        &mut self,
        depth: usize,
        (dir, path): (&OwnedFd, &[u8]),
        file: &str,
    ) -> Result<(), RuleFileError> {
        match (self.file(depth, (dir, path), file), self.trust) {
            (Ok(rules), _) => self.levels.extend(rules.map(|rules| (depth, Some(rules)))),
            (Err(problem), Trust::Source) => return Err(RuleFileError { path: as_path(path).join(file), problem }),
            (Err(_), Trust::Copy) => self.levels.push((depth, None)),
            (Err(_), Trust::Hint) => {}
        }
        Ok(())
    }

    fn file(
        &mut self,
        depth: usize,
        (dir, path): (&OwnedFd, &[u8]),
        file: &str,
    ) -> Result<Option<Gitignore>, RuleProblem> {
        let limit = match self.trust {
            Trust::Source | Trust::Hint => LARGEST,
            Trust::Copy if depth > COPY_DEPTH || self.files >= COPY_FILES => return Err(RuleProblem::TooManyFiles),
            Trust::Copy => COPY_LARGEST.min(COPY_TOTAL - self.bytes),
        };
        let Some(text) = text_of(open(dir, file), limit, self.trust)? else { return Ok(None) };
        self.files += 1;
        self.bytes = self.bytes.saturating_add(text.len() as u64);
        compile(path, &without_bom(&text))
    }

    /// Drops the rules of this depth and below.
    pub(crate) fn leave(&mut self, depth: usize) {
        self.levels.retain(|(at, _)| *at < depth);
    }

    /// Whether a path below the root is ignored: by the given patterns, else by the deepest rule that matches.
    pub(crate) fn matches(&self, path: &[u8], is_dir: bool) -> bool {
        if let Some(is_ignored) = self.patterns.and_then(|patterns| decision(&patterns.0, path, is_dir)) {
            return is_ignored;
        }
        for (_, rules) in self.levels.iter().rev() {
            let Some(rules) = rules else { return false };
            if let Some(is_ignored) = decision(rules, path, is_dir) {
                return is_ignored;
            }
        }
        let mut outer = self.outer.iter().rev();
        outer.find_map(|(below, rules)| decision(rules, &[*below, path].join(&b'/'), is_dir)).unwrap_or(false)
    }
}

/// Whether these rules ignore a path or include it; `None` if no rule matches.
fn decision(rules: &Gitignore, path: &[u8], is_dir: bool) -> Option<bool> {
    match rules.matched(as_path(path), is_dir) {
        Match::Ignore(_) => Some(true),
        Match::Whitelist(_) => Some(false),
        Match::None => None,
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
fn compile(dir: &[u8], text: &str) -> Result<Option<Gitignore>, RuleProblem> {
    let mut builder = GitignoreBuilder::new(as_path(dir));
    for line in text.lines() {
        let _faulty_lines_mean_nothing = builder.add_line(None, line);
    }
    let rules = builder.build().map_err(|_| RuleProblem::Patterns)?;
    Ok((!rules.is_empty()).then_some(rules))
}
