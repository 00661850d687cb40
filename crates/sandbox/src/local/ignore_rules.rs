//! Decides which files of a tree are left out, by given patterns and by the tree's own `.gitignore` files.

use std::path::Path;

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};

/// Bytes of a `.gitignore` file that are read; the rest is ignored.
pub(super) const PATTERN_FILE_LIMIT: u64 = 1 << 20;

/// Patterns that apply to one directory of a walk.
#[derive(Debug, Default)]
pub(super) struct IgnoreRules {
    global: Option<Gitignore>,
    /// `.gitignore` files from the top down, each with its depth.
    nested: Vec<(usize, Gitignore)>,
}

impl IgnoreRules {
    /// Patterns that apply everywhere. An error names the invalid pattern.
    pub(super) fn new(patterns: &[String]) -> Result<Self, String> {
        if patterns.is_empty() {
            return Ok(Self::default());
        }
        let mut builder = GitignoreBuilder::new("");
        for pattern in patterns {
            builder.add_line(None, pattern).map_err(|error| format!("ignore pattern {pattern:?}: {error}"))?;
        }
        Ok(Self { global: Some(builder.build().map_err(|error| error.to_string())?), nested: Vec::new() })
    }

    /// Adds the `.gitignore` of a directory. Invalid lines are skipped, as git does.
    pub(super) fn enter(&mut self, depth: usize, dir: &Path, text: &[u8]) {
        let mut builder = GitignoreBuilder::new(dir);
        for line in String::from_utf8_lossy(text).lines() {
            let _invalid_lines_are_skipped = builder.add_line(None, line);
        }
        if let Ok(patterns) = builder.build() {
            self.nested.push((depth, patterns));
        }
    }

    /// Removes the files at this depth and below it.
    pub(super) fn leave(&mut self, depth: usize) {
        self.nested.retain(|(at, _)| *at < depth);
    }

    /// Whether a path, relative to the tree's root, is left out. The deepest match counts, but global patterns have priority.
    pub(super) fn is_ignored(&self, path: &Path, is_dir: bool) -> bool {
        let all = self.global.iter().chain(self.nested.iter().rev().map(|(_, patterns)| patterns));
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
