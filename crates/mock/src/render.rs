//! An answer as bytes: one JSON document, or a stream of events with their end positions.

use bytes::Bytes;
use serde_json::Value;

pub(crate) mod events;
pub(crate) mod response;

/// Body of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Rendered {
    pub(crate) bytes: Bytes,
    /// End position of each event; empty for a JSON document.
    pub(crate) ends: Vec<usize>,
}

/// End of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Completed,
    Failed { code: String, message: String },
    Incomplete { reason: String },
    Error { code: String, message: String },
}

impl Rendered {
    pub(crate) fn json(value: &Value) -> Self {
        Self { bytes: Bytes::from(value.to_string()), ends: Vec::new() }
    }

    pub(crate) fn is_stream(&self) -> bool {
        !self.ends.is_empty()
    }
}

/// Writer of a stream of events.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Writer {
    /// Adds an event, with or without a name.
    pub(crate) fn event(&mut self, name: Option<&str>, data: &str) {
        if let Some(name) = name {
            self.bytes.extend_from_slice(b"event: ");
            self.bytes.extend_from_slice(name.as_bytes());
            self.bytes.push(b'\n');
        }
        self.bytes.extend_from_slice(b"data: ");
        self.bytes.extend_from_slice(data.as_bytes());
        self.bytes.extend_from_slice(b"\n\n");
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn count(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn end(self) -> Rendered {
        Rendered { bytes: Bytes::from(self.bytes), ends: self.ends }
    }
}

/// Splits a text into pieces of this many characters; an empty text has no pieces.
pub(crate) fn pieces(text: &str, characters: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.char_indices().nth(characters.max(1)).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_split_between_characters_however_long_they_are() {
        for (text, size, expected) in [
            ("", 1, vec![]),
            ("héλ🦀", 1, vec!["h", "é", "λ", "🦀"]),
            ("héλ🦀", 3, vec!["héλ", "🦀"]),
            ("ab", 0, vec!["a", "b"]),
            ("ab", 9, vec!["ab"]),
        ] {
            assert_eq!(pieces(text, size).collect::<Vec<_>>(), expected);
        }
    }
}
