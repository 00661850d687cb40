//! `cargo xtask api`: the public items of each library, one on a line, from the pages that rustdoc writes. They are checked in, so
//! that a change of a public item shows in the diff, and the gate compares them.

mod page;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use clap::Args;

use self::page::{Entry, Page};
use crate::program::{self, Failure, Result};

/// Where the lists are.
const FOLDER: &str = "docs/api";

#[derive(Args)]
pub(crate) struct Options {
    /// Compare the lists, and write nothing
    #[arg(long)]
    check: bool,
}

/// Writes all lists anew, or compares them.
pub(crate) fn run(options: &Options) -> Result {
    program::run(&mut crate::test::docs())?;
    if options.check {
        return compare();
    }
    let folder = program::root().join(FOLDER);
    // The list of a library that there is no more goes too.
    let _not_there = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| Failure::new(format!("{FOLDER}: {error}")))?;
    for library in libraries()? {
        let path = program::root().join(library.list());
        fs::write(&path, library.items()?).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    }
    Ok(())
}

/// Compares all lists with the pages that were written last.
pub(crate) fn compare() -> Result {
    let libraries = libraries()?;
    let mut differences = 0;
    for list in lists().into_iter().filter(|list| !libraries.iter().any(|library| library.list() == *list)) {
        println!("{list}: there is no such library");
        differences += 1;
    }
    for library in libraries {
        let (ours, named) = (library.compiler()?, named_compiler()?);
        if ours != named {
            println!(
                "== LEFT OUT: the lists of public items, because this is Rust {ours}, and rust-toolchain.toml names {named}"
            );
            return Ok(());
        }
        let list = library.list();
        let listed = fs::read_to_string(program::root().join(&list)).unwrap_or_default();
        for line in differing(&listed, &library.items()?) {
            println!("{list}: {line}");
            differences += 1;
        }
    }
    if differences == 0 {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{differences} public items differ from {FOLDER}; if that is intended, run `cargo xtask api`, read the diff, and add a line \
         to CHANGELOG.md"
    )))
}

/// The lists that are checked in.
fn lists() -> Vec<String> {
    let files = fs::read_dir(program::root().join(FOLDER)).into_iter().flatten().flatten();
    files.map(|file| format!("{FOLDER}/{}", file.file_name().to_string_lossy())).collect()
}

/// The compiler whose pages the lists are made from; another one writes signatures differently.
fn named_compiler() -> Result<String> {
    let file = program::root().join("rust-toolchain.toml");
    let text = fs::read_to_string(file).map_err(|error| Failure::new(format!("rust-toolchain.toml: {error}")))?;
    let channel = text.lines().find_map(|line| line.strip_prefix("channel = \"")?.strip_suffix('"'));
    channel.map(str::to_owned).ok_or_else(|| Failure::new("rust-toolchain.toml names no channel"))
}

/// Lines that only one of two sorted lists has: `-` for the first, `+` for the second.
fn differing(listed: &str, found: &str) -> Vec<String> {
    let (listed, found) = (listed.lines().collect::<BTreeSet<_>>(), found.lines().collect::<BTreeSet<_>>());
    let gone = listed.difference(&found).map(|line| format!("- {line}"));
    gone.chain(found.difference(&listed).map(|line| format!("+ {line}"))).collect()
}

/// A crate of ours that others can depend on.
struct Library {
    package: String,
    pages: PathBuf,
}

/// The libraries among our crates that are published, by name.
fn libraries() -> Result<Vec<Library>> {
    let crates = program::root().join("crates");
    let folders = fs::read_dir(&crates).map_err(|error| Failure::new(format!("crates: {error}")))?;
    let mut libraries: Vec<Library> = folders.filter_map(|folder| library(&folder.ok()?.path())).collect();
    libraries.sort_by(|one, other| one.package.cmp(&other.package));
    Ok(libraries)
}

