//! Finding lines in a text: exactly, then forgiving more and more, at a cost that is linear and bounded.

use super::text::Text;
use crate::{Result, SandboxError};

/// How much a comparison forgives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// Nothing.
    Exact,
    /// Space at the end.
    TrimEnd,
    /// Space at both ends.
    Trim,
    /// That, and typographic dashes, quotes and spaces.
    Plain,
}

impl Pass {
    pub(super) const ALL: [Self; 4] = [Self::Exact, Self::TrimEnd, Self::Trim, Self::Plain];

    pub(super) fn same(self, one: &str, other: &str) -> bool {
        match self {
            Self::Exact => one == other,
            Self::TrimEnd => trim_end(one) == trim_end(other),
            Self::Trim => trim_end(trim_start(one)) == trim_end(trim_start(other)),
            Self::Plain => plain(one).eq(plain(other)),
        }
    }

    /// Whether this forgives something that the pass before it does not, here.
    fn is_needed(self, text: &Text, wanted: &[&str]) -> bool {
        self != Self::Plain || !text.is_ascii() || !wanted.iter().all(|line| line.is_ascii())
    }
}

/// Trims as the standard library does; most lines are indented with plain spaces, which are skipped as bytes.
fn trim_start(line: &str) -> &str {
    let spaces = line.bytes().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let rest = &line[spaces..];
    if rest.bytes().next().is_some_and(|byte| byte.is_ascii_graphic()) { rest } else { rest.trim_start() }
}

fn trim_end(line: &str) -> &str {
    if line.bytes().next_back().is_some_and(|byte| byte.is_ascii_graphic()) { line } else { line.trim_end() }
}

fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{feff}' | '\u{200b}')
}

/// The letters of a line as a keyboard has them.
fn plain(line: &str) -> impl Iterator<Item = char> {
    let line = line.trim_matches(|letter: char| letter.is_whitespace() || is_invisible(letter));
    line.chars().filter(|letter| !is_invisible(*letter)).map(|letter| match letter {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        other => other,
    })
}

/// Comparisons that may still be made, and bytes copied. Matching lines that nearly match everywhere is what it runs out
/// for, and many operations that each touch all of a large file.
#[derive(Debug)]
pub(super) struct Work(u64);

/// Enough for a hundred hunks, none of them exact, in a file of a hundred thousand lines; about a second of one processor.
const WORK: u64 = 1 << 27;

impl Default for Work {
    fn default() -> Self {
        Self(WORK)
    }
}

impl Work {
    #[cfg(test)]
    pub(super) fn of(steps: u64) -> Self {
        Self(steps)
    }

    /// Taking this many bytes apart into lines.
    pub(super) fn split(&mut self, bytes: usize) -> Result<()> {
        self.spend(bytes / 8)
    }

    /// Copying this many bytes.
    pub(super) fn copy(&mut self, bytes: usize) -> Result<()> {
        self.spend(bytes / 16)
    }

    pub(super) fn spend(&mut self, steps: usize) -> Result<()> {
        let left = self.0.checked_sub(steps as u64);
        self.0 = left.ok_or_else(|| SandboxError::limit_exceeded("the work of the patch in steps", WORK, WORK))?;
        Ok(())
    }
}

/// The first place at or after `from` where all of `wanted` stands.
pub(super) fn find(text: &Text, wanted: &[&str], from: usize, pass: Pass, work: &mut Work) -> Result<Option<usize>> {
    if wanted.is_empty() || from + wanted.len() > text.len() {
        return Ok((wanted.is_empty() && from <= text.len()).then_some(from));
    }
    if !pass.is_needed(text, wanted) {
        return Ok(None);
    }
    let borders = borders(wanted, pass);
    let mut matched = 0;
    for at in from..text.len() {
        let line = text.line(at);
        while matched > 0 && !pass.same(wanted[matched], line) {
            matched = borders[matched - 1];
        }
        if pass.same(wanted[matched], line) {
            matched += 1;
        }
        if matched == wanted.len() {
            work.spend(2 * (at + 1 - from) + 2 * wanted.len())?;
            return Ok(Some(at + 1 - matched));
        }
    }
    work.spend(2 * (text.len() - from) + 2 * wanted.len())?;
    Ok(None)
}

/// For each beginning of `wanted`, how much of it is also its own end: where to go on after a line that does not fit.
fn borders(wanted: &[&str], pass: Pass) -> Vec<usize> {
    let mut borders = vec![0; wanted.len()];
    let mut length = 0;
    for at in 1..wanted.len() {
        while length > 0 && !pass.same(wanted[length], wanted[at]) {
            length = borders[length - 1];
        }
        if pass.same(wanted[length], wanted[at]) {
            length += 1;
        }
        borders[at] = length;
    }
    borders
}

/// Whether a line stands before `end`.
pub(super) fn stands_before(text: &Text, line: &str, end: usize, pass: Pass, work: &mut Work) -> Result<bool> {
    if !pass.is_needed(text, &[line]) {
        return Ok(false);
    }
    work.spend(end)?;
    Ok((0..end).any(|at| pass.same(text.line(at), line)))
}

/// Whether all of `wanted` stands exactly at a place.
pub(super) fn stands_at(text: &Text, wanted: &[&str], at: usize, pass: Pass, work: &mut Work) -> Result<bool> {
    work.spend(wanted.len())?;
    Ok(wanted.iter().enumerate().all(|(offset, line)| pass.same(text.line(at + offset), line)))
}
