//! Hunks put in their places: the new text of one file, decided before anything is written.

use std::borrow::Cow;

use super::{
    Ending, Hunk, HunkLine, Profile, nearest,
    search::{Pass, Work, find, stands_at, stands_before},
    text::{Edit, Finish, Split, Text},
};
use crate::{Result, SandboxError, SecretMask};

/// What the engine must know besides the text and the hunks.
#[derive(Clone, Copy)]
pub(super) struct Rules<'p> {
    pub(super) profile: Profile,
    /// The file's path, for messages.
    pub(super) path: &'p str,
    /// How lines end in a file that has no ending yet.
    pub(super) ending: Ending,
    /// Hides secret values in lines that a message quotes.
    pub(super) mask: Option<&'p SecretMask>,
}

impl Rules<'_> {
    fn hide<'l>(&self, line: &'l str) -> Cow<'l, str> {
        self.mask.map_or(Cow::Borrowed(line), |mask| mask.hide(line))
    }
}

/// Applies all hunks, or with an error none.
pub(super) fn patch(text: &mut Text, hunks: &[Hunk], rules: Rules<'_>, work: &mut Work) -> Result<()> {
    let mut placing = Placing { text, rules, work, cursor: 0, edits: Vec::new() };
    for hunk in hunks {
        placing.place(hunk)?;
    }
    let mut edits = placing.edits;
    edits.sort_by_key(|edit| edit.at);
    let more: usize = edits.iter().flat_map(|edit| &edit.added).map(|line| line.len() + SPAN).sum();
    work.copy(more + text.len() * SPAN)?;
    let ending = match rules.profile {
        Profile::Codex => Ending::Lf,
        Profile::Sdk => rules.ending,
    };
    let style = text.style(rules.profile).unwrap_or(ending);
    let stays_open = rules.profile == Profile::Sdk && text.is_open();
    let split = text.change(&edits, style, if stays_open { Finish::Open } else { Finish::Closed });
    if split == Split::Stale {
        work.split(text.size())?;
        text.again();
    }
    Ok(())
}

/// What is moved per line when lines are put in or taken out.
const SPAN: usize = 24;

/// How much of what was not found is repeated.
const CLIP_LINES: usize = 40;
const CLIP_BYTES: usize = 4096;

struct Placing<'t, 'h> {
    text: &'t Text,
    rules: Rules<'t>,
    work: &'t mut Work,
    /// The first line that a hunk may still touch.
    cursor: usize,
    edits: Vec<Edit<'h>>,
}

