//! Splits a stream into lines of bounded length.

use bytes::Bytes;

/// Maximum length of a line, which must hold a large patch or file.
pub(crate) const LIMIT: usize = 16 << 20;

/// A line of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A complete line, without the line feed.
    Whole(Vec<u8>),
    /// A line above the limit, which was discarded.
    TooLong,
}

/// Received bytes that are not yet a complete line.
#[derive(Debug)]
pub(crate) struct Lines {
    limit: usize,
    partial: Vec<u8>,
    piece: Bytes,
    /// Whether the rest of a discarded line is still to come.
    skipping: bool,
}

impl Lines {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, partial: Vec::new(), piece: Bytes::new(), skipping: false }
    }

    /// Adds a piece; only valid if [`next`](Self::next) returned `None`.
    pub(crate) fn push(&mut self, piece: Bytes) {
        self.piece = piece;
    }

    pub(crate) fn next(&mut self) -> Option<Line> {
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

    /// Last line at the end of the stream, without a line feed.
    pub(crate) fn last(&mut self) -> Option<Vec<u8>> {
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
    fn lines_do_not_depend_on_how_the_stream_is_split() {
        let whole = read(9, &["one\n\nthree\nfour"]);
        assert_eq!(whole, ["one", "", "three", "four$"]);
        assert_eq!(read(9, &["o", "ne\n\nth", "ree", "\n", "four"]), whole);
    }

    #[test]
    fn a_line_above_the_limit_is_reported_once_and_the_next_is_read() {
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
