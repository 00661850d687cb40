//! The surface of a text view: permanent lines, and below them a few rows that are redrawn.
//!
//! After every drawing, the cursor is at the beginning of the first redrawn row. When a terminal changes its size, the cursor
//! keeps its position in the text, so erasing everything after the cursor always erases exactly the redrawn rows.

use std::{fmt::Write as _, io};

use rustix::termios::tcgetwinsize;

use super::line::Line;
use crate::render::Render;

/// Symbols of the view.
#[derive(Debug)]
pub(super) struct Glyphs {
    pub good: &'static str,
    pub bad: &'static str,
    pub dot: &'static str,
    pub more: &'static str,
    pub patch: &'static str,
    pub image: &'static str,
    pub tool: &'static str,
    pub arrow: &'static str,
    pub times: &'static str,
    pub spinner: &'static [&'static str],
}

pub(super) const UNICODE: Glyphs = Glyphs {
    good: "✓",
    bad: "✗",
    dot: "·",
    more: "…",
    patch: "±",
    image: "▣",
    tool: "•",
    arrow: "→",
    times: "×",
    spinner: &["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"],
};

pub(super) const ASCII: Glyphs = Glyphs {
    good: "ok",
    bad: "failed",
    dot: "-",
    more: "...",
    patch: "+-",
    image: "#",
    tool: "*",
    arrow: "->",
    times: "x",
    spinner: &["|", "/", "-", "\\"],
};

/// Capabilities of the output of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DisplayKind {
    /// A terminal whose rows can be redrawn.
    Redrawn,
    /// A terminal without cursor movement.
    Printed,
    /// A file or a pipe.
    Lines,
}

/// Characters that may be written to the surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charset {
    All,
    Ascii,
}

/// A permanent line, and how it fits on the surface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// Cut to one row.
    Cut(Line),
    /// Wrapped into rows; rows after the first are indented by so many columns.
    Wrapped(Line, usize),
    /// Unchanged; the terminal wraps it.
    Whole(Line),
}

/// Width of the surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    /// Current width of the terminal.
    PendingCall,
    Fixed(usize),
}

const USUAL_WIDTH: usize = 80;

/// Height without a terminal.
const FIXED_HEIGHT: usize = 24;

/// Maximum number of rows of a line.
const MOST_ROWS: usize = 200;

/// Width of lines that are not shown on a terminal.
const LINE_WIDTH: usize = 2000;

pub(super) struct Surface {
    pub render: Render,
    pub reach: DisplayKind,
    pub letters: Charset,
    pub glyphs: &'static Glyphs,
    pub width: Width,
    /// Current contents of the redrawn rows.
    live: String,
    /// Pending output.
    bytes: String,
}

impl Surface {
    pub(super) fn new(render: Render, reach: DisplayKind, letters: Charset, glyphs: &'static Glyphs) -> Self {
        let width = if reach == DisplayKind::Lines { Width::Fixed(LINE_WIDTH) } else { Width::PendingCall };
        Self { render, reach, letters, glyphs, width, live: String::new(), bytes: String::new() }
    }

    /// Maximum number of columns of a row. The last column stays free, because terminals differ in how they wrap after it.
    pub(super) fn columns(&self) -> usize {
        let asked = || tcgetwinsize(io::stderr()).ok().map(|size| usize::from(size.ws_col)).filter(|width| *width > 0);
        let columns = match self.width {
            Width::Fixed(columns) => columns,
            Width::PendingCall => asked().unwrap_or(USUAL_WIDTH),
        };
        columns.saturating_sub(1).max(1)
    }

    pub(super) fn height(&self) -> usize {
        match self.width {
            Width::Fixed(_) => FIXED_HEIGHT,
            Width::PendingCall => tcgetwinsize(io::stderr()).map_or(FIXED_HEIGHT, |size| usize::from(size.ws_row)),
        }
    }

    /// Adds permanent lines.
    pub(super) fn show(&mut self, rows: impl IntoIterator<Item = Row>) {
        for row in rows {
            match row {
                Row::Cut(line) => self.row(&line),
                Row::Wrapped(line, indent) => self.rows(&line, indent),
                Row::Whole(line) => self.put(line),
            }
        }
    }

    /// Adds a permanent line, cut to one row.
    pub(super) fn row(&mut self, line: &Line) {
        let line = line.cut(self.columns(), self.glyphs.more);
        self.put(line);
    }

    /// Adds a permanent line, wrapped into rows.
    pub(super) fn rows(&mut self, line: &Line, indent: usize) {
        let columns = self.columns();
        let line = line.cut(columns.saturating_mul(MOST_ROWS), self.glyphs.more);
        for row in line.wrapped(columns, indent) {
            self.put(row);
        }
    }

    /// Adds text that is already sanitized.
    pub(super) fn text(&mut self, text: &str) {
        self.erase();
        self.bytes += text;
    }

    fn put(&mut self, line: Line) {
        self.erase();
        let line = if self.letters == Charset::Ascii { line.ascii() } else { line };
        let text = line.painted(&self.render);
        self.bytes += if self.reach == DisplayKind::Lines { text.trim_end() } else { &text };
        self.bytes += if self.reach == DisplayKind::Lines { "\n" } else { "\r\n" };
    }

    /// Adds a question that the user answers on the same row.
    pub(super) fn question(&mut self, line: &Line) {
        self.erase();
        self.bytes += &line.painted(&self.render);
    }

    /// Redraws the rows below the permanent lines.
    pub(super) fn draw(&mut self, rows: &[Line]) {
        if self.reach != DisplayKind::Redrawn {
            return;
        }
        let columns = self.columns();
        // Rows that do not fit would scroll out of reach; the last rows are the most important.
        let rows = &rows[rows.len().saturating_sub(self.height().saturating_sub(1).max(1))..];
        // The echo of pressed keys may have moved the cursor to the right.
        let mut text = "\r".to_owned();
        for (at, row) in rows.iter().enumerate() {
            let row = row.cut(columns, self.glyphs.more);
            let row = if self.letters == Charset::Ascii { row.ascii() } else { row };
            text += if at == 0 { "" } else { "\x1b[K\r\n" };
            text += &row.painted(&self.render);
        }
        text += "\x1b[J\r";
        if rows.len() > 1 {
            // Writing to a string cannot fail.
            let _infallible = write!(text, "\x1b[{}A", rows.len() - 1);
        }
        if text != self.live {
            self.bytes += &text;
            self.live = text;
        }
    }

    /// Whether redrawn rows are on the screen.
    pub(super) fn is_drawn(&self) -> bool {
        !self.live.is_empty()
    }

    /// Erases the redrawn rows.
    pub(super) fn erase(&mut self) {
        if !self.live.is_empty() {
            self.bytes += "\r\x1b[J";
            self.live.clear();
        }
    }

    /// Takes the pending output for standard error.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.bytes)
    }
}
