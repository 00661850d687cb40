//! The buffered output of a process: its beginning, its end, and the number of bytes omitted between them.

use std::{collections::VecDeque, ops::Range};

use bytes::Bytes;

use super::utf8;

/// Keeps the first and the last bytes that are pushed, half of the limit each, and counts the omitted ones.
#[derive(Debug)]
pub(crate) struct Ring {
    half: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    omitted: u64,
}

/// The content of a ring.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Drained {
    /// The text, with a line at the gap that says how many bytes are omitted.
    pub(crate) text: String,
    /// Number of omitted bytes.
    pub(crate) omitted: u64,
    /// Number of bytes that were printed, including omitted ones.
    pub(crate) printed: u64,
    /// Position in the text of the line about the gap.
    pub(crate) gap: Option<Range<usize>>,
}

impl Ring {
    /// A ring for at most `limit` bytes; memory is allocated as it is needed.
    pub(crate) fn new(limit: usize) -> Self {
        Self { half: limit / 2, head: Vec::new(), tail: VecDeque::new(), omitted: 0 }
    }

    /// Number of bytes in the ring.
    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Number of bytes that were printed, including omitted ones.
    pub(crate) fn printed(&self) -> u64 {
        self.omitted.saturating_add(self.len() as u64)
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let into_head = if self.tail.is_empty() && self.omitted == 0 { self.half - self.head.len() } else { 0 };
        let (first, rest) = bytes.split_at(into_head.min(bytes.len()));
        self.head.extend_from_slice(first);
        // Only the last `half` bytes can remain.
        let (gone, kept) = rest.split_at(rest.len().saturating_sub(self.half));
        let displaced = (self.tail.len() + kept.len()).saturating_sub(self.half);
        self.tail.drain(..displaced);
        self.omitted = self.omitted.saturating_add((gone.len() + displaced) as u64);
        let needed = self.tail.len() + kept.len();
        if needed > self.tail.capacity() {
            // The usual doubling could allocate twice the limit.
            let goal = needed.max(self.tail.capacity() * 2).min(self.half);
            self.tail.reserve_exact(goal - self.tail.len());
        }
        self.tail.extend(kept);
    }

    /// Counts bytes that were printed here but are lost.
    pub(crate) fn skip(&mut self, count: u64) {
        self.omitted = self.omitted.saturating_add(count);
    }

    /// Takes the content as bytes: beginning and end, and the number of bytes omitted between them.
    pub(crate) fn take(&mut self) -> (Bytes, u64) {
        let mut bytes = std::mem::take(&mut self.head);
        bytes.extend(std::mem::take(&mut self.tail));
        (bytes.into(), std::mem::take(&mut self.omitted))
    }

    /// Takes the content as text. Characters that the gap splits are left out on both sides, and counted.
    pub(crate) fn drain(&mut self) -> Drained {
        let printed = self.printed();
        let mut head = std::mem::take(&mut self.head);
        let tail = Vec::from(std::mem::take(&mut self.tail));
        let omitted = std::mem::take(&mut self.omitted);
        if omitted == 0 {
            head.extend_from_slice(&tail);
            return Drained { text: utf8::lossy(head), omitted, printed, gap: None };
        }
        let end = utf8::complete(&head);
        let start = tail.iter().take(3).take_while(|byte| utf8::continues(**byte)).count();
        let omitted = omitted.saturating_add((head.len() - end + start) as u64);
        head.truncate(end);
        let line_break = if head.last().is_none_or(|last| *last == b'\n') { "" } else { "\n" };
        let (head, tail) = (utf8::lossy(head), String::from_utf8_lossy(&tail[start..]));
        let notice = format!("{line_break}... {omitted} bytes omitted ...\n");
        let gap = Some(head.len()..head.len() + notice.len());
        Drained { text: head + &notice + &tail, omitted, printed, gap }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drained(limit: usize, pieces: &[&[u8]]) -> (String, u64) {
        let mut ring = Ring::new(limit);
        pieces.iter().for_each(|piece| ring.push(piece));
        let Drained { text, omitted, .. } = ring.drain();
        assert_eq!(
            ring.drain(),
            Drained { text: String::new(), omitted: 0, printed: 0, gap: None },
            "it is empty afterwards"
        );
        (text, omitted)
    }

    #[test]
    fn the_middle_is_omitted() {
        let table: &[(&[&[u8]], &str, u64)] = &[
            (&[], "", 0),
            (&[b"abc"], "abc", 0),
            (&[b"abcdefgh"], "abcdefgh", 0),
            (&[b"abcd", b"efgh"], "abcdefgh", 0),
            (&[b"abcdefghi"], "abcd\n... 1 bytes omitted ...\nfghi", 1),
            (&[b"abc\n", b"efgh", b"i"], "abc\n... 1 bytes omitted ...\nfghi", 1),
            (&[b"abcdefgh", b"0123456789"], "abcd\n... 10 bytes omitted ...\n6789", 10),
            (&["abcé".as_bytes(), b"12345"], "abc\n... 3 bytes omitted ...\n2345", 3),
            (&[b"abcd", "xx€12".as_bytes()], "abcd\n... 5 bytes omitted ...\n12", 5),
        ];
        for (pieces, text, omitted) in table {
            assert_eq!(drained(8, pieces), ((*text).to_owned(), *omitted), "{pieces:?}");
        }
    }

    #[test]
    fn ten_gigabytes_cost_no_more_than_the_limit() {
        let mut ring = Ring::new(1 << 20);
        let piece = vec![b'x'; 64 << 10];
        let pieces = (10_u64 << 30) / piece.len() as u64;
        for _ in 0..2000 {
            ring.push(&piece);
        }
        assert_eq!(ring.len(), 1 << 20);
        assert!(ring.head.capacity() + ring.tail.capacity() <= (1 << 20) + (1 << 19));
        ring.omitted += (pieces - 2000) * piece.len() as u64;
        assert_eq!(ring.drain().omitted, (10 << 30) - (1 << 20));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn kept_and_omitted_bytes_add_up_to_the_pushed_bytes(
            pieces in prop::collection::vec(prop::collection::vec(b'a'..=b'z', 0..40), 0..12), limit in 0_usize..32,
        ) {
            let all = pieces.concat();
            let mut ring = Ring::new(limit * 2);
            pieces.iter().for_each(|piece| ring.push(piece));
            let kept = ring.len();
            prop_assert!(kept <= limit * 2);
            let Drained { text, omitted, printed, .. } = ring.drain();
            prop_assert_eq!((kept as u64 + omitted, printed), (all.len() as u64, all.len() as u64));
            if omitted == 0 {
                prop_assert_eq!(text.as_bytes(), all);
            } else {
                prop_assert!(text.as_bytes().starts_with(&all[..limit]));
                prop_assert!(text.as_bytes().ends_with(&all[all.len() - limit..]));
            }
        }
    }
}
