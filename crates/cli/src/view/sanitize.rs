//! Sanitizes text of models and guests for a terminal: removes control sequences, and bounds lines.

use std::collections::VecDeque;

use super::line;

/// Maximum length of an escape sequence, and maximum number of combining marks per character.
const SEQUENCE_LIMIT: usize = 4096;
const MARKS: usize = 3;

/// Maximum width of a line, in columns.
const LINE_LIMIT: usize = 2000;

/// Parser of terminal output that drops escape sequences.
#[derive(Debug, Default)]
pub(super) struct Sanitizer {
    state: State,
    marks: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Text,
    /// After an escape character.
    Escape,
    /// In a control sequence, which ends with a final byte; holds the number of characters so far.
    Sequence(usize),
    /// In a control string, which ends with a bell or a string terminator.
    String(usize),
    /// After an escape character in such a string.
    StringEscape(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Char(char),
    Newline,
    Return,
    Back,
    Tab,
}

impl Sanitizer {
    pub(super) fn take(&mut self, c: char) -> Option<Piece> {
        if c == '\n' {
            // The end of a line ends every sequence, so that no sequence can hide the following text.
            *self = Self::default();
            return Some(Piece::Newline);
        }
        let (next, piece) = match self.state {
            State::Text => return self.text(c),
            State::Escape => match c {
                '[' => (State::Sequence(0), None),
                ']' | 'P' | '_' | '^' | 'X' => (State::String(0), None),
                '\x1b' | ' '..='/' => (State::Escape, None),
                _ => (State::Text, None),
            },
            State::Sequence(SEQUENCE_LIMIT..) | State::String(SEQUENCE_LIMIT..) => (State::Text, None),
            State::Sequence(_) if matches!(c, '\u{40}'..='\u{7e}') => (State::Text, None),
            State::Sequence(_) | State::String(_) | State::StringEscape(_) if matches!(c, '\x18' | '\x1a') => {
                (State::Text, None)
            }
            State::Sequence(_) if c == '\x1b' => (State::Escape, None),
            State::Sequence(gone) => (State::Sequence(gone + 1), None),
            State::String(_) if matches!(c, '\x07' | '\u{9c}') => (State::Text, None),
            State::String(gone) if c == '\x1b' => (State::StringEscape(gone + 1), None),
            State::String(gone) => (State::String(gone + 1), None),
            State::StringEscape(_) if c == '\\' => (State::Text, None),
            State::StringEscape(gone) => (State::String(gone + 1), None),
        };
        self.state = next;
        piece
    }

    fn text(&mut self, c: char) -> Option<Piece> {
        match c {
            '\x1b' => self.state = State::Escape,
            '\u{9b}' => self.state = State::Sequence(0),
            '\u{9d}' | '\u{90}' | '\u{9e}' | '\u{9f}' | '\u{98}' => self.state = State::String(0),
            '\r' => return Some(Piece::Return),
            '\x08' => return Some(Piece::Back),
            '\t' => return Some(Piece::Tab),
            '\0' | '\x07' | '\x0e' | '\x0f' => {}
            // Terminals differ in how they show joiners, variation selectors, direction marks and fillers.
            '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2065}' | '\u{feff}' | '\u{fe00}'..='\u{fe0f}' => {}
            '\u{e0000}'..='\u{e0fff}' => {}
            '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                return Some(Piece::Char('?'));
            }
            c if c.is_control() => return Some(Piece::Char('?')),
            c if line::columns(c) == 0 => {
                self.marks += 1;
                return (self.marks <= MARKS).then_some(Piece::Char(c));
            }
            c => {
                self.marks = 0;
                return Some(Piece::Char(c));
            }
        }
        None
    }
}

/// An incomplete line, and its visible length.
#[derive(Debug, Default)]
struct PartialLine {
    text: String,
    width: usize,
    is_cut: bool,
    /// Whether the next character overwrites the line from its beginning.
    returned: bool,
}

