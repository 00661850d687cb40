//! Hides known secret values in texts and streams: one search for every value in all its encodings.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fmt,
    ops::Range,
    sync::{Arc, OnceLock},
};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use super::{
    forms::{CODES, SHORTEST, parts, wrapped},
    seal::References,
};

/// The replacement for a value.
pub(super) const HIDDEN: &[u8] = b"[secret]";

/// The longest pattern, in bytes. Longer values are searched in pieces, so that a stream never buffers more than this.
const LONGEST: usize = 2048;

/// Hides known secret values in text: plain, JSON- or URL-escaped, in base64, and each line of a multi-line value.
/// Cheap to clone.
///
/// A mask protects against accidents, not against an attacker: a program that has a value can print it in an unknown
/// encoding.
#[derive(Clone)]
pub struct SecretMask(Arc<Shared>);

struct Shared {
    search: Search,
    /// Values that references may name, also those that are shown.
    named: Vec<(String, String)>,
    references: OnceLock<References>,
}

/// Finds values in a text.
struct Search {
    /// `None` if the automaton could not be built: then all text is hidden.
    automaton: Option<AhoCorasick>,
    /// Sorted.
    patterns: Vec<Vec<u8>>,
    longest: usize,
    /// For each byte, whether a pattern begins with it.
    begins: [bool; 256],
}

impl SecretMask {
    /// Hides `values`; saved runs can refer to the values in `named`. `None` if neither contains a value that is long
    /// enough.
    pub(super) fn new<'v>(
        values: impl Iterator<Item = &'v str>,
        named: impl Iterator<Item = (&'v str, &'v str)>,
    ) -> Option<Self> {
        let mut patterns = BTreeSet::new();
        for (_, part) in values.flat_map(parts) {
            let coded = CODES.iter().map(|(_, code)| code.write(part));
            let long_enough = coded.chain(wrapped(part)).filter(|text| text.len() >= SHORTEST);
            patterns.extend(long_enough.flat_map(pieces));
        }
        let named: Vec<_> = named.filter(|(_, value)| !parts(value).is_empty()).collect();
        if patterns.is_empty() && named.is_empty() {
            return None;
        }
        let search = Search::new(patterns.into_iter().collect());
        let named = named.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Some(Self(Arc::new(Shared { search, named, references: OnceLock::new() })))
    }

    /// Replaces every value in the text by `[secret]`.
    #[must_use]
    pub fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if !self.0.search.is_in(text.as_bytes()) {
            return Cow::Borrowed(text);
        }
        let mut stream = self.stream();
        let mut bytes = stream.push(text.as_bytes());
        bytes.extend(stream.finish());
        Cow::Owned(into_text(bytes))
    }

    /// Hides values in a text that arrives in pieces, also values that are split between pieces.
    #[must_use]
    pub fn stream(&self) -> MaskStream {
        MaskStream { mask: self.clone(), held: Vec::new(), covered: 0, hiding: false }
    }

    /// Replaces every named value in the text by a reference, and returns the names; `None` if the text has no such
    /// value. `mark` must be unknown to the writer of the text: [`fill`](Self::fill) ignores references with another
    /// mark.
    #[must_use]
    pub fn seal(&self, text: &str, mark: &str) -> Option<(String, BTreeSet<String>)> {
        self.references().seal(text, mark)
    }

    /// Replaces the references in the text by values; `None` if the text has no reference.
    ///
    /// # Errors
    /// The name of a secret that is unknown, or that no longer has the line that the reference names.
    pub fn fill(&self, text: &str, mark: &str) -> Result<Option<String>, String> {
        self.references().fill(text, mark)
    }

    fn references(&self) -> &References {
        self.0.references.get_or_init(|| References::new(&self.0.named))
    }
}

/// Clones are equal.
impl PartialEq for SecretMask {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SecretMask {}

impl fmt::Debug for SecretMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretMask(..)")
    }
}

pub(super) fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Splits a pattern that is too long; a short one stays whole.
fn pieces(text: String) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    let mut rest = text.as_str();
    while rest.len() > LONGEST {
        // The rest must be long enough to be a pattern itself.
        let at = rest.floor_char_boundary(LONGEST - SHORTEST);
        let (piece, after) = rest.split_at(at);
        pieces.push(piece.as_bytes().to_vec());
        rest = after;
    }
    pieces.push(rest.as_bytes().to_vec());
    pieces
}

