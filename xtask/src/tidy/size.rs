//! Rules about sizes that span files: the methods of a type, and the files in a folder.
//!
//! Folders that were larger when the rule was made are listed with their size, which may only go down.

use std::collections::BTreeMap;

use super::{
    Breach,
    rust::{methods_of, word_at},
    source::Source,
    tree::{File, Tree},
};

const TYPE_METHODS: usize = 40;
const FOLDER_FILES: usize = 20;

/// Folders with too many Rust files.
const LARGE_FOLDERS: &[(&str, usize)] =
    &[("crates/machine/src", 24), ("crates/sandbar/examples", 24), ("redteam/tests/escape", 22)];

/// Methods are counted over all inherent `impl` blocks of a package, and reported at its `Cargo.toml`.
pub(super) fn methods(file: &File, tree: &Tree) -> Vec<Breach> {
    match file.path.strip_suffix("/Cargo.toml") {
        Some(folder) if tree.has(&format!("{folder}/src")) => {
            breaches(count_methods(folder, tree), &[], TYPE_METHODS, "methods")
        }
        _ => Vec::new(),
    }
}

/// Files are counted without those of subfolders, and reported at the `Cargo.toml` of the workspace.
pub(super) fn folders(file: &File, tree: &Tree) -> Vec<Breach> {
    if file.path != "Cargo.toml" {
        return Vec::new();
    }
    breaches(count_files(tree), LARGE_FOLDERS, FOLDER_FILES, "Rust files")
}

fn breaches(mut counts: BTreeMap<String, usize>, listed: &[(&str, usize)], limit: usize, unit: &str) -> Vec<Breach> {
    let mut found = Vec::new();
    for (name, listed) in listed {
        let count = counts.remove(*name).unwrap_or(0);
        if count > *listed {
            found.push(format!("{name} has {count} {unit}, and may have {listed} at most"));
        } else if count < *listed {
            found.push(format!("{name} has {count} {unit}: lower or remove its entry in xtask/src/tidy/size.rs"));
        }
    }
    let large = counts.into_iter().filter(|(_, count)| *count > limit);
    found.extend(large.map(|(name, count)| format!("{name} has {count} {unit}, and the limit is {limit}")));
    found.into_iter().map(|reason| Breach::new(1, reason)).collect()
}

fn count_files(tree: &Tree) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for file in tree.files().iter().filter(|file| file.source.is_some()) {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        *counts.entry(folder.to_owned()).or_default() += 1;
    }
    counts
}

fn count_methods(folder: &str, tree: &Tree) -> BTreeMap<String, usize> {
    let sources = format!("{folder}/src/");
    let mut counts = BTreeMap::new();
    for file in tree.files().iter().filter(|file| file.path.starts_with(&sources) && file.is_production()) {
        for (name, methods) in file.source.iter().flat_map(inherent_impls) {
            *counts.entry(format!("{folder}::{name}")).or_default() += methods;
        }
    }
    counts
}

/// The type of each inherent `impl` block before the unit tests, and the number of its methods.
fn inherent_impls(source: &Source) -> Vec<(&str, usize)> {
    let limit = source.production_lines();
    let blocks = source.words("impl").filter(|at| source.line_of(*at) <= limit).filter_map(|at| {
        let is_item = source.code[..at].trim_end().chars().next_back().is_none_or(|c| "{};]".contains(c));
        let (header, _) = source.code[at + "impl".len()..].split_once('{').filter(|_| is_item)?;
        let subject = after_generics(header.trim_start()).split(" where").next()?.split("\nwhere").next()?.trim();
        let name = word_at(subject.split('<').next()?.trim_end().rsplit([':', ' ']).next()?);
        let is_inherent = !name.is_empty() && !subject.contains(" for ");
        is_inherent.then(|| (name, methods_of(&source.code[at..])))
    });
    blocks.collect()
}

/// What follows the generic parameters that a header may start with.
fn after_generics(header: &str) -> &str {
    let mut depth = 0;
    let mut previous = ' ';
    for (at, c) in header.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if previous != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if at == 0 { header } else { &header[at + 1..] };
        }
        previous = c;
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::check_all;

    fn reasons(counts: &[(&str, usize)], listed: &[(&str, usize)]) -> Vec<String> {
        let counts = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        breaches(counts, listed, 20, "files").into_iter().map(|breach| breach.reason).collect()
    }

    #[test]
    fn a_listed_size_only_goes_down() {
        let listed = [("a", 30)];
        assert_eq!(reasons(&[("a", 30), ("c", 20)], &listed), Vec::<String>::new());
        let lower = "a has 29 files: lower or remove its entry in xtask/src/tidy/size.rs";
        assert_eq!(reasons(&[("a", 29)], &listed), [lower]);
        assert_eq!(reasons(&[("c", 1)], &listed), [lower.replace("29", "0")]);
        assert_eq!(reasons(&[("a", 31)], &listed), ["a has 31 files, and may have 30 at most"]);
        assert_eq!(reasons(&[("c", 21)], &[]), ["c has 21 files, and the limit is 20"]);
    }

    #[test]
    fn methods_of_all_inherent_blocks_of_a_package_count() {
        let block = |header: &str, methods: usize| {
            let body = "pub async fn m() { fn inner() {} }\n".repeat(methods);
            format!("//! X.\n{header} {{\n{body}}}\nfn f() -> impl Sized {{}}\n")
        };
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", block("impl T", 9));
        let (first, fourth) = (block("impl T", 20), block("impl Clone for T", 30));
        let second = block("impl<F: Fn() -> Vec<u8>> super::T\nwhere F: for<'a> Fn(&'a u8),\n", 20) + &tests;
        let files = |third| {
            [
                ("crates/x/src/a.rs", first.as_str()),
                ("crates/x/src/b.rs", second.as_str()),
                ("crates/y/src/c.rs", third),
                ("crates/x/tests/d.rs", first.as_str()),
                ("crates/x/src/e.rs", fourth.as_str()),
            ]
        };
        let tree = |third| Tree::of(&files(third));
        let one = block("impl T", 1);
        assert_eq!(count_methods("crates/x", &tree(&one)), BTreeMap::from([("crates/x::T".to_owned(), 40)]));
        assert_eq!(count_methods("crates/y", &tree(&one)), BTreeMap::from([("crates/y::T".to_owned(), 1)]));
        let large = block("impl T", 41);
        assert_eq!(check_all(&[("fuzz/Cargo.toml", ""), ("fuzz/src/x.rs", &large)]), Vec::<String>::new());
        assert_eq!(check_all(&[("xtask/Cargo.toml", ""), ("xtask/src/x.rs", &large)]), ["1 methods"]);
    }

    #[test]
    fn files_directly_in_a_folder_count() {
        let paths: Vec<String> = (0..21).map(|number| format!("fuzz/a/{number}.rs")).collect();
        let mut files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "//! X.\n")).collect();
        files.extend([("fuzz/a/b/c.rs", "//! X.\n"), ("fuzz/a/notes.md", "")]);
        assert_eq!(count_files(&Tree::of(&files)), BTreeMap::from([("fuzz/a".into(), 21), ("fuzz/a/b".into(), 1)]));
    }
}
