//! A file's text as lines that remember how they ended, and the text that is put together from them.

use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};

use super::Profile;

/// How a line ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// `\n`
    #[default]
    Lf,
    /// `\r\n`
    CrLf,
    /// `\r` alone
    Cr,
}

impl Ending {
    /// Its characters.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lf => "\n",
            Self::CrLf => "\r\n",
            Self::Cr => "\r",
        }
    }

    /// How the first line of some text ends.
    pub(super) fn of_first(text: &str) -> Self {
        match text.find('\n') {
            Some(at) if text[..at].ends_with('\r') => Self::CrLf,
            _ => Self::Lf,
        }
    }
}

/// The lines of a text that is split at `\n` only, a `\r` before it belonging to the ending.
pub(super) fn patch_lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    if lines.last().is_some_and(|last| last.is_empty()) {
        lines.pop();
    }
    lines
}

const BOM: char = '\u{feff}';

/// Where a line's letters are, and how it ends.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    end: usize,
    ending: Option<Ending>,
}

/// A text taken apart into lines. It stays so while one change after the other is made: what a change costs is what it
/// adds and a look at each line, not the whole text anew.
#[derive(Debug)]
pub(super) struct Text {
    /// The letters of every line there was, in the order they came.
    letters: String,
    bom: bool,
    ascii: bool,
    spans: Vec<Span>,
    /// Whether a line ends, or ended, in a lone carriage return.
    lone: bool,
}

/// Lines that go and lines that come at one place.
#[derive(Debug)]
pub(super) struct Edit<'h> {
    pub(super) at: usize,
    pub(super) removed: usize,
    pub(super) added: Vec<&'h str>,
}

impl Text {
    pub(super) fn new(content: String) -> Self {
        let bom = content.starts_with(BOM);
        let body = if bom { BOM.len_utf8() } else { 0 };
        let ascii = content[body..].is_ascii();
        let (spans, lone) = if content.contains('\r') {
            split_at_any_ending(&content, body)
        } else {
            (split_at_newlines(&content, body), false)
        };
        Self { letters: content, bom, ascii, spans, lone }
    }

    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    /// How many bytes it has.
    pub(super) fn size(&self) -> usize {
        let line = |span: &Span| span.end - span.start + span.ending.map_or(0, |ending| ending.as_str().len());
        self.spans.iter().map(line).sum::<usize>() + if self.bom { BOM.len_utf8() } else { 0 }
    }

    pub(super) fn is_ascii(&self) -> bool {
        self.ascii
    }

    pub(super) fn line(&self, at: usize) -> &str {
        self.spans.get(at).map_or("", |span| &self.letters[span.start..span.end])
    }

    /// How new lines end, where anything says so. A progress bar in the first line makes no file of lone carriage returns,
    /// except to the profile that knows only the first line.
    pub(super) fn style(&self, profile: Profile) -> Option<Ending> {
        let first = self.spans.first()?.ending;
        if profile == Profile::Codex || !self.lone {
            return first;
        }
        let endings = || self.spans.iter().filter_map(|span| span.ending);
        let lone = endings().filter(|ending| *ending == Ending::Cr).count();
        let mut with_newline = endings().filter(|ending| *ending != Ending::Cr);
        let first_newline = with_newline.next();
        let many = first_newline.map_or(0, |_| 1 + with_newline.count());
        if many > lone { first_newline } else { first }
    }

    /// Whether there is a last line and it has no ending.
    pub(super) fn is_open(&self) -> bool {
        self.spans.last().is_some_and(|last| last.ending.is_none())
    }

    /// Makes changes that are in the order of the text; whether it has to be taken apart [again](Self::again) after that.
    pub(super) fn change(&mut self, edits: &[Edit<'_>], style: Ending, finish: Finish) -> Split {
        let old = std::mem::take(&mut self.spans);
        let mut kept = 0;
        let mut split = if self.lone || style == Ending::Cr { Split::Stale } else { Split::Right };
        self.spans.reserve_exact(old.len() + edits.iter().map(|edit| edit.added.len()).sum::<usize>());
        for edit in edits {
            self.keep(old.get(kept..edit.at).unwrap_or_default(), style);
            for line in &edit.added {
                self.add(line, style);
                if line.contains(['\r', '\n']) {
                    split = Split::Stale;
                }
            }
            kept = edit.at + edit.removed;
        }
        self.keep(old.get(kept..).unwrap_or_default(), style);
        match finish {
            Finish::Closed => self.close(style),
            Finish::Open => self.open(),
        }
        // What was in the middle of the text may be its mark now.
        if !self.bom && self.line(0).starts_with(BOM) { Split::Stale } else { split }
    }

    /// The same text, taken apart anew.
    pub(super) fn again(&mut self) {
        *self = Self::new(self.to_string());
    }

    fn keep(&mut self, lines: &[Span], style: Ending) {
        if !lines.is_empty() {
            self.close(style);
            self.spans.extend_from_slice(lines);
        }
    }

    fn add(&mut self, line: &str, style: Ending) {
        self.close(style);
        let starts_file = self.spans.is_empty() && self.bom;
        let line = if starts_file { line.strip_prefix(BOM).unwrap_or(line) } else { line };
        let start = self.letters.len();
        self.letters.push_str(line);
        self.ascii &= line.is_ascii();
        self.spans.push(Span { start, end: self.letters.len(), ending: Some(style) });
    }

    /// Gives the last line an ending.
    fn close(&mut self, style: Ending) {
        if let Some(last) = self.spans.last_mut() {
            last.ending.get_or_insert(style);
        }
    }

    /// Takes the last line's ending, and an empty line with it.
    fn open(&mut self) {
        let Some(last) = self.spans.last_mut() else { return };
        last.ending = None;
        if last.start == last.end {
            self.spans.pop();
        }
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bom {
            f.write_char(BOM)?;
        }
        self.spans.iter().try_for_each(|span| {
            f.write_str(&self.letters[span.start..span.end])?;
            f.write_str(span.ending.map_or("", Ending::as_str))
        })
    }
}

fn split_at_newlines(content: &str, body: usize) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut start = body;
    for line in content[body..].split_inclusive('\n') {
        let next = start + line.len();
        let ended = line.ends_with('\n');
        let (end, ending) = if ended { (next - 1, Some(Ending::Lf)) } else { (next, None) };
        spans.push(Span { start, end, ending });
        start = next;
    }
    spans
}

/// The lines, and whether a lone carriage return ends one.
fn split_at_any_ending(content: &str, body: usize) -> (Vec<Span>, bool) {
    let bytes = content.as_bytes();
    let (mut spans, mut lone) = (Vec::new(), false);
    let (mut start, mut at) = (body, body);
    while at < bytes.len() {
        let ending = match bytes[at] {
            b'\n' => Ending::Lf,
            b'\r' if bytes.get(at + 1) == Some(&b'\n') => Ending::CrLf,
            b'\r' => Ending::Cr,
            _ => {
                at += 1;
                continue;
            }
        };
        spans.push(Span { start, end: at, ending: Some(ending) });
        lone |= ending == Ending::Cr;
        at += ending.as_str().len();
        start = at;
    }
    if start < bytes.len() {
        spans.push(Span { start, end: bytes.len(), ending: None });
    }
    (spans, lone)
}

/// What the end of a finished text is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// The last line has an ending.
    Closed,
    /// It has none.
    Open,
}

/// Whether the lines are those that the text would be taken apart into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Split {
    /// They are.
    Right,
    /// They need not be.
    Stale,
}
