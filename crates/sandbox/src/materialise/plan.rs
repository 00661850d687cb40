//! In which order entries become files: as much at once as possible, but what lies over another thing comes after it.

use std::collections::HashMap;

use crate::{Entry, WorkspacePath};

/// Entries that do not disturb each other.
#[derive(Debug, Default)]
pub(super) struct Wave<'a> {
    /// Those whose bytes the manifest itself holds: they travel together, in order.
    pub(super) inline: Vec<(WorkspacePath, &'a Entry)>,
    /// Those that must be read or fetched: each travels alone.
    pub(super) sources: Vec<(WorkspacePath, &'a Entry)>,
}

/// Puts entries into waves. Linear in the number of path parts.
pub(super) fn waves(entries: Vec<(WorkspacePath, &Entry)>) -> Vec<Wave<'_>> {
    let mut waves: Vec<Wave<'_>> = Vec::new();
    // The last wave in which a source fills exactly this path, and the last in which anything is at or below it.
    let mut filled: HashMap<String, usize> = HashMap::new();
    let mut touched: HashMap<String, usize> = HashMap::new();
    for (path, entry) in entries {
        let is_source = !matches!(entry, Entry::File(_) | Entry::Dir(_));
        let after_above = above(path.as_str()).filter_map(|place| filled.get(place)).max().map(|wave| wave + 1);
        let after_below = touched.get(path.as_str()).filter(|_| is_source).map(|wave| wave + 1);
        let wave = after_above.max(after_below).unwrap_or(0);
        for place in above(path.as_str()) {
            let last = touched.entry(place.to_owned()).or_default();
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

/// The path itself and everything above it.
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
    fn what_does_not_overlap_goes_at_once() {
        let entries = [("a", file()), ("b", tree()), ("c/d", file()), ("e", tree()), ("c", Dir::new().into())];
        assert_eq!(plan(&entries), ["a c/d c | b e"]);
    }

    #[test]
    fn what_lies_over_a_source_comes_after_it() {
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
