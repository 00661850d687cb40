//! References: placeholders for secret values in a saved run, and how they become values again.

use std::{cell::OnceCell, collections::BTreeSet, fmt::Write as _};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use serde::de::IgnoredAny;

use super::forms::{CODES, SHORTEST, part, parts};

/// The named values, and the search that finds them in a text.
pub(super) struct References {
    named: Vec<(String, String)>,
    search: Option<AhoCorasick>,
    /// For each pattern: index in `named`, number of the part, name of the encoding.
    forms: Vec<(usize, usize, &'static str)>,
}

impl References {
    pub(super) fn new(named: &[(String, String)]) -> Self {
        let mut known = BTreeSet::new();
        let (mut patterns, mut forms) = (Vec::new(), Vec::new());
        for (owner, (_, value)) in named.iter().enumerate() {
            for (number, text) in parts(value) {
                for (name, code) in CODES {
                    let pattern = code.write(text);
                    // If several patterns are equal, the first encoding of the first secret wins.
                    if pattern.len() >= SHORTEST && known.insert(pattern.clone()) {
                        patterns.push(pattern);
                        forms.push((owner, number, name));
                    }
                }
            }
        }
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(&patterns);
        Self { named: named.to_vec(), search: search.ok(), forms }
    }

    pub(super) fn seal(&self, text: &str, mark: &str) -> Option<(String, BTreeSet<String>)> {
        let search = self.search.as_ref()?;
        let is_json = OnceCell::new();
        let mut names = BTreeSet::new();
        let mut sealed = String::new();
        let mut at = 0;
        for found in search.find_iter(text) {
            let (owner, number, form) = self.forms[found.pattern().as_usize()];
            let name = &self.named[owner].0;
            // Inside JSON, a rotated value may need escaping even if this one does not.
            let form = if form == "plain" && *is_json.get_or_init(|| holds_json(text)) { "json" } else { form };
            sealed.push_str(&text[at..found.start()]);
            let _into_memory = write!(sealed, "{}{} {number} {form}]", opening(mark), escaped(name));
            names.insert(name.clone());
            at = found.end();
        }
        if names.is_empty() {
            return None;
        }
        sealed.push_str(&text[at..]);
        Some((sealed, names))
    }

    pub(super) fn fill(&self, text: &str, mark: &str) -> Result<Option<String>, String> {
        let opening = opening(mark);
        if !text.contains(&opening) {
            return Ok(None);
        }
        let mut pieces = text.split(&opening);
        let mut filled = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let Some((reference, rest)) = piece.split_once(']') else {
                return Err("a reference without an end".to_owned());
            };
            filled.push_str(&self.value(reference)?);
            filled.push_str(rest);
        }
        Ok(Some(filled))
    }

    /// The value that the reference `NAME PART FORM` stands for.
    fn value(&self, reference: &str) -> Result<String, String> {
        let mut fields = reference.split(' ');
        let (name, number, form) = (fields.next(), fields.next(), fields.next());
        let wanted = name.unwrap_or_default();
        let known = self.named.iter().find(|(name, _)| escaped(name) == wanted);
        let code = CODES.iter().find(|(name, _)| Some(*name) == form).map(|(_, code)| code);
        let number = number.and_then(|number| number.parse().ok());
        match (known, code, number) {
            (Some((name, value)), Some(code), Some(number)) => {
                part(value, number).map(|part| code.write(part)).ok_or_else(|| name.clone())
            }
            (Some((name, _)), ..) => Err(name.clone()),
            (None, ..) => Err(wanted.to_owned()),
        }
    }
}

/// Whether a text is a JSON object, array or string, such as the arguments of a tool call.
fn holds_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[', '"']) && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

fn opening(mark: &str) -> String {
    format!("[secret {mark} ")
}

/// Percent-encodes a name so that it needs no escaping in JSON, in shells and between brackets.
fn escaped(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' => text.push(char::from(byte)),
            _ => {
                let _into_memory = write!(text, "%{byte:02X}");
            }
        }
    }
    text
}
