//! Rules about Rust files: how they open, how big they are, and who may do what.

use super::{
    Breach,
    source::{Source, is_ident},
    tree::{File, Tree},
};

const FILE_LINES: usize = 500;
const CLIENT_LINES: usize = 450;
const TRAIT_METHODS: usize = 16;
const FORBIDDEN_NAMES: &[&str] = &["utils", "util", "helpers", "helper", "common", "manager", "base", "core"];
/// Participles and placeholders: they say what happened to a thing, not what the thing is.
const FORBIDDEN_TYPES: &[&str] =
    &["Place", "Found", "Held", "Told", "Said", "Kept", "Left", "Seen", "Trouble", "Ground"];
const SEAMS: &[&str] = &[
    "Machine",
    "Files",
    "Commands",
    "Ports",
    "Snapshots",
    "SandboxClient",
    "Model",
    "Tool",
    "RunEnvironment",
    "InputTransform",
    "Capability",
    "Provider",
    "Leftovers",
    "SnapshotStore",
    "Materialize",
    "EnvironmentSession",
    "Hooks",
];

/// If you cannot write the sentence, the file is two files.
pub(super) fn opening(file: &File, _tree: &Tree) -> Vec<Breach> {
    let opens =
        file.text.strip_prefix("//!").is_some_and(|rest| rest.lines().next().is_some_and(|line| line.len() > 1));
    if file.source.is_none() || opens {
        return Vec::new();
    }
    vec![Breach::new(1, "a file opens with `//!` and what it is")]
}

pub(super) fn file_size(file: &File, _tree: &Tree) -> Vec<Breach> {
    let Some(source) = file.source.as_ref().filter(|_| file.is_production()) else { return Vec::new() };
    let limit = if file.crate_name() == Some("clients") { CLIENT_LINES } else { FILE_LINES };
    let lines = source.production_lines();
    if lines <= limit {
        return Vec::new();
    }
    vec![Breach::new(limit + 1, format!("{lines} production lines, and the limit here is {limit}"))]
}

pub(super) fn trait_size(file: &File, _tree: &Tree) -> Vec<Breach> {
    let Some(source) = &file.source else { return Vec::new() };
    let mut found = Vec::new();
    for at in source.words("trait") {
        let methods = methods_of(&source.code[at..]);
        if methods > TRAIT_METHODS {
            let reason = format!("a trait of {methods} methods, and the limit is {TRAIT_METHODS}");
            found.push(Breach::new(source.line_of(at), reason));
        }
    }
    found
}

/// The number of functions directly in the next pair of braces.
pub(super) fn methods_of(code: &str) -> usize {
    let mut depth = 0;
    let mut methods = 0;
    let mut previous = ' ';
    for (at, c) in code.char_indices() {
        match c {
            ';' if depth == 0 => break,
            '{' => depth += 1,
            '}' if depth <= 1 => break,
            '}' => depth -= 1,
            'f' if depth == 1 && !is_ident(previous) && code[at..].starts_with("fn ") => methods += 1,
            _ => {}
        }
        previous = c;
    }
    methods
}

/// A name that says nothing collects everything.
pub(super) fn forbidden_name(file: &File, _tree: &Tree) -> Vec<Breach> {
    let Some(source) = &file.source else { return Vec::new() };
    let in_path = file.path.trim_end_matches(".rs").split('/').find(|part| FORBIDDEN_NAMES.contains(part));
    let mut found: Vec<Breach> = in_path.map(|name| Breach::new(1, nothing_said(name))).into_iter().collect();
    for at in source.words("mod") {
        let name = word_at(source.code[at + "mod".len()..].trim_start());
        if FORBIDDEN_NAMES.contains(&name) {
            found.push(Breach::new(source.line_of(at), nothing_said(name)));
        }
    }
    found
}

