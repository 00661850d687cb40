//! The body of a file section: the lines of a new file, or the hunks that change one.

use super::{Hunk, HunkLine};
use crate::{Result, SandboxError};

pub(super) const ADD: &str = "*** Add File:";
pub(super) const UPDATE: &str = "*** Update File:";
pub(super) const DELETE: &str = "*** Delete File:";
pub(super) const MOVE: &str = "*** Move to:";
pub(super) const BEGIN: &str = "*** Begin Patch";
pub(super) const END: &str = "*** End Patch";
const END_OF_FILE: &str = "*** End of File";

/// Lines being read, and how many came before them.
pub(super) struct Lines<'t> {
    lines: &'t [&'t str],
    at: usize,
    before: usize,
}

impl<'t> Lines<'t> {
    pub(super) fn new(lines: &'t [&'t str], before: usize) -> Self {
        Self { lines, at: 0, before }
    }

    pub(super) fn peek(&self) -> Option<&'t str> {
        self.lines.get(self.at).copied()
    }

    pub(super) fn skip(&mut self) {
        self.at += 1;
    }

    /// The next line's number, from one.
    pub(super) fn number(&self) -> usize {
        self.before + self.at + 1
    }

    pub(super) fn skip_blank(&mut self) {
        while self.peek().is_some_and(|line| line.trim().is_empty()) {
            self.skip();
        }
    }

    fn first_visible(&self) -> Option<&'t str> {
        self.lines.get(self.at..)?.iter().copied().find(|line| !line.trim().is_empty())
    }
}

/// Whether a line begins another section or ends the patch.
pub(super) fn ends_section(line: &str) -> bool {
    line.trim_end() == END || [ADD, UPDATE, DELETE].iter().any(|header| line.starts_with(header))
}

/// The lines of a new file, up to the end of its section.
pub(super) fn added(lines: &mut Lines<'_>, path: &str) -> Result<Vec<String>> {
    let mut added = Vec::new();
    while let Some(line) = lines.peek() {
        if let Some(text) = line.strip_prefix('+') {
            added.push(text.to_owned());
            lines.skip();
            continue;
        }
        let rest_is_blank = || lines.first_visible().is_none_or(|line| ends_section(line.trim_start()));
        if ends_section(line.trim_start()) || (line.trim().is_empty() && rest_is_blank()) {
            break;
        }
        let reason =
            format!("Invalid Add File Line {}: {line}\nevery line of a new file begins with +", lines.number());
        return Err(SandboxError::apply_patch_invalid_diff(path, reason));
    }
    Ok(added)
}

/// The hunks of a file, up to the end of its section.
pub(super) fn hunks(lines: &mut Lines<'_>, path: &str) -> Result<Vec<Hunk>> {
    let mut hunks = Vec::new();
    loop {
        // Blank lines are context, unless nothing of a hunk follows them.
        if lines.first_visible().is_none_or(|line| line.starts_with("@@") || ends_section(line)) {
            lines.skip_blank();
        }
        let Some(line) = lines.peek() else { return Ok(hunks) };
        if ends_section(line) {
            return Ok(hunks);
        }
        if !hunks.is_empty() && !line.starts_with("@@") {
            let reason = format!("line {}: expected a hunk that begins with @@, got: {line}", lines.number());
            return Err(SandboxError::apply_patch_invalid_diff(path, reason));
        }
        hunks.push(hunk(lines, path)?);
    }
}

fn hunk(lines: &mut Lines<'_>, path: &str) -> Result<Hunk> {
    let mut hunk = Hunk::default();
    while let Some(anchor) = lines.peek().and_then(|line| line.strip_prefix("@@")) {
        let anchor = anchor.strip_prefix(' ').unwrap_or(anchor);
        hunk.anchors.push(if anchor.trim().is_empty() { String::new() } else { anchor.to_owned() });
        lines.skip();
    }
    let refuse = |number: usize, what: &str, line: &str| {
        Err(SandboxError::apply_patch_invalid_diff(path, format!("line {number}: {what}: {line}")))
    };
    while let Some(line) = lines.peek() {
        match line.chars().next() {
            None => hunk.lines.push(HunkLine::Keep(String::new())),
            Some(' ') => hunk.push(&line[1..], HunkLine::Keep),
            Some('-') => hunk.push(&line[1..], HunkLine::Remove),
            Some('+') => hunk.lines.push(HunkLine::Add(line[1..].to_owned())),
            Some('@') if line.starts_with("@@") => break,
            Some('*') if line.starts_with("***") => {
                if ends_section(line) {
                    break;
                }
                match line.trim_end() {
                    END_OF_FILE => hunk.end_of_file = true,
                    "***" => {}
                    _ => return refuse(lines.number(), "Invalid Line", line),
                }
                lines.skip();
                break;
            }
            // What git says about the line before.
            Some('\\') if line.starts_with("\\ No newline") => {}
            Some(_) if line.trim().is_empty() => hunk.lines.push(HunkLine::Keep(String::new())),
            Some(_) => {
                return refuse(lines.number(), "Invalid Line (it must begin with a space, - or +)", line);
            }
        }
        lines.skip();
    }
    if hunk.lines.is_empty() {
        return refuse(lines.number(), "Nothing in this section", lines.peek().unwrap_or(END));
    }
    Ok(hunk)
}

impl Hunk {
    /// Lines that must be found. A lone carriage return ends a line of a file, so it does here.
    fn push(&mut self, text: &str, kind: fn(String) -> HunkLine) {
        self.lines.extend(text.split('\r').map(|line| kind(line.to_owned())));
    }
}