impl PartialLine {
    fn take(&mut self, piece: Piece) {
        if self.returned && !matches!(piece, Piece::Return) {
            *self = Self::default();
        }
        match piece {
            Piece::Char(c) => self.push(c),
            Piece::Tab => (0..8 - self.width % 8).for_each(|_| self.push(' ')),
            Piece::Return => self.returned = true,
            Piece::Back => {
                self.width -= self.text.pop().map_or(0, line::columns);
            }
            Piece::Newline => {}
        }
    }

    fn push(&mut self, c: char) {
        let columns = line::columns(c);
        if self.is_cut || self.width + columns > LINE_LIMIT {
            self.is_cut = true;
            return;
        }
        // A mark without a base character would combine with a character of the view.
        if columns == 0 && self.text.is_empty() {
            self.text.push(' ');
            self.width += 1;
        }
        self.text.push(c);
        self.width += columns;
    }
}

/// Output of a call: its first lines, its last lines, and their number.
#[derive(Debug, Default)]
pub(super) struct OutputLines {
    tamer: Sanitizer,
    line: PartialLine,
    first: VecDeque<String>,
    /// Number of first lines that were stored so far.
    begun: usize,
    last: VecDeque<String>,
    lines: u64,
}

/// Numbers of first and last lines to show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caps {
    pub first: usize,
    pub last: usize,
}

impl OutputLines {
    pub(super) fn push(&mut self, text: &str, caps: Caps) {
        for c in text.chars() {
            match self.tamer.take(c) {
                Some(Piece::Newline) => self.end_line(caps),
                Some(piece) => self.line.take(piece),
                None => {}
            }
        }
    }

    fn end_line(&mut self, caps: Caps) {
        let line = std::mem::take(&mut self.line).text;
        self.lines += 1;
        if self.begun < caps.first {
            self.begun += 1;
            self.first.push_back(line);
            return;
        }
        self.last.push_back(line);
        if self.last.len() > caps.last {
            self.last.pop_front();
        }
    }

    /// Takes the next of the first lines.
    pub(super) fn next_first(&mut self) -> Option<String> {
        self.first.pop_front()
    }

    /// Whether anything was printed.
    pub(super) fn is_empty(&self) -> bool {
        self.lines == 0 && self.line.text.is_empty()
    }

    /// The current last line.
    pub(super) fn latest(&self) -> Option<&str> {
        let unfinished = Some(self.line.text.as_str()).filter(|text| !text.trim().is_empty());
        unfinished.or(self.last.back().map(String::as_str))
    }

    /// Ends the output: returns the number of hidden lines, the last lines, and the number of all lines.
    pub(super) fn finish(&mut self, caps: Caps) -> (u64, VecDeque<String>, u64) {
        if !self.line.text.is_empty() {
            self.end_line(caps);
        }
        let shown = self.begun as u64 + self.last.len() as u64;
        (self.lines - shown, std::mem::take(&mut self.last), self.lines)
    }
}

/// Splits a text, such as a command or a file, into lines, and escapes invisible characters.
pub(super) fn visible(text: &str) -> Vec<String> {
    text.lines().map(visible_line).collect()
}

/// Escapes invisible characters in one line.
pub(super) fn visible_line(text: &str) -> String {
    let mut shown = String::new();
    let mut marks = 0;
    for c in text.chars() {
        let is_hidden = matches!(
            c,
            '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
                | '\u{e0000}'..='\u{e0fff}'
        );
        marks = if line::columns(c) == 0 { marks + 1 } else { 0 };
        match c {
            '\t' => shown.push_str("    "),
            '\u{fe00}'..='\u{fe0f}' => {}
            c if c.is_control() || is_hidden => shown.extend(c.escape_default()),
            _ if marks > MARKS => {}
            c => shown.push(c),
        }
    }
    shown
}