impl Search {
    fn new(patterns: Vec<Vec<u8>>) -> Self {
        let mut begins = [false; 256];
        for first in patterns.iter().filter_map(|pattern| pattern.first()) {
            begins[usize::from(*first)] = true;
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            // The faster kinds use many times the memory for a long value.
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(&patterns);
        let longest = patterns.iter().map(Vec::len).max().unwrap_or_default();
        Self { automaton: automaton.ok(), patterns, longest, begins }
    }

    fn is_in(&self, text: &[u8]) -> bool {
        match &self.automaton {
            Some(automaton) => !self.patterns.is_empty() && automaton.is_match(text),
            None => !text.is_empty(),
        }
    }

    /// The ranges that belong to values, in order; adjacent and overlapping ranges are merged.
    fn stretches(&self, text: &[u8]) -> Vec<Range<usize>> {
        if !self.is_in(text) {
            return Vec::new();
        }
        let Some(automaton) = &self.automaton else { return std::iter::once(0..text.len()).collect() };
        let mut found: Vec<Range<usize>> = Vec::new();
        for at in automaton.find_overlapping_iter(text) {
            let mut stretch = at.range();
            // Matches are sorted by their end, so only the last ranges can touch this one.
            while let Some(before) = found.pop_if(|before| before.end >= stretch.start) {
                stretch.start = stretch.start.min(before.start);
            }
            found.push(stretch);
        }
        found
    }

    /// The start of the longest suffix that more text could complete to a value; the length of the text if there is
    /// none.
    fn unfinished(&self, text: &[u8]) -> usize {
        let from = (text.len() + 1).saturating_sub(self.longest);
        let may_begin = |at: &usize| self.begins[usize::from(text[*at])] && self.begins_with(&text[*at..]);
        (from..text.len()).find(may_begin).unwrap_or(text.len())
    }

    /// Whether `start` is a proper prefix of a pattern.
    fn begins_with(&self, start: &[u8]) -> bool {
        let at = self.patterns.partition_point(|pattern| pattern.as_slice() <= start);
        self.patterns.get(at).is_some_and(|pattern| pattern.starts_with(start))
    }
}

/// Hides values in a stream. A suffix that could be the start of a value is held back until the next bytes decide.
#[derive(Debug)]
pub struct MaskStream {
    mask: SecretMask,
    held: Vec<u8>,
    /// Number of held bytes that belong to a value that began before them.
    covered: usize,
    /// Whether the last output was the replacement for a value.
    hiding: bool,
}

impl MaskStream {
    /// Adds a piece, and returns the text that can be shown now.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(piece);
        let end = self.mask.0.search.unfinished(&text);
        self.pass(text, end)
    }

    /// Returns the rest of the text. The stream can then be used for another text.
    pub fn finish(&mut self) -> Vec<u8> {
        let text = std::mem::take(&mut self.held);
        let end = text.len();
        let rest = self.pass(text, end);
        self.hiding = false;
        rest
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Returns the text up to `end`, with its values hidden, and holds the rest.
    fn pass(&mut self, mut text: Vec<u8>, end: usize) -> Vec<u8> {
        let mut stretches = self.mask.0.search.stretches(&text);
        if self.covered > 0 {
            stretches.insert(0, 0..self.covered);
        }
        self.covered = 0;
        let mut shown = Vec::with_capacity(end);
        let mut at = 0;
        for stretch in stretches {
            let (from, to) = (stretch.start.clamp(at, end), stretch.end.clamp(at, end));
            if from > at {
                shown.extend_from_slice(&text[at..from]);
                self.hiding = false;
            }
            if to > from && !self.hiding {
                shown.extend_from_slice(HIDDEN);
                self.hiding = true;
            }
            at = to;
            self.covered = self.covered.max(stretch.end.saturating_sub(end));
        }
        if end > at {
            shown.extend_from_slice(&text[at..end]);
            self.hiding = false;
        }
        self.held = text.split_off(end);
        shown
    }
}
