//! Which parts of a tree stay behind: patterns in the language of `.gitignore`, the tree's own files of that name too.

use std::path::Path;

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};

/// A pattern file may be this large; a larger one is read up to here.
pub(super) const PATTERN_FILE_LIMIT: u64 = 1 << 20;

/// The patterns in force at one directory of a walk.
#[derive(Debug, Default)]
pub(super) struct Ignored {
    given: Option<Gitignore>,
    /// The `.gitignore` files from the top down, each with the depth it was found at.
    found: Vec<(usize, Gitignore)>,
}

impl Ignored {
    /// Patterns that hold everywhere; a faulty one is an error that names it.
    pub(super) fn new(patterns: &[String]) -> Result<Self, String> {
        if patterns.is_empty() {
            return Ok(Self::default());
        }
        let mut builder = GitignoreBuilder::new("");
        for pattern in patterns {
            builder.add_line(None, pattern).map_err(|error| format!("ignore pattern {pattern:?}: {error}"))?;
        }
        Ok(Self { given: Some(builder.build().map_err(|error| error.to_string())?), found: Vec::new() })
    }

    /// Adds the `.gitignore` of a directory; faulty lines are passed over, as git does.
    pub(super) fn enter(&mut self, depth: usize, dir: &Path, text: &[u8]) {
        let mut builder = GitignoreBuilder::new(dir);
        for line in String::from_utf8_lossy(text).lines() {
            let _faulty_lines_mean_nothing = builder.add_line(None, line);
        }
        if let Ok(patterns) = builder.build() {
            self.found.push((depth, patterns));
        }
    }

    /// Forgets what was found at this depth and below it.
    pub(super) fn leave(&mut self, depth: usize) {
        self.found.retain(|(at, _)| *at < depth);
    }

    /// Whether a path, relative to the tree's root, stays behind. The deepest word counts; the given patterns have the last.
    pub(super) fn is_ignored(&self, path: &Path, is_dir: bool) -> bool {
        let all = self.given.iter().chain(self.found.iter().rev().map(|(_, patterns)| patterns));
        for patterns in all {
            match patterns.matched(path, is_dir) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }
}