/// One line of a text that needs an approval: nothing is left out, and every ambiguous character is escaped.
pub(super) fn exact(text: &str) -> String {
    let mut shown = String::new();
    // A mark without a character to bear it would stand on ours.
    let mut marks = MARKS;
    for c in text.chars() {
        let is_mark = line::columns(c) == 0;
        marks = if is_mark { marks + 1 } else { 0 };
        match c {
            ' ' => shown.push(' '),
            '\t' => shown.push_str("    "),
            c if c.is_control() || c.is_whitespace() || is_unseen(c) => shown.extend(c.escape_default()),
            c if is_mark && marks > MARKS => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
    }
    shown
}

/// Like [`exact`] for a terminal without Unicode.
pub(super) fn exact_ascii(text: &str) -> String {
    let mut shown = String::new();
    for c in exact(text).chars() {
        if c.is_ascii() {
            shown.push(c);
        } else {
            shown.extend(c.escape_default());
        }
    }
    shown
}

/// Whether the character is invisible.
fn is_unseen(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPS: Caps = Caps { first: 2, last: 2 };

    fn seen(text: &str) -> String {
        let mut printed = OutputLines::default();
        printed.push(text, Caps { first: 9, last: 9 });
        let (_, _, lines) = printed.finish(Caps { first: 9, last: 9 });
        assert!(lines <= 9);
        Vec::from(printed.first).join("|")
    }

    #[test]
    fn control_sequences_of_a_guest_are_removed() {
        let table = [
            ("\x1b[31mred\x1b[0m", "red"),
            ("\x1b]0;title\x07x", "x"),
            ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
            ("\x1b]never ends\nnext", "|next"),
            ("\u{9b}31mred", "red"),
            ("\x1bP1$r\u{9c}x", "x"),
            ("\x1b(Bx\x1b=y", "xy"),
            ("\x1b\x1b[31mx", "x"),
            ("10%\r20%\r\x1b[K30%\n", "30%"),
            ("windows\r\nlines\r\n", "windows|lines"),
            ("abc\x08\x08x", "ax"),
            ("\x08\x08x", "x"),
            ("a\tb", "a       b"),
            ("a\u{202e}b\x01\x07", "a?b?"),
            ("e\u{301}\u{301}\u{301}\u{301}\u{301}x", "e\u{301}\u{301}\u{301}x"),
            ("\u{301}x", " \u{301}x"),
            ("\u{1f468}\u{200d}\u{1f469}\u{fe0f}", "\u{1f468}\u{1f469}"),
        ];
        for (text, expected) in table {
            assert_eq!(seen(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_sequence_in_pieces_is_removed() {
        let mut printed = OutputLines::default();
        for piece in ["a\x1b", "[3", "1mb", "\x1b]0;ti", "tle\x1b", "\\c\r", "\n"] {
            printed.push(piece, CAPS);
        }
        assert_eq!(printed.next_first().as_deref(), Some("abc"));
    }

    #[test]
    fn the_first_and_last_lines_are_kept_and_all_are_counted() {
        let mut printed = OutputLines::default();
        for number in 1..=1000 {
            printed.push(&format!("line {number}\n"), CAPS);
        }
        printed.push("half", CAPS);
        assert_eq!(printed.latest(), Some("half"));
        assert_eq!(printed.next_first().as_deref(), Some("line 1"));
        assert_eq!(printed.finish(CAPS), (997, VecDeque::from(["line 1000".to_owned(), "half".to_owned()]), 1001));
    }

    #[test]
    fn an_endless_line_is_cut() {
        let mut printed = OutputLines::default();
        (0..1024).for_each(|_| printed.push(&"x".repeat(1024), CAPS));
        assert_eq!(printed.latest().map(str::len), Some(LINE_LIMIT));
    }

    #[test]
    fn invisible_characters_of_a_command_are_escaped() {
        assert_eq!(visible("ls\x1b[8m -x\u{202e}\n\tb"), ["ls\\u{1b}[8m -x\\u{202e}", "    b"]);
    }
}
