//! Splits bytes between UTF-8 characters, and holds back an incomplete character at the end of a piece.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};

/// Whether this is a continuation byte of a character.
pub(super) fn continues(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}

/// Number of bytes of the character that begins with this byte.
fn width(first: u8) -> usize {
    match first {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    }
}

/// The length without an incomplete character at the end. Bytes that can never become a character count as complete.
pub(super) fn complete(bytes: &[u8]) -> usize {
    let window = bytes.len().saturating_sub(3);
    let Some(back) = bytes[window..].iter().rev().position(|byte| !continues(*byte)) else { return bytes.len() };
    let start = bytes.len() - back - 1;
    let unfinished = &bytes[start..];
    if width(bytes[start]) <= unfinished.len() {
        return bytes.len();
    }
    // `from_utf8` knows the valid second bytes: an error without a length may still become a character.
    match std::str::from_utf8(unfinished) {
        Err(error) if error.error_len().is_none() => start,
        _ => bytes.len(),
    }
}

/// The text, with U+FFFD for invalid UTF-8.
pub(super) fn lossy(bytes: Vec<u8>) -> String {
    match String::from_utf8_lossy(&bytes) {
        Cow::Owned(text) => text,
        // The bytes are valid, so this copies nothing.
        Cow::Borrowed(_) => String::from_utf8(bytes).unwrap_or_default(),
    }
}

/// Holds the incomplete character at the end of a stream, so that the output never ends inside a character.
#[derive(Debug, Default)]
pub(super) struct Carry {
    held: Bytes,
}

impl Carry {
    /// Adds bytes and returns those that are complete.
    pub(super) fn push(&mut self, bytes: Bytes) -> Bytes {
        let mut all = if self.held.is_empty() {
            bytes
        } else {
            let mut joined = BytesMut::from(&std::mem::take(&mut self.held)[..]);
            joined.extend_from_slice(&bytes);
            joined.freeze()
        };
        let held = all.split_off(complete(&all));
        // A copy, so that three bytes do not keep a whole piece in memory.
        self.held = Bytes::copy_from_slice(&held);
        all
    }

    /// Returns the bytes that never became a character.
    pub(super) fn finish(&mut self) -> Bytes {
        std::mem::take(&mut self.held)
    }
}

/// Splits the bytes between characters into pieces of at most `limit` bytes.
pub(super) fn pieces(mut bytes: &[u8], limit: usize) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let end = if bytes.len() <= limit { bytes.len() } else { complete(&bytes[..limit]) };
        let (piece, rest) = bytes.split_at(if end == 0 { limit.min(bytes.len()) } else { end });
        bytes = rest;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_an_incomplete_character_is_held_back() {
        let table: &[(&[u8], usize)] = &[
            (b"", 0),
            (b"abc", 3),
            ("aé".as_bytes(), 3),
            (b"a\xc3", 1),
            (b"a\xe2\x82", 1),
            (b"a\xe2", 1),
            (b"\xf0\x9f\x98", 0),
            ("😀".as_bytes(), 4),
            // Never a character: a stray continuation byte, a stray first byte before text, an invalid second byte, an
            // overlong form.
            (b"a\x82", 2),
            (b"\x82\x82\x82", 3),
            (b"\xe2a", 2),
            (b"\xed\xa0", 2),
            (b"\xc0", 1),
            (b"\xff", 1),
        ];
        for (bytes, expected) in table {
            assert_eq!(complete(bytes), *expected, "{bytes:x?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_text_in_pieces_of_any_size_is_never_split_inside_a_character(text in "\\PC{0,60}", size in 1_usize..9) {
            let mut carry = Carry::default();
            let mut seen = String::new();
            for piece in text.as_bytes().chunks(size) {
                let out = carry.push(Bytes::copy_from_slice(piece));
                seen.push_str(std::str::from_utf8(&out).expect("never split"));
            }
            prop_assert!(carry.finish().is_empty());
            prop_assert_eq!(&seen, &text);
        }

        #[test]
        fn pieces_join_to_the_original_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,60}", limit in 4_usize..20) {
            for bytes in [&bytes, text.as_bytes()] {
                let all: Vec<&[u8]> = pieces(bytes, limit).collect();
                prop_assert!(all.iter().all(|piece| (1..=limit).contains(&piece.len())));
                prop_assert_eq!(all.concat(), bytes);
            }
            prop_assert!(pieces(text.as_bytes(), limit).all(|piece| std::str::from_utf8(piece).is_ok()));
        }
    }
}
