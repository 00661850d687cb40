//! `cargo xtask tidy`: the rules that neither the compiler nor clippy knows, each a function over one file.
//!
//! A rule that would make a file worse is broken on purpose by a comment on the line, or the line above, that names
//! the rule and says why: `tidy: allow(rule) — reason`. For a rule about a whole file it may stand anywhere in it.

mod rust;
mod size;
mod source;
mod text;
mod tree;
mod walls;

use std::{fmt, path::Path};

use self::tree::{File, Tree};
use crate::program::{self, Failure, Result};

/// One rule: its name, and what breaks it in a file.
struct Rule {
    name: &'static str,
    reach: Reach,
    check: fn(&File, &Tree) -> Vec<Breach>,
}

/// What a rule speaks about, which is also how near to it an exception must stand.
#[derive(PartialEq, Eq)]
enum Reach {
    File,
    Line,
}

/// A place in a file, lines counted from one, and what is wrong there.
struct Breach {
    line: usize,
    reason: String,
}

impl Breach {
    fn new(line: usize, reason: impl Into<String>) -> Self {
        Self { line, reason: reason.into() }
    }
}

/// A breach with its file and rule: what is reported.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    rule: &'static str,
    reason: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {} — {}", self.path, self.line, self.rule, self.reason)
    }
}

const RULES: &[Rule] = &[
    Rule { name: "opening", reach: Reach::File, check: rust::opening },
    Rule { name: "file-size", reach: Reach::File, check: rust::file_size },
    Rule { name: "trait-size", reach: Reach::Line, check: rust::trait_size },
    Rule { name: "methods", reach: Reach::File, check: size::methods },
    Rule { name: "folder-size", reach: Reach::File, check: size::folders },
    Rule { name: "name", reach: Reach::File, check: rust::forbidden_name },
    Rule { name: "type-name", reach: Reach::Line, check: rust::type_name },
    Rule { name: "shell", reach: Reach::Line, check: rust::shell_text },
    Rule { name: "env", reach: Reach::Line, check: rust::environment },
    Rule { name: "print", reach: Reach::Line, check: rust::print },
    Rule { name: "unsafe", reach: Reach::Line, check: rust::unsafe_code },
    Rule { name: "safety", reach: Reach::Line, check: rust::safety_line },
    Rule { name: "discard", reach: Reach::Line, check: rust::discarded_result },
    Rule { name: "async-trait", reach: Reach::Line, check: rust::async_trait },
    Rule { name: "imports", reach: Reach::Line, check: rust::import_order },
    Rule { name: "provider", reach: Reach::Line, check: text::provider_name },
    Rule { name: "pronoun", reach: Reach::Line, check: text::pronoun },
    Rule { name: "host-detail", reach: Reach::Line, check: text::host_detail },
    Rule { name: "doc-ignore", reach: Reach::Line, check: text::ignored_example },
    Rule { name: "link", reach: Reach::Line, check: text::broken_link },
    Rule { name: "wall", reach: Reach::Line, check: walls::dependencies },
];

pub(crate) fn run() -> Result {
    let findings = findings_at(&program::root())?;
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(Failure::new(format!("tidy has {count} findings"))),
    }
}

fn findings_at(root: &Path) -> Result<Vec<Finding>> {
    let tree = Tree::read(root).map_err(|error| Failure::new(format!("cannot read the repository: {error}")))?;
    Ok(findings_in(&tree))
}

fn findings_in(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        for rule in RULES {
            let breaches = (rule.check)(file, tree).into_iter().filter(|breach| !excepted(file, rule, breach.line));
            findings.extend(breaches.map(|Breach { line, reason }| Finding {
                path: file.path.clone(),
                line,
                rule: rule.name,
                reason,
            }));
        }
    }
    findings.sort();
    findings
}

/// Whether the file says, with a reason, that this rule is broken here on purpose.
fn excepted(file: &File, rule: &Rule, line: usize) -> bool {
    let says_so = |text: &str| {
        let marker = format!("tidy: allow({})", rule.name);
        text.split_once(&marker).is_some_and(|(_, reason)| reason.chars().any(char::is_alphanumeric))
    };
    if rule.reach == Reach::File {
        return file.text.lines().any(says_so);
    }
    file.text.lines().skip(line.saturating_sub(2)).take(2.min(line)).any(says_so)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What tidy says about one file, as `line rule` pairs.
    pub(super) fn check(path: &str, text: &str) -> Vec<String> {
        check_all(&[(path, text)])
    }

    pub(super) fn check_all(files: &[(&str, &str)]) -> Vec<String> {
        findings_in(&Tree::of(files)).iter().map(|finding| format!("{} {}", finding.line, finding.rule)).collect()
    }

    #[test]
    fn the_repository_is_tidy() {
        let tree = Tree::read(&program::root()).expect("readable");
        assert!(tree.has("xtask/src/tidy.rs") && tree.has("crates/machine/src"), "not the repository");
        let findings = findings_in(&tree);
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "{} findings:\n{}", lines.len(), lines.join("\n"));
    }

    #[test]
    fn a_finding_reads_as_path_line_rule_and_reason() {
        let findings = findings_in(&Tree::of(&[("crates/machine/src/path.rs", "fn f() {}\n")]));
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["crates/machine/src/path.rs:1: opening — a file opens with `//!` and what it is"]);
    }

    #[test]
    fn an_exception_needs_the_rule_and_a_reason() {
        let path = "crates/machine/src/x.rs";
        let body = |comment: &str| format!("//! X.\nfn f() {{\n    {comment}\n    let _ = g();\n}}\n");
        assert_eq!(check(path, &body("// nothing")), ["4 discard"]);
        assert_eq!(check(path, &body("// tidy: allow(discard)")), ["4 discard"]);
        assert_eq!(check(path, &body("// tidy: allow(print) — wrong rule")), ["4 discard"]);
        assert!(check(path, &body("// tidy: allow(discard) — g only counts")).is_empty());
    }
}
