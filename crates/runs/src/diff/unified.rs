//! Changes in the format of `git diff`, which `git apply` reads.

use std::{collections::HashMap, time::Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline, group_diff_ops};

use super::{changes::Change, contents::Content};
use crate::index::{IndexEntry, PathBytes};

/// Context lines around a change.
const AROUND: usize = 3;

/// Maximum number of lines of a file that is compared.
const LINES: usize = 1_000_000;

/// One change as text.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Patch {
    /// The patch in the format of `git diff`.
    pub text: Vec<u8>,
    /// Inserted lines.
    pub insertions: usize,
    /// Deleted lines.
    pub deletions: usize,
    /// Whether the patch only says that the files differ.
    pub is_opaque: bool,
}

/// One side of a patch: mode and content.
type Side<'a> = Option<(u32, &'a Content)>;

/// A change in the format of git. After the deadline the patch is correct but not minimal.
pub(super) fn patch(change: &Change, old: &Content, new: &Content, deadline: Instant) -> Patch {
    let mode = |entry: &Option<IndexEntry>| entry.as_ref().and_then(IndexEntry::git_mode);
    let (before, after) = (mode(&change.old).map(|mode| (mode, old)), mode(&change.new).map(|mode| (mode, new)));
    let mut patch = Patch::default();
    match (before, after) {
        (None, None) => {}
        // A type change is emitted as a delete and a create.
        (Some((was, _)), Some((is, _))) if was >> 12 != is >> 12 => {
            patch.one(&change.path, before, None, deadline);
            patch.one(&change.path, None, after, deadline);
        }
        _ if has_same_content(change) => patch.head(&change.path, before, after),
        _ => patch.one(&change.path, before, after, deadline),
    }
    patch
}

fn has_same_content(change: &Change) -> bool {
    let sum = |entry: &Option<IndexEntry>| match entry {
        Some(IndexEntry::File { sha256, .. }) => *sha256,
        _ => None,
    };
    sum(&change.old).is_some_and(|sum_of_old| Some(sum_of_old) == sum(&change.new))
}

impl Patch {
    fn line(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
        self.text.push(b'\n');
    }

    fn head(&mut self, path: &PathBytes, old: Side<'_>, new: Side<'_>) {
        self.line(&format!("diff --git {} {}", quoted("a/", path), quoted("b/", path)));
        match (old, new) {
            (None, Some((mode, _))) => self.line(&format!("new file mode {mode:o}")),
            (Some((mode, _)), None) => self.line(&format!("deleted file mode {mode:o}")),
            (Some((was, _)), Some((is, _))) if was != is => {
                self.line(&format!("old mode {was:o}"));
                self.line(&format!("new mode {is:o}"));
            }
            _ => {}
        }
    }

    fn one(&mut self, path: &PathBytes, old: Side<'_>, new: Side<'_>, deadline: Instant) {
        self.head(path, old, new);
        let name = |side: Side<'_>, prefix| match side {
            Some(_) => quoted(prefix, path),
            None => "/dev/null".to_owned(),
        };
        let (from, to) = (name(old, "a/"), name(new, "b/"));
        let (Some(old), Some(new)) = (text_of(old), text_of(new)) else {
            self.is_opaque = true;
            return self.line(&format!("Binary files {from} and {to} differ"));
        };
        if old == new {
            return;
        }
        // git ends a name that contains a space with a tab.
        let ended = |name: &str| if name.contains(' ') { format!("{name}\t") } else { name.to_owned() };
        self.line(&format!("--- {}", ended(&from)));
        self.line(&format!("+++ {}", ended(&to)));
        self.hunks(&old, &new, deadline);
    }

    fn hunks(&mut self, old: &[&[u8]], new: &[&[u8]], deadline: Instant) {
        let (a, b) = numbered(old, new);
        let ops = capture_diff_slices_deadline(Algorithm::Myers, &a, &b, Some(deadline));
        for group in group_diff_ops(ops, AROUND) {
            let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
            let was = range(first.old_range().start, last.old_range().end);
            let is = range(first.new_range().start, last.new_range().end);
            self.line(&format!("@@ -{was} +{is} @@"));
            for op in &group {
                if let DiffOp::Equal { old_index, len, .. } = op {
                    self.side(b' ', &old[*old_index..old_index + len]);
                    continue;
                }
                self.deletions += op.old_range().len();
                self.side(b'-', &old[op.old_range()]);
                self.insertions += op.new_range().len();
                self.side(b'+', &new[op.new_range()]);
            }
        }
    }

    fn side(&mut self, sign: u8, lines: &[&[u8]]) {
        for line in lines {
            self.text.push(sign);
            self.text.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                self.line("\n\\ No newline at end of file");
            }
        }
    }
}

