//! A line of styled text, measured in columns of a terminal.

use unicode_width::UnicodeWidthChar;

use crate::render::{Render, Style, inert_line};

/// A line of styled pieces of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line(Vec<(Option<Style>, String)>);

impl Line {
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self(vec![(None, text.into())])
    }

    pub(super) fn styled(style: Style, text: impl Into<String>) -> Self {
        Self(vec![(Some(style), text.into())])
    }

    pub(super) fn then(mut self, text: impl Into<String>) -> Self {
        self.0.push((None, text.into()));
        self
    }

    pub(super) fn then_styled(mut self, style: Style, text: impl Into<String>) -> Self {
        self.0.push((Some(style), text.into()));
        self
    }

    pub(super) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Adds leading blanks.
    pub(super) fn indented(mut self, columns: usize) -> Self {
        self.0.insert(0, (None, " ".repeat(columns)));
        self
    }

    /// Upper bound of the width in columns: characters that terminals join are counted one by one.
    pub(super) fn width(&self) -> usize {
        self.0.iter().map(|(_, text)| width(text)).sum()
    }

    /// Cuts the line to this width; a line that was cut ends with `more`.
    pub(super) fn cut(&self, columns: usize, more: &str) -> Self {
        if self.width() <= columns {
            return self.clone();
        }
        let mark = if width(more) <= columns { more } else { "" };
        let mut room = columns - width(mark);
        let mut kept = Self::default();
        for (style, text) in &self.0 {
            let part = prefix(text, room);
            room -= width(part);
            kept.0.push((*style, part.to_owned()));
            if part.len() < text.len() {
                break;
            }
        }
        kept.then(mark)
    }

    /// Wraps the line into rows of at most this width; rows after the first are indented.
    pub(super) fn wrapped(&self, columns: usize, indent: usize) -> Vec<Self> {
        let columns = columns.max(2);
        let indent = if indent + 8 > columns { 0 } else { indent };
        let mut rows = vec![Self::default()];
        let mut used = 0;
        for (style, text) in &self.0 {
            let mut rest = text.as_str();
            while !rest.is_empty() {
                let (part, after) = row_of(rest, columns - used, used > indent);
                if let Some(row) = rows.last_mut().filter(|_| !part.is_empty()) {
                    row.0.push((*style, part.to_owned()));
                    used += width(part);
                }
                rest = after;
                if !rest.is_empty() {
                    rows.push(Self::default().indented(indent));
                    used = indent;
                }
            }
        }
        rows
    }

    /// Splits the line into rows of at most this width, and keeps every blank. The first row may have another width than the
    /// rest. No terminal needs more columns for a row.
    pub(super) fn chopped(&self, first: usize, rest: usize) -> Vec<Self> {
        let mut rows = vec![Self::default()];
        let mut left = first.max(2);
        for (style, text) in &self.0 {
            let mut begun = 0;
            for (at, c) in text.char_indices() {
                // Some terminals use two columns for characters that others show in one.
                let needed = c.width_cjk().unwrap_or(1);
                if needed > left {
                    if let Some(row) = rows.last_mut() {
                        row.0.push((*style, text[begun..at].to_owned()));
                    }
                    rows.push(Self::default());
                    (begun, left) = (at, rest.max(2));
                }
                left -= needed.min(left);
            }
            if let Some(row) = rows.last_mut() {
                row.0.push((*style, text[begun..].to_owned()));
            }
        }
        rows
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|(_, text)| text.len()).sum()
    }

    /// Whether the line has only blanks.
    pub(super) fn is_blank(&self) -> bool {
        self.0.iter().all(|(_, text)| text.trim().is_empty())
    }

    /// Text for standard error, without control characters from the line.
    pub(super) fn painted(&self, render: &Render) -> String {
        let paint = |(style, text): &(Option<Style>, String)| match style {
            Some(style) if !text.is_empty() => render.paint_progress(*style, &inert_line(text)),
            _ => inert_line(text),
        };
        self.0.iter().map(paint).collect()
    }

    /// Replaces characters that are not ASCII.
    pub(super) fn ascii(mut self) -> Self {
        for (_, text) in &mut self.0 {
            if !text.is_ascii() {
                *text = text.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect();
            }
        }
        self
    }
}

pub(super) fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

pub(super) fn columns(c: char) -> usize {
    // Control characters, which have no width, are shown as a question mark.
    c.width().unwrap_or(1)
}

/// Longest prefix that fits.
pub(super) fn prefix(text: &str, columns_left: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += columns(c);
        if used > columns_left {
            return &text[..at];
        }
    }
    text
}

/// Splits a text into a row of this width and the rest: at a blank, unless a word is longer than a row.
pub(super) fn row_of(text: &str, room: usize, begun: bool) -> (&str, &str) {
    let fits = prefix(text, room);
    if fits.len() == text.len() {
        return (text, "");
    }
    if text[fits.len()..].starts_with(' ') {
        return (fits, text[fits.len()..].trim_start_matches(' '));
    }
    match fits.rfind(' ') {
        Some(at) if !fits[..at].trim().is_empty() || begun => (&fits[..at], &text[at + 1..]),
        None if begun => ("", text),
        // At least one character, so that the loop ends.
        _ if fits.is_empty() => text.split_at(text.chars().next().map_or(0, char::len_utf8)),
        _ => (fits, &text[fits.len()..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Color;

    fn rows(text: &str, columns: usize) -> Vec<String> {
        let render = Render::new(Color::Never);
        Line::plain(text).wrapped(columns, 2).iter().map(|line| line.painted(&render)).collect()
    }

    #[test]
    fn lines_break_at_blanks_and_long_words_break_anywhere() {
        assert_eq!(rows("one two three four", 12), ["one two", "  three four"]);
        assert_eq!(rows("abcdefghijklmnop", 12), ["abcdefghijkl", "  mnop"]);
        assert_eq!(rows("", 12), [""]);
        assert_eq!(rows("日本語日本語", 12), ["日本語日本語"]);
        assert_eq!(rows("日本語日本語", 11), ["日本語日本", "  語"]);
        for columns in 0..20 {
            for text in ["x", "a b c d e f g h", "   leading", "日本語 日本語", "trailing   "] {
                let joined = rows(text, columns).concat().replace(' ', "");
                assert_eq!(joined, text.replace(' ', ""), "{columns}");
            }
        }
    }

    #[test]
    fn a_cut_line_ends_with_a_mark_within_its_width() {
        let line = Line::plain("日本").then_styled(Style::Good, "語abc");
        let cut = |columns| line.cut(columns, "…").painted(&Render::new(Color::Never));
        assert_eq!(cut(9), "日本語abc");
        assert_eq!(cut(8), "日本語a…");
        assert_eq!(cut(4), "日…");
        assert_eq!(cut(1), "…");
        assert_eq!(cut(0), "");
    }

    #[test]
    fn a_line_contains_no_control_characters() {
        let line = Line::styled(Style::Good, "a\x1b[2J\nb\u{202e}");
        assert_eq!(line.painted(&Render::new(Color::Never)), "a?[2J?b?");
    }
}