/// A type is named by a noun of its domain.
pub(super) fn type_name(file: &File, _tree: &Tree) -> Vec<Breach> {
    let Some(source) = &file.source else { return Vec::new() };
    let mut found = Vec::new();
    for keyword in ["struct", "enum", "trait"] {
        for at in source.words(keyword) {
            let name = word_at(source.code[at + keyword.len()..].trim_start());
            if FORBIDDEN_TYPES.contains(&name) {
                found.push(Breach::new(source.line_of(at), nothing_said(name)));
            }
        }
    }
    found
}

fn nothing_said(name: &str) -> String {
    format!("`{name}` does not say what the thing is")
}

pub(super) fn word_at(code: &str) -> &str {
    &code[..code.find(|c| !is_ident(c)).unwrap_or(code.len())]
}

/// Shell text is written in one place, where its quoting is; everywhere else a command is its arguments.
pub(super) fn shell_text(file: &File, _tree: &Tree) -> Vec<Breach> {
    let exempt = file.path.starts_with("crates/machine/src/posix") || file.path.contains("conformance");
    let Some(source) = file.source.as_ref().filter(|_| file.is_production() && !exempt) else { return Vec::new() };
    let is_shell = |text: &str| matches!(text.rsplit('/').next(), Some("sh" | "bash" | "dash" | "zsh"));
    let is_script = |text: &str| text.starts_with('-') && text.ends_with('c') && text.len() <= 4;
    let mut found = Vec::new();
    for (at, literal) in source.strings.iter().enumerate() {
        let next = source.strings.get(at + 1).map_or("", |next| next.content.as_str());
        let mut words = literal.content.split_whitespace();
        let inline = words.next().is_some_and(is_shell) && words.next().is_some_and(is_script);
        let line = source.line_of(literal.offset);
        if inline || (is_shell(&literal.content) && is_script(next)) {
            found.push((line, "shell text is built in crates/machine/src/posix only; elsewhere, pass arguments"));
        }
    }
    in_production(source, found)
}

/// Configuration enters where a person can see it: the command line, and constructors named for it.
pub(super) fn environment(file: &File, _tree: &Tree) -> Vec<Breach> {
    let Some(source) = file.source.as_ref().filter(|_| file.is_production()) else { return Vec::new() };
    if file.crate_name() == Some("cli") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (at, _) in source.code.match_indices("env::var") {
        let function = source.words("fn").take_while(|start| *start < at).last();
        let name = function.map_or("", |start| word_at(source.code[start + "fn".len()..].trim_start()));
        if !name.ends_with("from_env") {
            found.push((source.line_of(at), "the environment is read in cli and in functions named `from_env` only"));
        }
    }
    in_production(source, found)
}

/// A library is silent.
pub(super) fn print(file: &File, _tree: &Tree) -> Vec<Breach> {
    let Some(source) = file.source.as_ref().filter(|_| file.is_production()) else { return Vec::new() };
    if file.path == "crates/cli/src/render.rs" || file.path.starts_with("xtask/") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for name in ["print", "println", "eprint", "eprintln"] {
        let calls = source.words(name).filter(|at| source.code[at + name.len()..].starts_with('!'));
        found.extend(calls.map(|at| (source.line_of(at), "only crates/cli/src/render.rs prints")));
    }
    in_production(source, found)
}

/// Only the guest talks to the kernel by hand. A test may, when it says so at its top.
pub(super) fn unsafe_code(file: &File, _tree: &Tree) -> Vec<Breach> {
    let Some(source) = &file.source else { return Vec::new() };
    let declared = ["#![allow(unsafe_code", "#![expect(unsafe_code"].iter().any(|line| source.code.contains(line));
    let may = file.path.starts_with("crates/guest/src/") || !file.is_production();
    if declared && may {
        return Vec::new();
    }
    let reason = if may {
        "a file with unsafe code says `#![allow(unsafe_code, reason = …)]` at its top"
    } else {
        "unsafe code lives in crates/guest/src only"
    };
    source.words("unsafe").map(|at| Breach::new(source.line_of(at), reason)).collect()
}

