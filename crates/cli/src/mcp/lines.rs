//! Lines out of pieces: each no longer than allowed, whatever the other side sends.

use bytes::Bytes;

/// The longest line that is read: a patch or a file of this size fits, and more is no conversation.
pub(super) const LIMIT: usize = 16 << 20;

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// All of it, without its end.
    Whole(Vec<u8>),
    /// It is longer than allowed, and thrown away.
    TooLong,
}

/// What came, and is not yet a line.
#[derive(Debug)]
pub(super) struct Lines {
    limit: usize,
    partial: Vec<u8>,
    piece: Bytes,
    /// Whether the rest of a line that was too long is still to come.
    skipping: bool,
}

impl Lines {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, partial: Vec::new(), piece: Bytes::new(), skipping: false }
    }

    /// Takes another piece; only when there is no line in the one before.
    pub(super) fn push(&mut self, piece: Bytes) {
        self.piece = piece;
    }

    pub(super) fn next(&mut self) -> Option<Line> {
        while let Some(end) = self.piece.iter().position(|byte| *byte == b'\n') {
            let head = self.piece.split_to(end + 1);
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if self.partial.len() + end > self.limit {
                self.partial = Vec::new();
                return Some(Line::TooLong);
            }
            self.partial.extend_from_slice(&head[..end]);
            return Some(Line::Whole(std::mem::take(&mut self.partial)));
        }
        let rest = std::mem::take(&mut self.piece);
        if self.skipping {
            return None;
        }
        if self.partial.len() + rest.len() > self.limit {
            self.partial = Vec::new();
            self.skipping = true;
            return Some(Line::TooLong);
        }
        self.partial.extend_from_slice(&rest);
        None
    }

    /// What is left when nothing more comes: a line all the same.
    pub(super) fn last(&mut self) -> Option<Vec<u8>> {
        Some(std::mem::take(&mut self.partial)).filter(|line| !line.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(limit: usize, pieces: &[&'static str]) -> Vec<String> {
        let mut lines = Lines::new(limit);
        let mut found = Vec::new();
        for piece in pieces {
            lines.push(Bytes::from_static(piece.as_bytes()));
            while let Some(line) = lines.next() {
                found.push(match line {
                    Line::Whole(line) => String::from_utf8(line).expect("text"),
                    Line::TooLong => "!".to_owned(),
                });
            }
        }
        found.extend(lines.last().map(|line| String::from_utf8(line).expect("text") + "$"));
        found
    }

    #[test]
    fn lines_are_the_same_however_they_are_cut() {
        let whole = read(9, &["one\n\nthree\nfour"]);
        assert_eq!(whole, ["one", "", "three", "four$"]);
        assert_eq!(read(9, &["o", "ne\n\nth", "ree", "\n", "four"]), whole);
    }

    #[test]
    fn a_line_that_is_too_long_is_said_once_and_the_next_is_read() {
        let table: [(&[&str], &[&str]); 5] = [
            (&["12345\nok\n"], &["!", "ok"]),
            (&["123", "45\nok\n"], &["!", "ok"]),
            (&["12345", "67890", "12\nok\n"], &["!", "ok"]),
            (&["1234\nok\n"], &["1234", "ok"]),
            (&["12345", "6"], &["!"]),
        ];
        for (pieces, expected) in table {
            assert_eq!(read(4, pieces), expected, "{pieces:?}");
        }
    }
}
