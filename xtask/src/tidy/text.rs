//! Rules about any text file: names that must not appear, examples that must run, links that must lead somewhere.

use super::{
    Breach,
    source::is_ident,
    tree::{File, Tree},
};

const PROVIDERS: &[&str] = &["docker", "e2b", "modal", "kubernetes", "daytona", "runloop", "blaxel", "vercel"];
const BLIND_TO_PROVIDERS: &[&str] = &["crates/machine/src/", "crates/sandbox/src/", "crates/agent/src/"];

/// The layers above and at the waist know no provider by name.
pub(super) fn provider_name(file: &File, _tree: &Tree) -> Vec<Breach> {
    if !BLIND_TO_PROVIDERS.iter().any(|folder| file.path.starts_with(folder)) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        let lower = line.to_lowercase();
        let named =
            PROVIDERS.iter().find(|name| lower.match_indices(**name).any(|(at, _)| stands_out(&lower, at, name)));
        found.extend(named.map(|name| Breach::new(at + 1, format!("this layer knows no provider, and {name} is one"))));
    }
    found
}

/// A name inside a longer word (`modality`) does not count, a name that is a part of one (`docker_client`) does.
fn stands_out(line: &str, at: usize, name: &str) -> bool {
    let letter = |c: Option<char>| c.is_some_and(char::is_alphabetic);
    let inside = letter(line[..at].chars().next_back()) || letter(line[at + name.len()..].chars().next());
    !inside || name != "modal"
}

/// People where there are programs, see `STYLE.md`.
const PRONOUNS: &[&str] = &["nobody", "whoever", "somebody", "everybody", "anybody", "someone", "anyone", "everyone"];
/// The files that list these words, and the page of promises, whose names are public.
const WITH_PRONOUNS: &[&str] = &["STYLE.md", "docs/conformance.md", "xtask/src/tidy/text.rs"];

/// A sentence names the program, not a person: in comments and strings of Rust files, and in Markdown outside of code blocks.
pub(super) fn pronoun(file: &File, _tree: &Tree) -> Vec<Breach> {
    let is_markdown = file.path.ends_with(".md");
    if WITH_PRONOUNS.contains(&file.path.as_str()) || !(is_markdown || file.source.is_some()) {
        return Vec::new();
    }
    let code: Vec<&str> = file.source.as_ref().map_or(Vec::new(), |source| source.code.lines().collect());
    let mut found = Vec::new();
    let mut in_block = false;
    for (at, line) in file.text.lines().enumerate() {
        in_block ^= is_markdown && line.trim_start().starts_with("```");
        if !in_block {
            let words = pronouns(line, code.get(at).unwrap_or(&""));
            found.extend(words.map(|word| Breach::new(at + 1, format!("name the program instead of `{word}`"))));
        }
    }
    found
}

/// The pronouns of a line that are not code. The account `nobody` is exempt if only quotes or backticks surround it.
fn pronouns(line: &str, code: &str) -> impl Iterator<Item = &'static str> {
    let lower = line.to_ascii_lowercase();
    let has = |word: &str| {
        lower.match_indices(word).any(|(at, _)| {
            let (before, after) = (line[..at].chars().next_back(), line[at + word.len()..].chars().next());
            let is_account = line[at..].starts_with("nobody") && before == after && matches!(after, Some('"' | '`'));
            let is_code = code.as_bytes().get(at) == Some(&line.as_bytes()[at]);
            !(is_code || is_account || before.is_some_and(is_ident) || after.is_some_and(is_ident))
        })
    };
    let words: Vec<&str> = PRONOUNS.iter().copied().filter(|word| has(word)).collect();
    words.into_iter()
}

/// Words in a URL's host name that give away a private package mirror.
const MIRRORS: &[&str] = &["registry", "mirror", "artifactory", "nexus", "jfrog", "proxy"];
/// Written in halves, so that this file keeps its own rule.
const HOST_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/root/.ca", "rgo"), concat!("/Us", "ers/")];
const REDIRECTS: &[&str] = &[concat!("replace-", "with"), concat!("index = \"spar", "se+")];
const DEFAULT_REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Nothing tells on which machine, or through which package mirror, the project was built.
pub(super) fn host_detail(file: &File, _tree: &Tree) -> Vec<Breach> {
    let mut found = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        let path = HOST_PATHS.iter().find(|path| {
            line.match_indices(**path)
                .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-".contains(c)))
        });
        found.extend(path.map(|path| Breach::new(at + 1, format!("{path} is a path of a developer's computer"))));
        let foreign_source = file.path.ends_with("Cargo.lock")
            && line.strip_prefix("source = ").is_some_and(|source| source.trim_matches('"') != DEFAULT_REGISTRY);
        let mirror = hosts(line).any(|host| MIRRORS.iter().any(|word| host.contains(word)));
        if foreign_source || mirror || REDIRECTS.iter().any(|key| line.contains(key)) {
            found.push(Breach::new(at + 1, "packages come from the default registry, and no other is named"));
        }
    }
    found
}

fn hosts(line: &str) -> impl Iterator<Item = &str> {
    line.split("://").skip(1).map(|rest| rest.split(['/', '"', ' ', '`', ')', ':']).next().unwrap_or_default())
}