/// Every unsafe block has its argument right above it.
pub(super) fn safety_line(file: &File, _tree: &Tree) -> Vec<Breach> {
    let Some(source) = &file.source else { return Vec::new() };
    let text: Vec<&str> = file.text.lines().map(str::trim).collect();
    let code: Vec<&str> = source.code.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for at in source.words("unsafe") {
        let next = source.code[at + "unsafe".len()..].trim_start();
        let line = source.line_of(at);
        if (next.starts_with('{') || next.starts_with("impl")) && !is_argued(&text, &code, line - 1) {
            found.push(Breach::new(line, "an unsafe block has a `// SAFETY:` line right above it"));
        }
    }
    found
}

/// Goes up from a line through its own statement, then through the comment above that.
fn is_argued(text: &[&str], code: &[&str], line: usize) -> bool {
    for above in (0..line).rev() {
        if text[above].starts_with("//") {
            if text[above].starts_with("// SAFETY:") {
                return true;
            }
        } else if code[above].is_empty() || code[above].ends_with([';', '{', '}', ',']) {
            return false;
        }
    }
    false
}

/// A result thrown away has a name that says why: `let _caller_gone = …`.
pub(super) fn discarded_result(file: &File, _tree: &Tree) -> Vec<Breach> {
    let Some(source) = &file.source else { return Vec::new() };
    let mut found = Vec::new();
    for at in source.words("let") {
        let pattern = source.code[at + "let".len()..].trim_start();
        let rest = pattern.strip_prefix('_').map(str::trim_start);
        if rest.is_some_and(|rest| rest.starts_with('=') || rest.starts_with(':')) {
            found.push(Breach::new(source.line_of(at), "a discarded result says why: `let _reason = …`"));
        }
    }
    for (at, _) in source.code.match_indices(".ok();") {
        let statement = source.code[..at].rfind([';', '{', '}']).map_or(0, |end| end + 1);
        let statement = source.code[statement..at].trim();
        let used = statement.contains('=') || statement.starts_with("return") || statement.starts_with(')');
        if !used {
            found.push(Breach::new(source.line_of(at), "a discarded result says why: `let _reason = …`, not `.ok();`"));
        }
    }
    found
}

/// Boxed futures are for the seams, where a trait object is the point.
pub(super) fn async_trait(file: &File, _tree: &Tree) -> Vec<Breach> {
    let Some(source) = file.source.as_ref().filter(|_| file.is_production()) else { return Vec::new() };
    let mut found = Vec::new();
    for at in source.words("async_trait").filter(|at| source.code[..*at].ends_with("#[")) {
        let item = &source.code[at..source.code[at..].find('{').map_or(source.code.len(), |length| at + length)];
        let name = item.split_once(" trait ").map(|(_, rest)| word_at(rest));
        if let Some(name) = name.filter(|name| !SEAMS.contains(name)) {
            found.push((source.line_of(at), name));
        }
    }
    let limit = source.production_lines();
    let outside = found.into_iter().filter(|(line, _)| *line <= limit);
    outside.map(|(line, name)| Breach::new(line, format!("{name} is not one of the seams"))).collect()
}

/// The standard library first, then other crates, then our own: rustfmt can only do this on nightly.
pub(super) fn import_order(file: &File, _tree: &Tree) -> Vec<Breach> {
    let Some(source) = &file.source else { return Vec::new() };
    let modules: Vec<&str> =
        source.words("mod").map(|at| word_at(source.code[at + "mod".len()..].trim_start())).collect();
    let group = |path: &str| match word_at(path) {
        "std" | "core" | "alloc" => 0,
        "crate" | "super" | "self" => 2,
        name if modules.contains(&name) => 2,
        _ => 1,
    };
    let mut found = Vec::new();
    let mut last = 0;
    for (at, line) in source.code.lines().enumerate() {
        let Some(path) = line.strip_prefix("use ") else { continue };
        if group(path) < last {
            found.push(Breach::new(at + 1, "imports come in this order: std, other crates, ours"));
        }
        last = last.max(group(path));
    }
    found
}

/// Drops what is in the module of unit tests.
fn in_production(source: &Source, found: Vec<(usize, &str)>) -> Vec<Breach> {
    let limit = source.production_lines();
    found.into_iter().filter(|(line, _)| *line <= limit).map(|(line, reason)| Breach::new(line, reason)).collect()
}

