//! The README and the pages in `docs/` are checked: their Rust code, their commands, their documents and their links.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test")]

#[path = "readme/command_line.rs"]
mod command_line;
#[path = "readme/page.rs"]
mod page;

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use self::{
    command_line::CommandLine,
    page::{Block, Page, anchors, links},
};

/// Folders whose Rust files are compiled and run by tests. Pages show parts of these files.
const COMPILED: [&str; 7] = [
    "crates/sandbar/examples",
    "crates/sandbar/tests",
    "crates/sandbar/src",
    "crates/mock/src",
    "crates/machine/src",
    "crates/runs/src",
    "crates/runs/examples",
];

/// The program that reads documents: `FORMAT` as the argument, the text on standard input.
const READ_DOCUMENT: &str = "\
import sys
text = sys.stdin.buffer.read().decode()
if sys.argv[1] == 'json':
    import json; json.loads(text)
elif sys.argv[1] == 'toml':
    import tomllib; tomllib.loads(text)
else:
    try:
        import yaml
    except ImportError:
        print('not checked: this Python has no yaml', file=sys.stderr)
    else:
        yaml.safe_load(text)
";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

/// Names of the files directly in `docs/` that end with `.md`.
fn names_of_docs() -> Vec<String> {
    let files = fs::read_dir(root().join("docs")).expect("docs");
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.ends_with(".md")).collect();
    names.sort();
    names
}

/// The README and every page in `docs/`.
fn pages() -> Vec<Page> {
    let docs = names_of_docs().into_iter().map(|name| format!("docs/{name}"));
    std::iter::once("README.md".to_owned()).chain(docs).map(|path| Page::read(root(), path)).collect()
}

/// Blocks of all pages that have one of these languages, with `path:line` of each.
fn blocks(languages: &[&str]) -> Vec<(String, Block)> {
    let has_language = |block: &Block| languages.contains(&block.language.as_str());
    let of_page = |page: Page| page.blocks().into_iter().map(move |block| (page.at(block.line), block));
    pages().into_iter().flat_map(of_page).filter(|(_, block)| has_language(block)).collect()
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// Code that can be compared: lines without indentation; empty lines, and lines that doc tests hide, are left out.
fn comparable<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let lines = lines.map(str::trim).filter(|line| !line.is_empty() && *line != "#" && !line.starts_with("# "));
    lines.fold("\n".to_owned(), |text, line| text + line + "\n")
}

/// The code of a file, and the doc tests in its comments. Code outside of `examples` and `tests` is not for pages.
fn code_of(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).expect("a source");
    let prose = text.lines().map(str::trim_start);
    let prose = prose.filter_map(|line| line.strip_prefix("//!").or_else(|| line.strip_prefix("///")));
    let mut code = vec![comparable(prose)];
    if !path.components().any(|part| part.as_os_str() == "src") {
        code.push(comparable(text.lines()));
    }
    code
}

#[test]
fn rust_code_on_pages_is_part_of_a_file_that_is_compiled() {
    let mut files = Vec::new();
    COMPILED.iter().for_each(|folder| rust_files(&root().join(folder), &mut files));
    let code: Vec<String> = files.iter().flat_map(|path| code_of(path)).collect();
    let blocks = blocks(&["rust"]);
    assert!(blocks.len() >= 18, "{} blocks", blocks.len());
    let shown = |block: &Block| comparable(block.text.lines());
    let unknown: Vec<_> =
        blocks.iter().filter(|(_, block)| !code.iter().any(|code| code.contains(&shown(block)))).collect();
    assert!(unknown.is_empty(), "not part of any file in {COMPILED:?}: {unknown:#?}");
}

#[test]
fn whole_examples_are_shown_as_they_are() {
    for (page, name) in [("sessions.md", "quickstart.rs"), ("agents.md", "weather.rs")] {
        let text = fs::read_to_string(root().join("docs").join(page)).expect("the page");
        let example = fs::read_to_string(root().join("crates/sandbar/examples").join(name)).expect("the example");
        let (_, code) = example.split_once("\nuse ").expect("the example imports something");
        assert!(text.contains(&format!("```rust\nuse {code}```")), "{page} and {name} differ");
    }
}