/// The lines of one side; `None` if it is not text.
fn text_of(side: Side<'_>) -> Option<Vec<&[u8]>> {
    match side {
        None => Some(Vec::new()),
        Some((_, Content::Text(bytes))) => lines(bytes),
        Some((_, Content::Opaque(_))) => None,
    }
}

/// Lines with their line ends; `None` if there are too many.
fn lines(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').take(LINES + 1).collect();
    (lines.len() <= LINES).then_some(lines)
}

/// Numbers for lines, equal for equal lines: numbers are faster to compare.
fn numbered(old: &[&[u8]], new: &[&[u8]]) -> (Vec<usize>, Vec<usize>) {
    let mut numbers = HashMap::new();
    let mut all = old.iter().chain(new).map(|line| {
        let next = numbers.len();
        *numbers.entry(*line).or_insert(next)
    });
    let a: Vec<usize> = all.by_ref().take(old.len()).collect();
    (a, all.collect())
}

fn range(start: usize, end: usize) -> String {
    match end - start {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        length => format!("{},{length}", start + 1),
    }
}

/// A path as git prints it: quoted if it contains quotes, control characters, or bytes that are not UTF-8.
pub fn quoted(prefix: &str, name: &PathBytes) -> String {
    let (mut text, mut is_plain) = (prefix.to_owned(), true);
    for chunk in name.0.utf8_chunks() {
        for c in chunk.valid().chars() {
            let escape = match c {
                '"' | '\\' => format!("\\{c}"),
                '\t' => "\\t".to_owned(),
                '\n' => "\\n".to_owned(),
                '\r' => "\\r".to_owned(),
                c if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => {
                    octal(c.encode_utf8(&mut [0; 4]).as_bytes())
                }
                c => {
                    text.push(c);
                    continue;
                }
            };
            is_plain = false;
            text.push_str(&escape);
        }
        is_plain &= chunk.invalid().is_empty();
        text.push_str(&octal(chunk.invalid()));
    }
    if is_plain { text } else { format!("\"{text}\"") }
}

fn octal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\{byte:03o}")).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::diff::contents::OpaqueReason;

    fn shown(old: Option<&str>, new: Option<&str>) -> String {
        let entry = |text: &str| IndexEntry::File { mode: 0o644, size: text.len() as u64, sha256: None, at: None };
        let change = Change { path: PathBytes(b"x".to_vec()), old: old.map(entry), new: new.map(entry) };
        let content = |text: Option<&str>| Content::Text(text.unwrap_or_default().as_bytes().to_vec());
        let patch = patch(&change, &content(old), &content(new), Instant::now() + Duration::from_secs(60));
        String::from_utf8(patch.text).unwrap()
    }

    #[test]
    fn patches_have_the_format_of_git() {
        let table = [
            (Some("a\n"), Some("b\n"), "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"),
            (None, Some("a\n"), "new file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n"),
            (Some("a\nb\n"), None, "deleted file mode 100644\n--- a/x\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n"),
            (None, Some(""), "new file mode 100644\n"),
            (Some("a"), Some("a\n"), "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"),
            (
                Some("1\n2\n3\n4\n5\n6\n7\n8\n9\n"),
                Some("1\n2\n3\n4\nx\n6\n7\n8\n9\n"),
                "--- a/x\n+++ b/x\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+x\n 6\n 7\n 8\n",
            ),
        ];
        for (old, new, expected) in table {
            assert_eq!(shown(old, new), format!("diff --git a/x b/x\n{expected}"));
        }
    }

    #[test]
    fn a_binary_file_is_only_named() {
        let entry = IndexEntry::File { mode: 0o644, size: 1, sha256: None, at: None };
        let change = Change { path: PathBytes(b"a b".to_vec()), old: None, new: Some(entry) };
        let (none, binary) = (Content::Text(Vec::new()), Content::Opaque(OpaqueReason::Binary));
        let patch = patch(&change, &none, &binary, Instant::now());
        let text = String::from_utf8(patch.text).unwrap();
        assert!(text.ends_with("Binary files /dev/null and b/a b differ\n") && patch.is_opaque, "{text}");
    }

    #[test]
    fn an_ambiguous_path_is_quoted() {
        for (name, text) in [
            (&b"a b"[..], "a/a b"),
            ("größe".as_bytes(), "a/größe"),
            (b"a\nb\t\"\\", "\"a/a\\nb\\t\\\"\\\\\""),
            (b"\x1b[2J", "\"a/\\033[2J\""),
            (b"\xff", "\"a/\\377\""),
            ("\u{202e}".as_bytes(), "\"a/\\342\\200\\256\""),
        ] {
            assert_eq!(quoted("a/", &PathBytes(name.to_vec())), text);
        }
    }
}
