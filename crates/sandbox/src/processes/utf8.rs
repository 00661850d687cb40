//! Where bytes can be cut without splitting a character, and the part of one that has to wait for its rest.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};

/// Whether the byte is inside a character, not its first.
pub(super) fn continues(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}

/// How many bytes the character that begins with this one has.
fn width(first: u8) -> usize {
    match first {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    }
}

/// The length without a character at the end that lacks its last bytes. Bytes that can never become a character are not
/// waited for.
pub(super) fn complete(bytes: &[u8]) -> usize {
    let window = bytes.len().saturating_sub(3);
    let Some(back) = bytes[window..].iter().rev().position(|byte| !continues(*byte)) else { return bytes.len() };
    let start = bytes.len() - back - 1;
    let unfinished = &bytes[start..];
    if width(bytes[start]) <= unfinished.len() {
        return bytes.len();
    }
    // The library knows which second bytes are possible at all: an error without a length may still become a character.
    match std::str::from_utf8(unfinished) {
        Err(error) if error.error_len().is_none() => start,
        _ => bytes.len(),
    }
}

/// The text; what is no UTF-8 becomes U+FFFD.
pub(super) fn lossy(bytes: Vec<u8>) -> String {
    match String::from_utf8_lossy(&bytes) {
        Cow::Owned(text) => text,
        // It was valid, so nothing has to be looked at or copied again.
        Cow::Borrowed(_) => String::from_utf8(bytes).unwrap_or_default(),
    }
}

/// One stream's unfinished character: what comes out of it never ends inside one.
#[derive(Debug, Default)]
pub(super) struct Carry {
    held: Bytes,
}

impl Carry {
    /// Adds bytes and gives those that are complete.
    pub(super) fn push(&mut self, bytes: Bytes) -> Bytes {
        let mut all = if self.held.is_empty() {
            bytes
        } else {
            let mut joined = BytesMut::from(&std::mem::take(&mut self.held)[..]);
            joined.extend_from_slice(&bytes);
            joined.freeze()
        };
        let held = all.split_off(complete(&all));
        // A copy, so that three bytes do not keep a whole piece.
        self.held = Bytes::copy_from_slice(&held);
        all
    }

    /// What never became a character.
    pub(super) fn finish(&mut self) -> Bytes {
        std::mem::take(&mut self.held)
    }
}

/// The bytes in pieces of at most `limit`, cut between characters.
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
    fn only_what_may_still_become_a_character_is_held_back() {
        let table: &[(&[u8], usize)] = &[
            (b"", 0),
            (b"abc", 3),
            ("aé".as_bytes(), 3),
            (b"a\xc3", 1),
            (b"a\xe2\x82", 1),
            (b"a\xe2", 1),
            (b"\xf0\x9f\x98", 0),
            ("😀".as_bytes(), 4),
            // Never a character: a stray middle, a stray first before text, an impossible second byte, an overlong form.
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
        fn a_text_in_pieces_of_any_size_is_whole_at_every_moment(text in "\\PC{0,60}", size in 1_usize..9) {
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
        fn pieces_join_to_what_was_cut(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,60}", limit in 4_usize..20) {
            for bytes in [&bytes, text.as_bytes()] {
                let all: Vec<&[u8]> = pieces(bytes, limit).collect();
                prop_assert!(all.iter().all(|piece| (1..=limit).contains(&piece.len())));
                prop_assert_eq!(all.concat(), bytes);
            }
            prop_assert!(pieces(text.as_bytes(), limit).all(|piece| std::str::from_utf8(piece).is_ok()));
        }
    }
}
