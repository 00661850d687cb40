//! The order in which entries are created: as many at once as possible, but overlapping entries one after the other.

use std::collections::HashMap;

use crate::{Entry, WorkspacePath};

/// Entries that do not overlap.
#[derive(Debug, Default)]
pub(super) struct Wave<'a> {
    /// Entries whose content is in the manifest: they are sent together, in order.
    pub(super) inline: Vec<(WorkspacePath, &'a Entry)>,
    /// Entries that must be read or fetched: each is sent alone.
    pub(super) sources: Vec<(WorkspacePath, &'a Entry)>,
}

/// Sorts entries into waves. Linear in the number of path components.
pub(super) fn waves(entries: Vec<(WorkspacePath, &Entry)>) -> Vec<Wave<'_>> {
    let mut waves: Vec<Wave<'_>> = Vec::new();
    // The last wave with a source at exactly this path, and the last wave with anything at or below this path.
    let mut filled: HashMap<String, usize> = HashMap::new();
    let mut touched: HashMap<String, usize> = HashMap::new();
    for (path, entry) in entries {
        let is_source = !matches!(entry, Entry::File(_) | Entry::Dir(_));
        let after_above = above(path.as_str()).filter_map(|part| filled.get(part)).max().map(|wave| wave + 1);
        let after_below = touched.get(path.as_str()).filter(|_| is_source).map(|wave| wave + 1);
        let wave = after_above.max(after_below).unwrap_or(0);
        for part in above(path.as_str()) {
            let last = touched.entry(part.to_owned()).or_default();
            *last = wave.max(*last);
        }
        if is_source {
            filled.insert(path.as_str().to_owned(), wave);
        }
        waves.resize_with(waves.len().max(wave + 1), Wave::default);
        let list = if is_source { &mut waves[wave].sources } else { &mut waves[wave].inline };
        list.push((path, entry));
    }
    waves
}

/// The path itself and its parents.
fn above(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.char_indices().filter(|(_, c)| *c == '/').map(|(at, _)| at);
    ends.chain([path.len()]).map(|end| &path[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dir, File, LocalDir};

    fn plan(entries: &[(&str, Entry)]) -> Vec<String> {
        let entries = entries.iter().map(|(path, entry)| (WorkspacePath::new(path).unwrap(), entry)).collect();
        let names = |list: &[(WorkspacePath, &Entry)]| {
            list.iter().map(|(path, _)| path.to_string()).collect::<Vec<_>>().join(" ")
        };
        waves(entries).iter().map(|wave| format!("{} | {}", names(&wave.inline), names(&wave.sources))).collect()
    }

    fn file() -> Entry {
        File::new("x").into()
    }

    fn tree() -> Entry {
        LocalDir::new("src").into()
    }

    #[test]
    fn entries_that_do_not_overlap_share_a_wave() {
        let entries = [("a", file()), ("b", tree()), ("c/d", file()), ("e", tree()), ("c", Dir::new().into())];
        assert_eq!(plan(&entries), ["a c/d c | b e"]);
    }

    #[test]
    fn an_entry_inside_a_source_comes_after_it() {
        let entries =
            [("repo", tree()), ("repo/a", file()), ("repo/sub", tree()), ("repo/sub/b", file()), ("x", file())];
        assert_eq!(plan(&entries), ["x | repo", "repo/a | repo/sub", "repo/sub/b | "]);
    }

    #[test]
    fn a_source_over_files_comes_after_them() {
        let entries = [("repo/a", file()), ("repo", tree()), ("repository", file())];
        assert_eq!(plan(&entries), ["repo/a repository | ", " | repo"]);
    }
}
