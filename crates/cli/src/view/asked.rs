//! What somebody is asked to agree to: all of it, each row behind a gutter that nothing in it can imitate.

use std::collections::VecDeque;

use sandbar::{
    Interruption, patch,
    processes::{ExecCommandArgs, WriteStdinArgs},
};

use super::{
    diff::{Diff, Reading},
    line::Line,
    surface::{Glyphs, Letters},
    tame, words,
};
use crate::render::Style;

/// What stands before each line of it, and before what does not fit the row of its line.
const GUTTER: &str = "  | ";
const GOES_ON: &str = "  : ";

/// How many rows are shown at once: this many first ones, and this many last ones.
const FIRST: usize = 40;
const LAST: usize = 20;

/// How many rows of its beginning are told again.
const BEGINNING: usize = 3;

/// The most that is shown to whoever wants to see all of it, in bytes.
const WHOLE: usize = 1 << 20;

/// A call that waits for somebody.
pub(super) struct Asked {
    pub tool: String,
    /// Where it happens, and how: a word of ours, and what the call says.
    notes: Vec<(&'static str, Line)>,
    /// The files of a patch.
    files: Vec<Line>,
    lines: Vec<Line>,
    bytes: usize,
}

/// What is shown of it at once.
pub(super) struct Glance {
    pub first: Vec<Line>,
    /// How many rows are left out here.
    pub hidden: usize,
    pub last: VecDeque<Line>,
}

impl Glance {
    pub(super) fn rows(&self) -> usize {
        self.first.len() + self.hidden + self.last.len()
    }
}

impl Asked {
    pub(super) fn read(request: &Interruption, glyphs: &Glyphs, letters: Letters) -> Self {
        let spell = if letters == Letters::Ascii { tame::exact_ascii } else { tame::exact };
        let reading = Reading { spell, most: usize::MAX };
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

    fn command(&mut self, args: &ExecCommandArgs, glyphs: &Glyphs, reading: Reading) {
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

    /// Where it happens, and how.
    pub(super) fn circumstances(&self, columns: usize) -> Vec<Line> {
        self.notes.iter().flat_map(|(word, note)| behind(&format!("  {word} "), note, columns)).collect()
    }

    /// All of it if that is not much, or else how it begins and how it ends.
    pub(super) fn glance(&self, columns: usize) -> Glance {
        let mut rows = self.rows(columns);
        let first = rows.by_ref().take(FIRST).collect();
        let mut glance = Glance { first, hidden: 0, last: VecDeque::new() };
        for row in rows {
            glance.last.push_back(row);
            if glance.last.len() > LAST {
                glance.last.pop_front();
                glance.hidden += 1;
            }
        }
        glance
    }

    /// All of it up to a bound, and how many rows there are beyond.
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

    /// What has to be known of something too long for a screen: every file, where and how, its beginning, and how long
    /// it is, with a remark on that.
    pub(super) fn summary(&self, columns: usize, glyphs: &Glyphs, remark: &str) -> Vec<Line> {
        let mut rows = Vec::new();
        let count = |number: usize, thing: &str| words::plural(number as u64, thing);
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

/// A line in as many rows as it needs, none of which begins with anything of its own.
fn behind(gutter: &str, line: &Line, columns: usize) -> Vec<Line> {
    let room = |gutter: &str| columns.saturating_sub(gutter.len());
    let rows = line.chopped(room(gutter), room(GOES_ON)).into_iter().enumerate();
    rows.map(|(at, row)| Line::styled(Style::Faint, if at == 0 { gutter } else { GOES_ON }).and(row)).collect()
}
