//! Cuts the middle out of a text that is too long for a model, so that its beginning and its end remain.
//!
//! A token counts as four bytes. The cut never splits a character.

use std::ops::Range;

/// Bytes that count as one token.
const TOKEN: usize = 4;

/// A gap that a text already has, and the line that describes it.
#[derive(Clone, Debug)]
pub(super) struct Gap {
    /// Position of the line.
    pub(super) notice: Range<usize>,
    /// Number of bytes that are missing in the gap.
    pub(super) omitted: u64,
}

/// The text within `max_tokens`, and the original number of tokens if it was higher.
///
/// The result never exceeds `4 * max_tokens` bytes, including the notices about the cut: a first line with the number
/// of lines, and at the cut the number of truncated tokens. If the notices do not fit, they are cut too.
#[must_use]
pub fn truncate(text: &str, max_tokens: usize) -> (String, Option<u64>) {
    truncate_around(text, None, max_tokens)
}

/// Truncates a text that has a gap. If the cut includes the line about the gap, the count of the cut covers both.
pub(super) fn truncate_around(text: &str, gap: Option<Gap>, max_tokens: usize) -> (String, Option<u64>) {
    let budget = max_tokens.saturating_mul(TOKEN);
    if text.len() <= budget {
        return (text.to_owned(), None);
    }
    let original = tokens(text.len());
    // Reserve space for the largest possible count; the actual one is not longer.
    let omitted = gap.as_ref().map_or(0, |gap| gap.omitted);
    let reserve = marker(tokens_of(omitted.saturating_add(text.len() as u64)), "tokens");
    if reserve.len() > budget {
        return (reserve[..reserve.floor_char_boundary(budget)].to_owned(), Some(original));
    }
    let notice = line_notice(text);
    let notice = if notice.len() + reserve.len() <= budget { notice } else { String::new() };
    let mut cut = split(text, budget - notice.len() - reserve.len());
    let mut count = tokens(cut.len());
    if let Some(Gap { notice: line, omitted }) =
        gap.filter(|gap| gap.notice.end > cut.start && gap.notice.start < cut.end)
    {
        cut = cut.start.min(line.start)..cut.end.max(line.end);
        count = tokens_of(omitted.saturating_add((cut.len() - line.len()) as u64));
    }
    let (head, tail) = (&text[..cut.start], &text[cut.end..]);
    (format!("{notice}{head}{}{tail}", marker(count, "tokens")), Some(original))
}

/// The text with at most `max_bytes` of its own bytes; the notices about the cut are added to that and count
/// characters.
#[must_use]
pub fn truncate_bytes(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let cut = split(text, max_bytes);
    let (head, tail) = (&text[..cut.start], &text[cut.end..]);
    let count = u64::try_from(text[cut].chars().count()).unwrap_or(u64::MAX);
    format!("{}{head}{}{tail}", line_notice(text), marker(count, "chars"))
}

/// Number of tokens in this many bytes.
pub(super) fn tokens(bytes: usize) -> u64 {
    tokens_of(bytes as u64)
}

fn tokens_of(bytes: u64) -> u64 {
    bytes.div_ceil(TOKEN as u64)
}

fn marker(count: u64, unit: &str) -> String {
    format!("…{count} {unit} truncated…")
}

fn line_notice(text: &str) -> String {
    format!("Total output lines: {}\n\n", lines(text))
}

/// The range between a beginning and an end that have at most `budget` bytes together.
fn split(text: &str, budget: usize) -> Range<usize> {
    let head = text.floor_char_boundary(budget / 2);
    let tail = text.ceil_char_boundary(text.len() - (budget - budget / 2)).max(head);
    head..tail
}

/// Number of lines as other sandboxes count them: every Unicode line break ends a line, `\r\n` is one break, and a last
/// line without a break counts.
fn lines(text: &str) -> usize {
    let breaks = |c: char| {
        matches!(c, '\n' | '\u{b}' | '\u{c}' | '\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
    };
    let pairs = text.matches("\r\n").count();
    let unfinished = usize::from(text.chars().next_back().is_some_and(|last| !breaks(last)));
    text.chars().filter(|c| breaks(*c)).count() - pairs + unfinished
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;
    use sha2::{Digest, Sha256};

    use super::*;

    /// The result of the Python SDK (0.24) for `unit` repeated `repeat` times.
    #[derive(Deserialize)]
    struct Case {
        mode: String,
        unit: String,
        repeat: usize,
        limit: usize,
        original: Option<u64>,
        output: Option<String>,
        bytes: Option<usize>,
        sha256: Option<String>,
    }

    #[test]
    fn every_text_is_cut_as_the_python_sdk_cuts_it() {
        let mut seen = 0;
        for line in include_str!("../../tests/data/truncation.jsonl").lines() {
            let case: Case = serde_json::from_str(line).unwrap();
            let text = case.unit.repeat(case.repeat);
            let (output, original) = match case.mode.as_str() {
                "tokens" => truncate(&text, case.limit),
                _ => (truncate_bytes(&text, case.limit), None),
            };
            assert_eq!(original, case.original, "{line}");
            match case.output {
                Some(expected) => assert_eq!(output, expected, "{line}"),
                None => {
                    assert_eq!(Some(output.len()), case.bytes, "{line}");
                    let digest = Sha256::digest(output.as_bytes());
                    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
                    assert_eq!(Some(digest), case.sha256, "{line}");
                }
            }
            seen += 1;
        }
        assert!(seen >= 60, "{seen} cases");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_result_fits_and_consists_of_both_ends(text in "(?s).{0,300}", max in 0_usize..90) {
            let (output, original) = truncate(&text, max);
            prop_assert!(output.len() <= max * 4);
            match original {
                None => prop_assert_eq!(output, text),
                Some(count) => {
                    prop_assert_eq!(count, tokens(text.len()));
                    if let Some((head, tail)) = output.split_once('…').and_then(|(head, rest)| Some((head, rest.split_once('…')?.1)))
                        && !text.contains('…')
                    {
                        let head = head.split_once("\n\n").filter(|(notice, _)| notice.starts_with("Total")).map_or(head, |both| both.1);
                        prop_assert!(text.starts_with(head) && text.ends_with(tail));
                    }
                }
            }
        }

        #[test]
        fn bytes_of_the_text_itself_stay_within_the_limit(text in "(?s).{0,300}", max in 0_usize..400) {
            let output = truncate_bytes(&text, max);
            let notices = line_notice(&text).len() + marker(text.chars().count() as u64, "chars").len();
            prop_assert!(output == text || output.len() <= max + notices);
        }
    }
}
