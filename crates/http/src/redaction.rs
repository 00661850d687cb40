//! Removes secrets from texts, for instance from a server's message that repeats a part of the request.

use std::{fmt, sync::Arc};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// Maximum length of a cleaned text, in characters.
const LONGEST_MESSAGE: usize = 1000;
/// Minimum length of a secret in bytes: hiding shorter texts would make messages unreadable.
const SHORTEST: usize = 4;

/// The texts that must not appear in any message, plain and escaped.
#[derive(Clone, Default)]
pub struct Redaction(Arc<[String]>);

impl Redaction {
    /// Hides these secrets. Secrets of less than four bytes are ignored.
    pub fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        Self::default().and(secrets)
    }

    /// Hides these secrets too.
    #[must_use]
    pub fn and(&self, secrets: impl IntoIterator<Item = String>) -> Self {
        let more = secrets.into_iter().filter(|text| text.len() >= SHORTEST).flat_map(forms);
        let mut all: Vec<String> = self.0.iter().cloned().chain(more).collect();
        // A secret that contains another one is replaced first; otherwise the rest of it would remain.
        all.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        all.dedup();
        Self(all.into())
    }

    /// One line for display: bounded, without control characters and without secrets.
    #[must_use]
    pub fn clean(&self, text: &str) -> String {
        line(&self.hidden(text))
    }

    /// The same for the beginning of a longer text, whose end may cut a secret in two.
    #[must_use]
    pub fn clean_beginning(&self, text: &str) -> String {
        let mut text = self.hidden(text);
        let cut = self.0.iter().filter_map(|secret| longest_ending(&text, secret)).max();
        if let Some(length) = cut {
            text.truncate(text.len() - length);
            text.push_str("[secret]");
        }
        line(&text)
    }

    fn hidden(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.0.iter() {
            if text.contains(secret) {
                text = text.replace(secret, "[secret]");
            }
        }
        text
    }
}

/// The forms in which a server may repeat a secret: plain, inside JSON, and inside an address.
fn forms(secret: String) -> Vec<String> {
    let json = serde_json::to_string(&secret).unwrap_or_default();
    let escaped = utf8_percent_encode(&secret, NON_ALPHANUMERIC).to_string();
    vec![json.trim_matches('"').to_owned(), escaped, secret]
}

/// Number of bytes at the end of a text that are the beginning of a secret.
fn longest_ending(text: &str, secret: &str) -> Option<usize> {
    let lengths = secret.char_indices().map(|(at, _)| at).filter(|length| *length >= SHORTEST);
    lengths.filter(|length| text.ends_with(&secret[..*length])).max()
}

fn line(text: &str) -> String {
    let mut letters = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    let mut line: String = letters.by_ref().take(LONGEST_MESSAGE).collect();
    if letters.next().is_some() {
        line.push('…');
    }
    line
}

impl fmt::Debug for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redaction({} secrets)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redaction(secrets: &[&str]) -> Redaction {
        Redaction::new(secrets.iter().map(|secret| (*secret).to_owned()))
    }

    #[test]
    fn secrets_never_come_back_in_a_message() {
        let hidden = redaction(&["sk-123456", "sk-123456-extra", "a"]);
        assert_eq!(hidden.clean("bad key\nsk-123456-extra!"), "bad key [secret]!");
        assert_eq!(hidden.clean(&"é".repeat(5000)).chars().count(), LONGEST_MESSAGE + 1);
        assert!(!format!("{hidden:?}").contains("sk-"));
    }

    #[test]
    fn secrets_are_found_escaped() {
        let hidden = redaction(&["pass\"word/+é"]);
        for echo in ["pass\"word/+é", "pass\\\"word/+é", "pass%22word%2F%2B%C3%A9"] {
            assert_eq!(hidden.clean(&format!("<{echo}>")), "<[secret]>");
        }
    }

    #[test]
    fn a_secret_that_is_cut_in_two_is_hidden() {
        let hidden = redaction(&["sk-1234567890"]);
        assert_eq!(hidden.clean_beginning("key sk-1234567890, key sk-12345"), "key [secret], key [secret]");
        assert_eq!(hidden.clean_beginning("nothing of it: sk-"), "nothing of it: sk-");
        assert_eq!(redaction(&["ééééé"]).clean_beginning("é éééé"), "é [secret]");
    }
}