fn library(folder: &Path) -> Option<Library> {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
    if !folder.join("src/lib.rs").is_file() || manifest.contains("publish = false") {
        return None;
    }
    let package = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))?.to_owned();
    let pages = program::target().join("doc").join(package.replace('-', "_"));
    Some(Library { package, pages })
}

impl Library {
    fn list(&self) -> String {
        format!("{FOLDER}/{}.txt", self.package)
    }

    fn name(&self) -> String {
        self.package.replace('-', "_")
    }

    fn compiler(&self) -> Result<String> {
        let html = self.read("index.html")?;
        Ok(Page::version(&html).unwrap_or_default().to_owned())
    }

    /// The list: a line for each item and each of its members, sorted.
    fn items(&self) -> Result<String> {
        let mut lines = BTreeSet::new();
        let mut modules = vec![String::new()];
        while let Some(module) = modules.pop() {
            let index = self.read(&format!("{module}index.html"))?;
            let index = Page::new(&index);
            lines.extend(index.exports().into_iter().map(|export| format!("{}{export}", path(&module))));
            for Entry { kind, address } in index.entries() {
                let address = format!("{module}{address}");
                let html = self.read(&address)?;
                let page = Page::new(&html);
                let inner = address.strip_suffix("index.html").filter(|_| kind == "mod");
                let name = path(inner.unwrap_or(&address));
                if !page.is_of(&self.name()) {
                    lines.insert(format!("{name}: {kind} of another crate"));
                } else if let Some(inner) = inner {
                    modules.push(inner.to_owned());
                } else {
                    lines.extend(item(&name, &kind, &page));
                }
            }
        }
        let lines: Vec<String> = lines.into_iter().collect();
        Ok(format!("# Public items of {}, written by `cargo xtask api`.\n{}\n", self.package, lines.join("\n")))
    }

    fn read(&self, address: &str) -> Result<String> {
        let path = self.pages.join(address);
        fs::read_to_string(&path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
    }
}

/// The lines of one item.
fn item(name: &str, kind: &str, page: &Page<'_>) -> Vec<String> {
    let declared = match kind {
        "struct" | "enum" | "union" => page.declaration(),
        "trait" => vec![page.head()],
        _ => vec![page.declaration().join(" ")],
    };
    let own = name.rsplit("::").next().unwrap_or(name);
    declared.into_iter().chain(page.members(own)).map(|line| format!("{name}: {line}")).collect()
}

/// The path of an item in its crate, from the address of its page: `a/b/struct.C.html` is `a::b::C`, and the module `a/` is `a::`.
fn path(address: &str) -> String {
    let (module, file) = address.rsplit_once('/').map_or(("", address), |(module, file)| (module, file));
    let name = file.strip_suffix(".html").and_then(|file| file.split_once('.')).map_or("", |(_, name)| name);
    let module = if module.is_empty() { String::new() } else { format!("{}::", module.replace('/', "::")) };
    format!("{module}{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_named_by_its_path() {
        for (address, expected) in
            [("struct.C.html", "C"), ("a/b/fn.c.html", "a::b::c"), ("a/b/", "a::b::"), ("", ""), ("macro.m.html", "m")]
        {
            assert_eq!(path(address), expected, "{address}");
        }
    }

    #[test]
    fn a_difference_says_on_which_side_a_line_is() {
        assert_eq!(differing("a\nb\n", "b\nc\n"), ["- a", "+ c"]);
        assert!(differing("a\nb\n", "a\nb\n").is_empty());
    }

    #[test]
    fn published_libraries_have_a_list_and_others_have_none() {
        let names: Vec<String> = libraries().expect("readable").into_iter().map(|library| library.package).collect();
        assert!(names.contains(&"sandbar".to_owned()) && names.contains(&"sandbar-machine".to_owned()), "{names:?}");
        assert!(
            !names.contains(&"sandbar-cli".to_owned()) && !names.contains(&"sandbar-fakes".to_owned()),
            "{names:?}"
        );
    }
}