#[cfg(test)]
mod tests {
    use crate::tidy::tests::check;

    const LIBRARY: &str = "crates/machine/src/x.rs";

    /// What tidy says about a function body in a library file that is otherwise fine.
    fn check_body(body: &str) -> Vec<String> {
        check(LIBRARY, &format!("//! X.\nfn f() {{ {body} }}\n"))
    }

    #[test]
    fn a_file_opens_with_what_it_is() {
        assert_eq!(check(LIBRARY, "use std::fmt;\n"), ["1 opening"]);
        assert_eq!(check(LIBRARY, "//!\n"), ["1 opening"]);
        assert_eq!(check("crates/cli/tests/x.rs", "\n//! X.\n"), ["1 opening"]);
        assert!(check(LIBRARY, "//! X.\n").is_empty());
    }

    #[test]
    fn files_are_small_and_clients_smaller() {
        let file = |lines: usize| {
            format!("//! X.\n{}#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(lines - 1), "\n".repeat(900))
        };
        assert!(check(LIBRARY, &file(500)).is_empty());
        assert_eq!(check(LIBRARY, &file(501)), ["501 file-size"]);
        assert!(check("crates/clients/src/x.rs", &file(450)).is_empty());
        assert_eq!(check("crates/clients/src/x.rs", &file(451)), ["451 file-size"]);
        assert!(check("crates/clients/tests/x.rs", &file(600)).is_empty());
    }

    #[test]
    fn traits_are_narrow() {
        let with =
            |methods: usize| format!("//! X.\npub trait T {{\n{} }}\n", "fn m() { fn inner() {} }\n".repeat(methods));
        assert!(check(LIBRARY, &with(16)).is_empty());
        assert_eq!(check(LIBRARY, &with(17)), ["2 trait-size"]);
    }

    #[test]
    fn names_say_what_the_thing_is() {
        assert_eq!(check("crates/machine/src/utils.rs", "//! X.\n"), ["1 name"]);
        assert_eq!(check("crates/machine/src/common/path.rs", "//! X.\n"), ["1 name"]);
        assert_eq!(check(LIBRARY, "//! X.\nmod helpers {}\n"), ["2 name"]);
        assert!(check(LIBRARY, "//! X.\nuse core::fmt; mod based_on {}\n").is_empty());
    }

    #[test]
    fn types_are_nouns() {
        for name in super::FORBIDDEN_TYPES {
            assert_eq!(check(LIBRARY, &format!("//! X.\npub(crate) enum {name}<'a> {{}}\n")), ["2 type-name"]);
        }
        assert_eq!(check("fuzz/x.rs", "//! X.\ntrait Held: Send {}\nstruct Left;\n"), ["2 type-name", "3 type-name"]);
        assert!(check(LIBRARY, "//! X.\nstruct Leftover;\nuse other::Place;\n// struct Found;\n").is_empty());
    }

    #[test]
    fn shell_text_is_in_posix_only() {
        assert_eq!(check_body(r#"run(["sh", "-c", "ls"])"#), ["2 shell"]);
        assert_eq!(check_body(r#"Command::new("/bin/bash").arg("-ec")"#), ["2 shell"]);
        assert_eq!(check_body(r#"run("sh -c ls")"#), ["2 shell"]);
        assert!(check_body(r#"run(["python3", "-c", "1"]); run(["sh"]) // ["sh", "-c"]"#).is_empty());
        let body = "//! X.\nfn f() { run([\"sh\", \"-c\"]) }\n";
        for path in
            ["crates/machine/src/posix/list.rs", "crates/machine/src/conformance/exit.rs", "crates/cli/tests/x.rs"]
        {
            assert!(check(path, body).is_empty(), "{path}");
        }
        assert!(check(LIBRARY, &format!("//! X.\n#[cfg(test)]\nmod tests {{\n{body}}}\n")).is_empty());
    }

    #[test]
    fn the_environment_is_read_where_the_name_says_so() {
        assert_eq!(check_body("std::env::var(x)"), ["2 env"]);
        assert_eq!(check_body("env::vars_os()"), ["2 env"]);
        assert!(check(LIBRARY, "//! X.\nfn from_env() { std::env::var(x) }\n").is_empty());
        assert!(check("crates/cli/src/x.rs", "//! X.\nfn f() { std::env::var(x) }\n").is_empty());
        assert!(check("crates/guest/build.rs", "//! X.\nfn f() { std::env::var(x) }\n").is_empty());
    }

    #[test]
    fn only_the_renderer_prints() {
        assert_eq!(check_body("println!()"), ["2 print"]);
        assert_eq!(check("crates/cli/src/main.rs", "//! X.\nfn f() { eprintln!() }\n"), ["2 print"]);
        for path in ["crates/cli/src/render.rs", "xtask/src/x.rs", "crates/cli/tests/x.rs", "crates/guest/build.rs"] {
            assert!(check(path, "//! X.\nfn f() { println!() }\n").is_empty(), "{path}");
        }
    }

    #[test]
    fn unsafe_code_is_the_guests() {
        let argued = "//! X.\n#![allow(unsafe_code)]\nfn f() {\n    // SAFETY: fine.\n    unsafe { g() }\n}\n";
        assert!(check("crates/guest/src/x.rs", argued).is_empty());
        assert!(check("crates/clients/benches/x.rs", argued).is_empty());
        assert_eq!(check("crates/clients/src/x.rs", argued), ["5 unsafe"]);
        assert_eq!(check("crates/guest/src/x.rs", &argued.replace("#![allow(unsafe_code)]", "")), ["5 unsafe"]);
    }

    #[test]
    fn every_unsafe_block_is_argued() {
        let with = |body: &str| {
            check("crates/guest/src/x.rs", &format!("//! X.\n#![allow(unsafe_code)]\nfn f() {{\n{body}\n}}\n"))
        };
        assert!(with("// SAFETY: long,\n// and longer.\nlet x =\n    unsafe { g() };").is_empty());
        assert_eq!(with("unsafe { g() }"), ["4 safety"]);
        assert_eq!(with("// SAFETY: of another.\nlet y = 1;\nunsafe { g() }"), ["6 safety"]);
        assert_eq!(with("// Not an argument.\nunsafe impl Send for X {}"), ["5 safety"]);
        assert!(with("unsafe fn declared() {}").is_empty());
    }

    #[test]
    fn a_discarded_result_says_why() {
        assert_eq!(check_body("let _ = g();"), ["2 discard"]);
        assert_eq!(check_body("let _: Unit = g();"), ["2 discard"]);
        assert_eq!(check_body("g().ok();"), ["2 discard"]);
        assert!(check_body("let _caller_gone = g(); let x = g().ok(); return g().ok();").is_empty());
        assert!(check_body("let x = y.map(|z| { z }).ok();").is_empty());
    }

    #[test]
    fn imports_are_in_order() {
        assert!(
            check(LIBRARY, "//! X.\nmod own;\nuse std::fmt;\n\nuse bytes::Bytes;\n\nuse own::Y;\nuse crate::X;\n")
                .is_empty()
        );
        assert_eq!(check(LIBRARY, "//! X.\nuse bytes::Bytes;\nuse std::fmt;\n"), ["3 imports"]);
        assert_eq!(check(LIBRARY, "//! X.\nuse crate::X;\nuse bytes::Bytes;\n"), ["3 imports"]);
    }

    #[test]
    fn boxed_futures_are_for_the_seams() {
        assert_eq!(check(LIBRARY, "//! X.\n#[async_trait]\npub trait Other: Send {}\n"), ["2 async-trait"]);
        assert!(check(LIBRARY, "//! X.\n#[async_trait]\npub trait Machine: Send {}\n").is_empty());
        assert!(check(LIBRARY, "//! X.\n#[async_trait]\nimpl Machine for Other {}\n").is_empty());
    }
}