#[test]
fn examples_that_pages_name_exist() {
    let examples = root().join("crates/sandbar/examples");
    let text: String = pages().into_iter().map(|page| page.text).collect();
    let tables = text.split("| idea |").skip(1).filter_map(|rest| rest.split("\n\n").next());
    let rows = tables.flat_map(|table| table.lines().skip(2));
    let names: Vec<&str> = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).collect();
    assert!(names.len() >= 19, "{names:?}");
    for name in names {
        let example = examples.join(name);
        assert!(example.with_extension("rs").is_file() || example.join("main.rs").is_file(), "no example {name}");
    }
}

#[test]
fn commands_on_pages_exist_and_know_their_options() {
    let command_line = CommandLine::read(&root().join("crates/cli/src"));
    let mut checked = 0;
    let mut wrong = Vec::new();
    for page in pages() {
        for (line, text) in page.commands() {
            let found = command_line.check(&text);
            checked += found.checked;
            wrong.extend(found.wrong.into_iter().map(|reason| format!("{}: {reason}: {text}", page.at(line))));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked >= 60, "only {checked} commands were found");
}

#[test]
fn every_subcommand_is_on_a_page() {
    let text: String = pages().into_iter().map(|page| page.text).collect();
    for path in CommandLine::read(&root().join("crates/cli/src")).paths() {
        let last = path.last().expect("a subcommand");
        let is_named = text.contains(&format!("sandbar {}", path.join(" "))) || text.contains(&format!("`{last}`"));
        assert!(is_named, "no page names `sandbar {}`", path.join(" "));
    }
}

#[test]
fn documents_on_pages_are_well_formed() {
    let blocks = blocks(&["json", "toml", "yaml"]);
    assert!(blocks.len() >= 8, "{} blocks", blocks.len());
    for (at, block) in blocks {
        let mut python = Command::new("python3")
            .args(["-c", READ_DOCUMENT, &block.language])
            .stdin(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        python.stdin.take().expect("a pipe").write_all(block.text.as_bytes()).expect("python3 reads");
        assert!(python.wait().expect("python3 ends").success(), "{at}: not {}", block.language);
    }
}

#[test]
fn blocks_have_a_language_that_is_known() {
    // The two commands that set the project up are the only blocks without a language.
    let known = ["rust", "console", "json", "toml", "yaml"];
    let of_page = |page: Page| page.blocks().into_iter().map(move |block| (page.at(block.line), block));
    let unknown = pages().into_iter().flat_map(of_page).filter(|(_, block)| !known.contains(&block.language.as_str()));
    let unknown: Vec<_> = unknown.map(|(at, block)| (at, block.text)).collect();
    let texts: Vec<_> = unknown.iter().map(|(_, text)| text.trim()).collect();
    assert_eq!(texts, ["cargo run --release -- demo", "cargo xtask test"], "{unknown:#?}");
}

#[test]
fn the_summary_names_every_page_of_the_book() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).expect("SUMMARY.md");
    let mut named: Vec<String> = links(&summary).map(|(_, link)| link.to_owned()).collect();
    named.push("SUMMARY.md".to_owned());
    named.sort();
    let in_folders = named.iter().filter(|name| name.contains('/'));
    in_folders.for_each(|name| assert!(root().join("docs").join(name).is_file(), "{name} does not exist"));
    named.retain(|name| !name.contains('/'));
    assert_eq!(named, names_of_docs());
}

#[test]
fn the_readme_is_short_and_leads_to_every_page() {
    let readme = fs::read_to_string(root().join("README.md")).expect("README.md");
    let lines = readme.lines().count();
    assert!(lines <= 200, "README.md has {lines} lines");
    for name in names_of_docs().iter().filter(|name| *name != "SUMMARY.md") {
        assert!(links(&readme).any(|(_, link)| link == format!("docs/{name}")), "README.md has no link to {name}");
    }
}

#[test]
fn links_to_headings_lead_to_headings() {
    let mut broken = Vec::new();
    for page in pages() {
        for (line, link) in links(&page.text) {
            let Some((path, anchor)) = link.split_once('#').filter(|_| !link.contains("://")) else { continue };
            let target = match path {
                "" => root().join(&page.path),
                path => root().join(&page.path).parent().expect("a folder").join(path),
            };
            let text = fs::read_to_string(&target).unwrap_or_default();
            if !anchors(&text).any(|heading| heading == anchor) {
                broken.push(format!("{}: {link}", page.at(line)));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
