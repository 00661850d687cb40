//! A manifest as a tree that people and models can read.

use std::{collections::BTreeMap, fmt::Write as _};

use super::Manifest;
use crate::{Entry, WorkspacePath};

/// The longest description, in characters.
const LONGEST: usize = 5000;
/// The most levels that are drawn, whatever is asked for.
const DEEPEST: usize = 64;

#[derive(Default)]
struct Node<'a> {
    children: BTreeMap<&'a str, Node<'a>>,
    description: Option<&'a str>,
    full_path: Option<String>,
    is_dir: bool,
}

struct Line<'a> {
    drawn: String,
    width: usize,
    full_path: String,
    description: Option<&'a str>,
}

impl Manifest {
    /// The entries as a tree down to `depth` levels, with the whole path and description of each; at most 5,000 characters.
    /// It shows what was declared, not what is there by now.
    #[must_use]
    pub fn describe(&self, depth: usize) -> String {
        let depth = depth.min(DEEPEST);
        let root = self.root.to_string();
        let flat = self.flatten();
        let mut top = Node::default();
        for (path, entry) in &flat {
            insert(&mut top, path, entry, depth, mounted_at(self, path, entry));
        }
        let mut lines = Vec::new();
        draw(&top, "", root.trim_end_matches('/'), &mut lines);
        let widest = lines.iter().map(|line| line.width).max().unwrap_or_default();
        let mut text = format!("{root}\n");
        for Line { drawn, width, full_path, description } in lines {
            let gap = " ".repeat(widest - width + 2);
            let about = description.filter(|about| !about.is_empty()).map(|about| format!(" — {}", one_line(about)));
            let _infallible = writeln!(text, "{drawn}{gap}# {full_path}{}", about.unwrap_or_default());
        }
        cut(text)
    }
}

/// Where a mount shows up, which need not be its place in the tree.
fn mounted_at(manifest: &Manifest, path: &WorkspacePath, entry: &Entry) -> Option<String> {
    let point = entry.mount_point()?;
    point.target(&manifest.root, path).ok().map(|target| target.to_string())
}

fn insert<'a>(top: &mut Node<'a>, path: &'a WorkspacePath, entry: &'a Entry, depth: usize, full_path: Option<String>) {
    let parts = path.parts().count();
    let mut node = top;
    for (index, part) in path.parts().take(depth).enumerate() {
        node = node.children.entry(part).or_default();
        node.is_dir |= index + 1 < parts;
    }
    if parts > depth {
        return;
    }
    node.description = node.description.or(entry.attributes().description.as_deref());
    node.full_path = full_path.or(node.full_path.take());
    node.is_dir |= entry.attributes().permissions.directory;
}

fn draw<'a>(node: &Node<'a>, prefix: &str, above: &str, lines: &mut Vec<Line<'a>>) {
    let last = node.children.len().saturating_sub(1);
    for (index, (name, child)) in node.children.iter().enumerate() {
        let (branch, below) = if index == last { ("└── ", "    ") } else { ("├── ", "│   ") };
        let slash = if child.is_dir { "/" } else { "" };
        let name = one_line(name);
        let drawn = format!("{prefix}{branch}{name}{slash}");
        let here = format!("{above}/{name}");
        let full_path = child.full_path.clone().unwrap_or_else(|| here.clone());
        lines.push(Line { width: drawn.chars().count(), drawn, full_path, description: child.description });
        draw(child, &format!("{prefix}{below}"), &here, lines);
    }
}

/// Without anything that could begin a line of its own, and pass for something else there.
fn one_line(text: &str) -> String {
    text.replace(|letter: char| letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}'), " ")
}

/// Cut to the longest description, saying how much is missing and what to do about it.
fn cut(text: String) -> String {
    let length = text.chars().count();
    if length <= LONGEST {
        return text;
    }
    let mut omitted = length - LONGEST;
    loop {
        let notice = format!(
            "\n... (truncated {omitted} chars)\n\nThe filesystem layout above was truncated. \
             Use `ls` to explore specific directories before relying on omitted paths.\n"
        );
        let kept = LONGEST.saturating_sub(notice.chars().count());
        if length - kept == omitted {
            let kept: String = text.chars().take(kept).collect();
            return format!("{}{notice}", kept.trim_end());
        }
        omitted = length - kept;
    }
}