/// An example that is not compiled is not known to be right.
pub(super) fn ignored_example(file: &File, _tree: &Tree) -> Vec<Breach> {
    let is_rust = file.path.ends_with(".rs");
    if !is_rust && !file.path.ends_with(".md") {
        return Vec::new();
    }
    let ignored = |line: &str| {
        let line = line.trim_start();
        let prose = if is_rust { line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) } else { Some(line) };
        let fence = prose.and_then(|prose| prose.trim_start().strip_prefix("```"));
        fence.is_some_and(|tags| tags.split([',', ' ']).any(|tag| tag.starts_with("ignore")))
    };
    let lines = file.text.lines().enumerate().filter(|(_, line)| ignored(line));
    lines.map(|(at, _)| Breach::new(at + 1, "an example is compiled: use `no_run`, `text` or make it run")).collect()
}

/// A link to a file of the repository leads to a file of the repository.
pub(super) fn broken_link(file: &File, tree: &Tree) -> Vec<Breach> {
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut found = Vec::new();
    let mut in_code = false;
    for (at, line) in file.text.lines().enumerate() {
        in_code ^= line.trim_start().starts_with("```");
        if in_code {
            continue;
        }
        for link in links(line).filter(|link| !tree.has(&resolve(folder, link))) {
            found.push(Breach::new(at + 1, format!("{link} does not exist")));
        }
    }
    found
}

/// The targets of a line's links that are local files, without the part after `#`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let reference = line.starts_with('[').then(|| line.split_once("]: ")).flatten().map(|(_, target)| target.trim());
    inline
        .chain(reference)
        .filter(|link| !link.contains("://") && !link.starts_with("mailto:") && !link.starts_with('#'))
        .filter_map(|link| link.split('#').next())
}

/// A relative link as a path of the repository; one that leaves it stays as it is, and is not found.
fn resolve(folder: &str, link: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." if !parts.is_empty() => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{check, check_all};

    #[test]
    fn no_provider_is_named_at_the_waist() {
        assert_eq!(check("crates/machine/src/x.rs", "//! X, as Docker does.\n"), ["1 provider"]);
        assert_eq!(
            check("crates/sandbox/src/x.rs", "//! X.\nstruct E2bClient;\nfn modal() {}\n"),
            ["2 provider", "3 provider"]
        );
        assert!(check("crates/machine/src/x.rs", "//! A modality.\n").is_empty());
        assert!(check("crates/clients/src/docker.rs", "//! Docker.\n").is_empty());
    }

    #[test]
    fn pronouns_for_people_are_found_in_comments_strings_and_prose() {
        for word in PRONOUNS {
            let text = format!("//! X for {word}'s.\n/* {} */\nfn f() {{ g(\"a-{word}\\n\") }}\n", word.to_uppercase());
            assert_eq!(check("fuzz/x.rs", &text), ["1 pronoun", "2 pronoun", "3 pronoun"], "{word}");
            assert_eq!(check("docs/x.md", &format!("For **{word}**.\n")), ["1 pronoun"]);
            assert!(check("fuzz/x.rs", &format!("//! X.\nfn f_{word}_f() {{ {word}() }}\n")).is_empty());
            assert!(check("docs/x.md", &format!("`a_{word}`\n```\n{word}\n```\n")).is_empty());
            assert!(check("STYLE.md", word).is_empty() && check("LICENSE-MIT", word).is_empty());
        }
        assert!(check("fuzz/x.rs", "//! User `nobody`.\nfn f() { user(\"nobody\") }\n").is_empty());
        assert_eq!(check("docs/x.md", "The user \"nobody or `Nobody`\".\n"), ["1 pronoun"]);
    }

    #[test]
    fn paths_of_a_developers_computer_are_found() {
        for path in HOST_PATHS {
            assert_eq!(check("README.md", &format!("See {path}x.\n")), ["1 host-detail"]);
        }
        assert!(check("README.md", &format!("Files are in /workspace/ and src{} of it.\n", HOST_PATHS[0])).is_empty());
    }

    #[test]
    fn no_registry_but_the_default_is_named() {
        for line in ["source = \"registry+https://packages.example/index\"", "source = \"git+https://github.com/a/b\""]
        {
            assert_eq!(check("Cargo.lock", &format!("{line}\n")), ["1 host-detail"], "{line}");
        }
        assert!(check("Cargo.lock", &format!("source = \"{DEFAULT_REGISTRY}\"\n")).is_empty());
        assert_eq!(check("x.sh", &format!("curl {}://{}.example/simple\n", "https", MIRRORS[1])), ["1 host-detail"]);
        for key in REDIRECTS {
            assert_eq!(check(".cargo/config.toml", &format!("{key} = \"x\"\n")), ["1 host-detail"]);
        }
    }

    #[test]
    fn examples_are_compiled() {
        assert_eq!(check("crates/cli/src/x.rs", "//! X.\n//! ```ignore\n//! ```\n"), ["2 doc-ignore"]);
        assert_eq!(check("crates/cli/src/x.rs", "//! X.\n\n/// ```rust,ignore\n/// ```\n"), ["3 doc-ignore"]);
        assert_eq!(check("docs/x.md", "```rust,ignore-windows\n```\n"), ["1 doc-ignore"]);
        assert!(check("crates/cli/src/x.rs", "//! X.\n//! ```no_run\n//! ```\n").is_empty());
    }

    #[test]
    fn links_lead_somewhere() {
        let guide = "[a](../README.md#top) [b](./other.md) [c](https://example.com/x) [d](#here) [e](/nowhere)\n\n[f]: gone.md\n";
        let findings = check_all(&[("README.md", ""), ("docs/guide.md", guide)]);
        assert_eq!(findings, ["1 link", "1 link", "3 link"]);
        assert!(check("x.md", "```\n[a](gone.md)\n```\n").is_empty());
    }
}
