//! A page of documentation: its code blocks, its commands, its links and its headings.

use std::{fs, path::Path};

/// A Markdown file.
pub(crate) struct Page {
    /// Path from the root of the repository.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A fenced block.
#[derive(Debug)]
pub(crate) struct Block {
    /// Line of the opening fence, counted from one.
    pub(crate) line: usize,
    /// The word after the opening fence.
    pub(crate) language: String,
    pub(crate) text: String,
}

impl Page {
    pub(crate) fn read(root: &Path, path: String) -> Self {
        let text = fs::read_to_string(root.join(&path)).expect("a page");
        Self { path, text }
    }

    /// The name of a line in messages.
    pub(crate) fn at(&self, line: usize) -> String {
        format!("{}:{line}", self.path)
    }

    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        for (at, line) in self.text.lines().enumerate() {
            match (line.trim_start().strip_prefix("```"), open.as_mut()) {
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(language), None) => {
                    open = Some(Block { line: at + 1, language: language.to_owned(), text: String::new() });
                }
                (None, Some(block)) => block.text += &format!("{line}\n"),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block has no end", self.path);
        blocks
    }

    /// Every text that may hold a command, with its line: lines of transcripts after `$ `, and code in prose.
    pub(crate) fn commands(&self) -> Vec<(usize, String)> {
        let mut commands = Vec::new();
        let mut in_block = false;
        for (at, line) in self.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                in_block = !in_block;
            } else if in_block {
                commands.extend(line.strip_prefix("$ ").map(|command| (at + 1, command.to_owned())));
            } else {
                let code = line.split('`').skip(1).step_by(2);
                let code = code.filter(|code| code.starts_with("sandbar ") || code.starts_with("--"));
                commands.extend(code.map(|code| (at + 1, code.to_owned())));
            }
        }
        commands
    }
}

/// Targets of the links of a text, with their lines. Code blocks have none.
pub(crate) fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_block = false;
    let prose = text.lines().enumerate().filter(move |(_, line)| {
        in_block ^= line.starts_with("```");
        !in_block
    });
    prose
        .flat_map(|(at, line)| line.split("](").skip(1).filter_map(move |rest| Some((at + 1, rest.split(')').next()?))))
}

/// The anchors of the headings of a text, as GitHub and mdBook make them.
pub(crate) fn anchors(text: &str) -> impl Iterator<Item = String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_');
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}
