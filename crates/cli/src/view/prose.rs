//! Streamed text of a model: full rows are emitted, and the last row grows.

use super::{
    line,
    sanitize::{Piece, Sanitizer},
};

pub(super) struct Prose {
    tamer: Sanitizer,
    row: String,
    width: usize,
    is_blank: bool,
}

impl Default for Prose {
    fn default() -> Self {
        Self { tamer: Sanitizer::default(), row: String::new(), width: 0, is_blank: true }
    }
}

impl Prose {
    /// Adds a piece of text, and returns the rows that are full now.
    pub(super) fn push(&mut self, text: &str, columns: usize) -> Vec<String> {
        let mut full = Vec::new();
        for c in text.chars() {
            match self.tamer.take(c) {
                Some(Piece::Newline) => full.push(self.end()),
                Some(Piece::Char(c)) => self.grow(c, columns, &mut full),
                Some(Piece::Tab) => (0..4).for_each(|_| self.grow(' ', columns, &mut full)),
                Some(Piece::Return | Piece::Back) | None => {}
            }
        }
        full
    }

    fn grow(&mut self, c: char, columns: usize, full: &mut Vec<String>) {
        self.is_blank &= c == ' ';
        if self.is_blank && self.width >= columns {
            return;
        }
        self.row.push(c);
        self.width += line::columns(c);
        while self.width > columns {
            let (row, rest) = line::row_of(&self.row, columns, false);
            if rest.is_empty() && row.len() == self.row.len() {
                break;
            }
            full.push(row.to_owned());
            self.row = rest.to_owned();
            self.width = line::width(&self.row);
            self.is_blank = self.row.is_empty();
        }
    }

    /// The row that still grows.
    pub(super) fn growing(&self) -> Option<&str> {
        (!self.row.is_empty()).then_some(self.row.as_str())
    }

    /// Ends the text, and returns the last row.
    pub(super) fn end(&mut self) -> String {
        self.width = 0;
        self.is_blank = true;
        self.tamer = Sanitizer::default();
        std::mem::take(&mut self.row).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_in_pieces_wraps_like_complete_text() {
        let text = "The quick brown fox jumps over the lazy dog.\n\n  日本語 and averyveryverylongword\tend";
        let mut whole = Prose::default();
        let mut rows = whole.push(text, 16);
        rows.push(whole.end());
        let expected = [
            "The quick brown",
            "fox jumps over",
            "the lazy dog.",
            "",
            "  日本語 and",
            "averyveryverylon",
            "gword    end",
        ];
        assert_eq!(rows, expected);
        let mut pieces = Prose::default();
        let mut rows: Vec<String> = text.chars().flat_map(|c| pieces.push(&c.to_string(), 16)).collect();
        rows.push(pieces.end());
        assert_eq!(rows, expected);
    }

    #[test]
    fn a_row_of_blanks_is_bounded() {
        let mut prose = Prose::default();
        prose.push(&" ".repeat(10_000), 1);
        assert_eq!(prose.end(), "");
        assert_eq!(prose.push("日本", 1).concat() + &prose.end(), "日本");
    }
}
