//! Where a view is drawn: lines that stay, and below them a few rows that are drawn over and over.
//!
//! After every drawing the cursor is at the beginning of the first of those rows. Whatever a terminal does when its size
//! changes, it keeps the cursor at its place in the text; so all that has to go is always what follows the cursor.

use std::{fmt::Write as _, io};

use rustix::termios::tcgetwinsize;

use super::line::Line;
use crate::render::Render;

/// What stands for something, where a letter would be too long.
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

/// What the place of a view can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// A terminal that draws over.
    Redrawn,
    /// A terminal that only prints.
    Printed,
    /// No terminal.
    Lines,
}

/// Which characters may reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Letters {
    All,
    Ascii,
}

/// How wide it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    /// As wide as the terminal is now.
    Asked,
    Fixed(usize),
}

const USUAL_WIDTH: usize = 80;

/// The height of what has no other.
const FIXED_HEIGHT: usize = 24;

/// The most rows that one line becomes.
const MOST_ROWS: usize = 200;

/// The width of lines that nobody sees on a screen.
const LINE_WIDTH: usize = 2000;

pub(super) struct Surface {
    pub render: Render,
    pub reach: Reach,
    pub letters: Letters,
    pub glyphs: &'static Glyphs,
    pub width: Width,
    /// What is on the rows that are drawn over.
    live: String,
    /// What was not yet given out.
    bytes: String,
}

impl Surface {
    pub(super) fn new(render: Render, reach: Reach, letters: Letters, glyphs: &'static Glyphs) -> Self {
        let width = if reach == Reach::Lines { Width::Fixed(LINE_WIDTH) } else { Width::Asked };
        Self { render, reach, letters, glyphs, width, live: String::new(), bytes: String::new() }
    }

    /// How many columns a row may have. The last one stays free: what a terminal does after it, nobody knows.
    pub(super) fn columns(&self) -> usize {
        let asked = || tcgetwinsize(io::stderr()).ok().map(|size| usize::from(size.ws_col)).filter(|width| *width > 0);
        let columns = match self.width {
            Width::Fixed(columns) => columns,
            Width::Asked => asked().unwrap_or(USUAL_WIDTH),
        };
        columns.saturating_sub(1).max(1)
    }

    pub(super) fn height(&self) -> usize {
        match self.width {
            Width::Fixed(_) => FIXED_HEIGHT,
            Width::Asked => tcgetwinsize(io::stderr()).map_or(FIXED_HEIGHT, |size| usize::from(size.ws_row)),
        }
    }

    /// Adds a line that stays, cut to one row.
    pub(super) fn row(&mut self, line: &Line) {
        let line = line.cut(self.columns(), self.glyphs.more);
        self.put(line);
    }

    /// Adds lines that stay, in as many rows as they need.
    pub(super) fn rows(&mut self, line: &Line, indent: usize) {
        let columns = self.columns();
        let line = line.cut(columns.saturating_mul(MOST_ROWS), self.glyphs.more);
        for row in line.wrapped(columns, indent) {
            self.put(row);
        }
    }

    /// Adds a line that stays, as it is: where it does not fit, the terminal wraps it.
    pub(super) fn whole(&mut self, line: &Line) {
        self.put(line.clone());
    }

    /// Adds text that was made for a terminal already.
    pub(super) fn text(&mut self, text: &str) {
        self.erase();
        self.bytes += text;
    }

    fn put(&mut self, line: Line) {
        self.erase();
        let line = if self.letters == Letters::Ascii { line.ascii() } else { line };
        let text = line.painted(&self.render);
        self.bytes += if self.reach == Reach::Lines { text.trim_end() } else { &text };
        self.bytes += if self.reach == Reach::Lines { "\n" } else { "\r\n" };
    }

    /// Adds text that somebody answers on the same row.
    pub(super) fn question(&mut self, line: &Line) {
        self.erase();
        self.bytes += &line.painted(&self.render);
    }

    /// Draws the rows below all that stays anew.
    pub(super) fn draw(&mut self, rows: &[Line]) {
        if self.reach != Reach::Redrawn {
            return;
        }
        let columns = self.columns();
        // What does not fit would scroll out of reach. The last rows say most.
        let rows = &rows[rows.len().saturating_sub(self.height().saturating_sub(1).max(1))..];
        // Keys that were pressed meanwhile may have moved the cursor to the right.
        let mut text = "\r".to_owned();
        for (at, row) in rows.iter().enumerate() {
            let row = row.cut(columns, self.glyphs.more);
            let row = if self.letters == Letters::Ascii { row.ascii() } else { row };
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

    /// Whether there are such rows now.
    pub(super) fn is_drawn(&self) -> bool {
        !self.live.is_empty()
    }

    /// Removes them.
    pub(super) fn erase(&mut self) {
        if !self.live.is_empty() {
            self.bytes += "\r\x1b[J";
            self.live.clear();
        }
    }

    /// What has to be written to standard error.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.bytes)
    }
}
