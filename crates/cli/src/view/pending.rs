//! The text of a call that needs an approval: complete, each row behind a gutter that the text cannot imitate.

use std::collections::VecDeque;

use sandbar::{
    Interruption,
    sandbox::{
        patch,
        processes::{ExecCommandArgs, WriteStdinArgs},
    },
};

use super::{
    diff::{Diff, ReadOptions},
    line::Line,
    sanitize,
    surface::{Charset, Glyphs},
    units,
};
use crate::render::Style;

/// Prefix of the first row of a line, and of its continuation rows.
const GUTTER: &str = "  | ";
const GOES_ON: &str = "  : ";

/// Number of first and last rows in an excerpt.
const FIRST: usize = 40;
const LAST: usize = 20;

/// Number of first rows in the summary.
const BEGINNING: usize = 3;

/// Maximum size of the complete text, in bytes.
const WHOLE: usize = 1 << 20;

/// A call that needs an approval.
pub(super) struct PendingCall {
    pub tool: String,
    /// Circumstances of the call: a fixed label, and a value from the call.
    notes: Vec<(&'static str, Line)>,
    /// Files of a patch.
    files: Vec<Line>,
    lines: Vec<Line>,
    bytes: usize,
}

/// Excerpt of a call.
pub(super) struct Excerpt {
    pub first: Vec<Line>,
    /// Number of rows that are left out.
    pub hidden: usize,
    pub last: VecDeque<Line>,
}

impl Excerpt {
    pub(super) fn rows(&self) -> usize {
        self.first.len() + self.hidden + self.last.len()
    }
}

impl PendingCall {
    pub(super) fn read(request: &Interruption, glyphs: &Glyphs, letters: Charset) -> Self {
        let spell = if letters == Charset::Ascii { sanitize::exact_ascii } else { sanitize::exact };
        let reading = ReadOptions { spell, most: usize::MAX };
        let text = request.arguments.as_str();
        let mut asked =
            Self { tool: spell(&request.tool), notes: Vec::new(), files: Vec::new(), lines: Vec::new(), bytes: 0 };
        match request.tool.as_str() {
            "exec_command" => match serde_json::from_str::<ExecCommandArgs>(text) {
                Ok(args) => asked.command(&args, glyphs, reading),
                Err(_) => asked.text(text, spell),
            },
            "apply_patch" => match Diff::read(text, glyphs, reading) {
                Some(diff) => asked.patch(diff, text.len()),
                None => asked.text(text, spell),
            },
            "write_stdin" => match serde_json::from_str::<WriteStdinArgs>(text) {
                Ok(args) => {
                    asked.notes.push(("to command", Line::plain(args.session_id.to_string())));
                    asked.text(&format!("{:?}", args.chars), spell);
                }
                Err(_) => asked.text(text, spell),
            },
            _ => asked.text(text, spell),
        }
        asked
    }

    fn command(&mut self, args: &ExecCommandArgs, glyphs: &Glyphs, reading: ReadOptions) {
        let note = |text: &str| Line::plain((reading.spell)(text));
        let found = patch::from_script(&args.cmd).and_then(|found| {
            Some((Diff::read(&found.patch, glyphs, reading)?, found.directory(args.directory().as_deref())))
        });
        if let Some((diff, dir)) = found {
            self.notes.extend(dir.map(|dir| ("a patch, in", note(&dir))));
            return self.patch(diff, args.cmd.len());
        }
        self.notes.extend(args.directory().map(|dir| ("in", note(&dir))));
        self.notes.extend(args.shell.as_ref().map(|shell| ("by", note(shell))));
        self.notes.extend(args.tty.then(|| ("with", note("a terminal"))));
        self.text(&args.cmd, reading.spell);
    }

    fn patch(&mut self, diff: Diff, bytes: usize) {
        self.bytes = bytes;
        self.files = diff.files;
        self.lines = diff.lines;
    }

    fn text(&mut self, text: &str, spell: fn(&str) -> String) {
        self.bytes = text.len();
        self.lines = text.strip_suffix('\n').unwrap_or(text).split('\n').map(|line| Line::plain(spell(line))).collect();
    }

    /// Circumstances of the call, such as its directory.
    pub(super) fn circumstances(&self, columns: usize) -> Vec<Line> {
        self.notes.iter().flat_map(|(word, note)| behind(&format!("  {word} "), note, columns)).collect()
    }

    /// The complete text if it is short, otherwise its beginning and its end.
    pub(super) fn excerpt(&self, columns: usize) -> Excerpt {
        let mut rows = self.rows(columns);
        let first = rows.by_ref().take(FIRST).collect();
        let mut excerpt = Excerpt { first, hidden: 0, last: VecDeque::new() };
        for row in rows {
            excerpt.last.push_back(row);
            if excerpt.last.len() > LAST {
                excerpt.last.pop_front();
                excerpt.hidden += 1;
            }
        }
        excerpt
    }

    /// The text up to a limit, and the number of rows beyond the limit.
    pub(super) fn whole(&self, columns: usize) -> (Vec<Line>, usize) {
        let mut rows = self.rows(columns);
        let mut left = WHOLE;
        let mut shown = Vec::new();
        for row in rows.by_ref() {
            left = left.saturating_sub(row.len());
            shown.push(row);
            if left == 0 {
                break;
            }
        }
        (shown, rows.count())
    }

    fn rows(&self, columns: usize) -> impl Iterator<Item = Line> {
        self.lines.iter().flat_map(move |line| behind(GUTTER, line, columns))
    }

    /// Summary of a text that is too long for a screen: files, circumstances, beginning and length, with a remark on the
    /// length.
    pub(super) fn summary(&self, columns: usize, glyphs: &Glyphs, remark: &str) -> Vec<Line> {
        let mut rows = Vec::new();
        let count = |number: usize, thing: &str| units::plural(number as u64, thing);
        let mut size = vec![count(self.lines.len(), "line"), count(self.bytes, "byte")];
        if self.files.is_empty() {
            rows.push(Line::plain("  it begins with"));
            let filled = self.lines.iter().find(|line| !line.is_blank());
            let mut beginning: Vec<Line> =
                filled.into_iter().flat_map(|line| behind(GUTTER, line, columns)).take(BEGINNING + 1).collect();
            if beginning.len() > BEGINNING {
                beginning.truncate(BEGINNING);
                beginning.push(Line::styled(Style::Faint, format!("  {}", glyphs.more)));
            }
            rows.append(&mut beginning);
        } else {
            size.insert(0, count(self.files.len(), "file"));
            rows.push(Line::plain("  it changes"));
            rows.extend(self.files.iter().flat_map(|file| behind(GUTTER, file, columns)));
        }
        rows.extend(self.circumstances(columns));
        rows.push(Line::styled(Style::Doubtful, format!("  {}: {}{remark}", self.tool, size.join(", "))));
        rows
    }
}

/// Wraps a line into rows, each of which begins with a gutter.
fn behind(gutter: &str, line: &Line, columns: usize) -> Vec<Line> {
    let room = |gutter: &str| columns.saturating_sub(gutter.len());
    let rows = line.chopped(room(gutter), room(GOES_ON)).into_iter().enumerate();
    rows.map(|(at, row)| Line::styled(Style::Faint, if at == 0 { gutter } else { GOES_ON }).and(row)).collect()
}