impl<'h> Placing<'_, 'h> {
    fn place(&mut self, hunk: &'h Hunk) -> Result<()> {
        for (position, anchor) in hunk.anchors.iter().enumerate() {
            if !anchor.is_empty() {
                self.follow(anchor, position, hunk.anchors.len())?;
            }
        }
        let mut lines = hunk.lines.as_slice();
        let mut old = old_lines(lines);
        let mut start = self.locate(&old, hunk)?;
        // A blank line at the end may be the patch's own; at most a few are forgiven.
        for _ in 0..3 {
            let Some((HunkLine::Keep(last) | HunkLine::Remove(last), shorter)) = lines.split_last() else { break };
            if start.is_some() || !last.trim().is_empty() {
                break;
            }
            lines = shorter;
            old.pop();
            start = self.locate(&old, hunk)?;
        }
        let Some(start) = start else { return Err(self.not_found(hunk)) };
        self.edit(lines, start);
        // A bare insertion at the end of the file leaves the lines before it to the hunks that follow.
        if !old.is_empty() {
            self.cursor = start + old.len();
        }
        Ok(())
    }

    /// Moves the cursor to the line after the anchor.
    fn follow(&mut self, anchor: &str, position: usize, stack: usize) -> Result<()> {
        let found = match self.rules.profile {
            Profile::Codex => self.ahead_then_behind(anchor, position)?,
            Profile::Sdk => self.behind_then_ahead(anchor, position)?,
        };
        if let Some(cursor) = found {
            self.cursor = cursor;
            return Ok(());
        }
        let message = match self.rules.profile {
            // Line numbers in the manner of diff say nothing that is looked for.
            _ if stack == 1 && is_range(anchor) => return Ok(()),
            Profile::Sdk if stack == 1 => return Ok(()),
            Profile::Sdk => format!("Invalid Anchor {}:\n{}", self.cursor, self.clipped(&[anchor])),
            Profile::Codex => format!("Failed to find context '{}' in {}", self.clipped(&[anchor]), self.rules.path),
        };
        Err(self.refused(message, &[anchor]))
    }

    fn behind_then_ahead(&mut self, anchor: &str, position: usize) -> Result<Option<usize>> {
        for pass in [Pass::Exact, Pass::Trim, Pass::Plain] {
            if position == 0 && stands_before(self.text, anchor, self.cursor, pass, self.work)? {
                return Ok(Some(self.cursor));
            }
            if let Some(at) = find(self.text, &[anchor], self.cursor, pass, self.work)? {
                return Ok(Some(at + 1));
            }
        }
        Ok(None)
    }

    fn ahead_then_behind(&mut self, anchor: &str, position: usize) -> Result<Option<usize>> {
        for pass in Pass::ALL {
            if let Some(at) = find(self.text, &[anchor], self.cursor, pass, self.work)? {
                return Ok(Some(at + 1));
            }
        }
        for pass in Pass::ALL {
            if position == 0 && stands_before(self.text, anchor, self.cursor, pass, self.work)? {
                return Ok(Some(self.cursor));
            }
        }
        Ok(None)
    }

    /// Where the lines that must be there are.
    fn locate(&mut self, old: &[&str], hunk: &Hunk) -> Result<Option<usize>> {
        if old.is_empty() {
            let at_end = hunk.end_of_file || self.rules.profile == Profile::Codex;
            return Ok(Some(if at_end { self.text.len() } else { self.cursor }));
        }
        if hunk.end_of_file {
            let at = self.text.len().checked_sub(old.len()).filter(|at| *at >= self.cursor);
            for pass in Pass::ALL {
                if let Some(at) = at
                    && stands_at(self.text, old, at, pass, self.work)?
                {
                    return Ok(Some(at));
                }
            }
            if self.rules.profile == Profile::Codex {
                return Ok(None);
            }
        }
        for pass in Pass::ALL {
            if let Some(at) = find(self.text, old, self.cursor, pass, self.work)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn edit(&mut self, lines: &'h [HunkLine], start: usize) {
        let mut at = start;
        let mut open: Option<Edit<'h>> = None;
        for line in lines {
            if matches!(line, HunkLine::Keep(_)) {
                self.edits.extend(open.take());
                at += 1;
                continue;
            }
            let edit = open.get_or_insert_with(|| Edit { at, removed: 0, added: Vec::new() });
            match line {
                HunkLine::Add(text) => edit.added.push(text),
                HunkLine::Remove(_) | HunkLine::Keep(_) => {
                    edit.removed += 1;
                    at += 1;
                }
            }
        }
        self.edits.extend(open);
    }

    fn not_found(&self, hunk: &Hunk) -> SandboxError {
        let old = old_lines(&hunk.lines);
        let wanted = self.clipped(&old);
        let message = match self.rules.profile {
            Profile::Codex => format!("Failed to find expected lines in {}:\n{wanted}", self.rules.path),
            Profile::Sdk if hunk.end_of_file => format!("Invalid EOF Context {}:\n{wanted}", self.cursor),
            Profile::Sdk => format!("Invalid Context {}:\n{wanted}", self.cursor),
        };
        self.refused(message, &old)
    }

    fn refused(&self, mut message: String, wanted: &[&str]) -> SandboxError {
        if let Some(nearest) = nearest::lines(self.text, wanted, self.cursor, |line| self.rules.hide(line)) {
            message.push_str(&format!("\n\nThe nearest lines of {} are:\n{nearest}", self.rules.path));
        }
        SandboxError::apply_patch_invalid_diff(self.rules.path, message)
    }

    fn clipped(&self, lines: &[&str]) -> String {
        clipped(&lines.iter().map(|line| self.rules.hide(line)).collect::<Vec<_>>())
    }
}

/// The first lines, bounded by `CLIP_LINES` and `CLIP_BYTES`.
fn clipped(lines: &[Cow<'_, str>]) -> String {
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        let line_break = if at == 0 { "" } else { "\n" };
        let room = CLIP_BYTES.saturating_sub(text.len() + line_break.len());
        if at == CLIP_LINES || (room < line.len() && at > 0) {
            text.push_str(&format!("\n… {} more lines", lines.len() - at));
            break;
        }
        text.push_str(line_break);
        text.push_str(&line[..line.floor_char_boundary(room)]);
        if room < line.len() {
            text.push('…');
        }
    }
    text
}

fn old_lines(lines: &[HunkLine]) -> Vec<&str> {
    let old = lines.iter().filter_map(|line| match line {
        HunkLine::Keep(text) | HunkLine::Remove(text) => Some(text.as_str()),
        HunkLine::Add(_) => None,
    });
    old.collect()
}

/// `-1,2 +3,4 @@`, as diff writes it.
fn is_range(anchor: &str) -> bool {
    let mut words = anchor.split_whitespace();
    let is_numbers = |word: Option<&str>, sign: char| {
        let numbers = word.and_then(|word| word.strip_prefix(sign));
        numbers
            .is_some_and(|text| !text.is_empty() && text.chars().all(|letter| letter.is_ascii_digit() || letter == ','))
    };
    is_numbers(words.next(), '-') && is_numbers(words.next(), '+')
}
