//! The lines of a file that are nearest to those a patch did not find, shown to the author of the next patch.

use std::{borrow::Cow, collections::HashMap, fmt::Write};

use super::text::Text;

/// How much is looked at and shown, so that a failure costs no more than a success.
const WANTED: usize = 64;
const SEARCHED: usize = 200_000;
const SHOWN: usize = 10;
const WIDTH: usize = 200;
/// A line with this many equals says nothing about where a hunk belongs.
const COMMON: u16 = 100;

/// The nearest lines, numbered from one, each shown through `hide` before it is cut; `None` when nothing is similar.
pub(super) fn lines<'t>(
    text: &'t Text,
    wanted: &[&str],
    cursor: usize,
    hide: impl Fn(&'t str) -> Cow<'t, str>,
) -> Option<String> {
    let wanted = wanted.get(..wanted.len().min(WANTED)).unwrap_or_default();
    let start = by_equal_lines(text, wanted, cursor).or_else(|| by_letters(text, wanted, cursor))?;
    let end = text.len().min(start + wanted.len().clamp(1, SHOWN));
    let mut shown = String::new();
    for at in start..end {
        let line = hide(text.line(at));
        let cut: String = line.chars().take(WIDTH).collect();
        let dots = if cut.len() < line.len() { "…" } else { "" };
        let _never_fails = writeln!(shown, "{:>6} | {cut}{dots}", at + 1);
    }
    if start < cursor {
        shown.push_str("They stand before the place of the hunk before; hunks must be in the order of the file.\n");
    }
    shown.pop();
    Some(shown)
}

/// The place where most lines are equal but for space around them.
fn by_equal_lines(text: &Text, wanted: &[&str], cursor: usize) -> Option<usize> {
    let mut offsets: HashMap<&str, Vec<usize>> = HashMap::new();
    for (offset, line) in wanted.iter().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        offsets.entry(line.trim()).or_default().push(offset);
    }
    let mut seen: HashMap<&str, u16> = HashMap::new();
    let mut votes: HashMap<usize, usize> = HashMap::new();
    for at in 0..text.len().min(SEARCHED) {
        let line = text.line(at).trim();
        let Some(offsets) = offsets.get(line) else { continue };
        let count = seen.entry(line).or_default();
        if *count == COMMON {
            continue;
        }
        *count += 1;
        for start in offsets.iter().filter_map(|offset| at.checked_sub(*offset)) {
            *votes.entry(start).or_default() += 1;
        }
    }
    // Most votes, then what a hunk may still touch, then the first.
    votes
        .into_iter()
        .max_by_key(|(start, count)| (*count, *start >= cursor, usize::MAX - start))
        .map(|(start, _)| start)
}

/// The line that begins and ends most like the longest one wanted.
fn by_letters(text: &Text, wanted: &[&str], cursor: usize) -> Option<usize> {
    let (offset, longest) = wanted.iter().enumerate().max_by_key(|(_, line)| line.trim().len())?;
    let longest = longest.trim();
    let mut best: Option<(usize, usize)> = None;
    for at in (cursor..text.len()).chain(0..cursor.min(text.len())).take(SEARCHED) {
        let score = alike(text.line(at).trim(), longest);
        if score >= 40 && best.is_none_or(|(most, _)| score > most) {
            best = Some((score, at));
        }
    }
    best.map(|(_, at)| at.saturating_sub(offset))
}

/// How much of the longer line is a common beginning or end, in percent.
fn alike(one: &str, other: &str) -> usize {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let (one, other) = (&one[..one.len().min(WIDTH)], &other[..other.len().min(WIDTH)]);
    let most = one.len().min(other.len());
    let head = one.iter().zip(other).take_while(|(left, right)| left == right).count();
    let tail = one.iter().rev().zip(other.iter().rev()).take(most - head).take_while(|(left, right)| left == right);
    (head + tail.count()) * 100 / one.len().max(other.len()).max(1)
}
