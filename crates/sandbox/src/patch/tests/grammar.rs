//! What is a patch and what is not, form by form.

use super::*;
use crate::patch::{Hunk, HunkLine, Operation};

fn create(path: &str, lines: &[&str]) -> Operation {
    let lines = lines.iter().map(|line| (*line).to_owned()).collect();
    Operation::Create { path: path.to_owned(), lines, ending: Ending::Lf }
}

fn delete(path: &str) -> Operation {
    Operation::Delete { path: path.to_owned() }
}

fn hunk(anchors: &[&str], lines: &str) -> Hunk {
    let line = |line: &str| {
        let text = line[1..].to_owned();
        match &line[..1] {
            "+" => HunkLine::Add(text),
            "-" => HunkLine::Remove(text),
            _ => HunkLine::Keep(text),
        }
    };
    let anchors = anchors.iter().map(|anchor| (*anchor).to_owned()).collect();
    Hunk { anchors, lines: lines.split('|').map(line).collect(), end_of_file: false }
}

fn update(path: &str, move_to: Option<&str>, hunks: Vec<Hunk>) -> Operation {
    Operation::Update { path: path.to_owned(), move_to: move_to.map(str::to_owned), hunks, ending: Ending::Lf }
}

#[test]
fn every_form_of_a_patch_is_read() {
    let swap = || update("f", None, vec![hunk(&[""], "-a|+b")]);
    let whole = "*** Begin Patch\n*** Update File: f\n@@\n-a\n+b\n*** End Patch";
    let json = |text: &str| serde_json::to_string(text).unwrap();
    let table: Vec<(String, Vec<Operation>)> = vec![
        (whole.to_owned(), vec![swap()]),
        (format!("{whole}\n"), vec![swap()]),
        (format!("\n\n  {whole}  \n \n"), vec![swap()]),
        (format!("<<'EOF'\n{whole}\nEOF\n"), vec![swap()]),
        (format!("<<EOF\n{whole}\nEOF"), vec![swap()]),
        (format!("<<\"EOF\"\n{whole}\nEOF"), vec![swap()]),
        (format!("apply_patch <<'EOF'\n{whole}\nEOF"), vec![swap()]),
        ("*** Begin Patch  \n  *** Update File: f  \n@@\n-a\n+b\n\t*** End Patch ".to_owned(), vec![swap()]),
        (format!("{{\"patch\": {}}}", json(whole)), vec![swap()]),
        (format!("{{\"input\": {}}}", json(whole)), vec![swap()]),
        (format!(" {{\"command\": [\"apply_patch\", {}]}}", json(whole)), vec![swap()]),
        (format!("[\"apply_patch\", {}]", json(whole)), vec![swap()]),
        (r#"{"operation": {"type": "update_file", "path": "f", "diff": "@@\n-a\n+b"}}"#.to_owned(), vec![swap()]),
        (
            r#"{"operations": [{"type": "update_file", "path": "f", "diff": "@@\n-a\n+b\n"}, {"type": "delete_file", "path": "g"}]}"#
                .to_owned(),
            vec![swap(), delete("g")],
        ),
        (r#"[{"type": "create_file", "path": "n", "diff": "+x\n+\n"}]"#.to_owned(), vec![create("n", &["x", ""])]),
        (r#"{"type": "create_file", "path": "n", "diff": ""}"#.to_owned(), vec![create("n", &[])]),
        (
            r#"{"type": "update_file", "path": "f", "moveTo": "g", "diff": "@@\n-a\n+b\n*** End Patch"}"#.to_owned(),
            vec![update("f", Some("g"), vec![hunk(&[""], "-a|+b")])],
        ),
        (r#"{"type": "update_file", "path": "f", "move_to": "g"}"#.to_owned(), vec![update("f", Some("g"), vec![])]),
        (
            r#"{"id": 1, "type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a", "diff": null}}"#
                .to_owned(),
            vec![delete("a")],
        ),
    ];
    for (text, expected) in table {
        assert_eq!(Patch::parse(&text).unwrap().operations, expected, "{text}");
    }
}

#[test]
fn every_section_is_read() {
    let table: &[(&str, Operation)] = &[
        ("*** Add File: a b.txt\n+x\n++\n+", create("a b.txt", &["x", "+", ""])),
        ("*** Add File: a\n+x\n\n", create("a", &["x"])),
        ("*** Add File: a", create("a", &[])),
        ("*** Add File: a\n+*** End Patch\n+@@", create("a", &["*** End Patch", "@@"])),
        ("*** Delete File: a", delete("a")),
        ("*** Update File: f\n-a", update("f", None, vec![hunk(&[], "-a")])),
        ("*** Update File: f\n\n@@\n-a", update("f", None, vec![hunk(&[""], "-a")])),
        ("*** Update File: f\n@@ fn x()\n a\n\n-b", update("f", None, vec![hunk(&["fn x()"], " a| |-b")])),
        (
            "*** Update File: f\n@@ class A\n@@ \tdef b\n-c",
            update("f", None, vec![hunk(&["class A", "\tdef b"], "-c")]),
        ),
        ("*** Update File: f\n@@\n-a\n@@\n+b", update("f", None, vec![hunk(&[""], "-a"), hunk(&[""], "+b")])),
        ("*** Update File: f\n@@\n-a\n***\n@@\n+b", update("f", None, vec![hunk(&[""], "-a"), hunk(&[""], "+b")])),
        ("*** Update File: f\n*** Move to: g\n@@\n-a", update("f", Some("g"), vec![hunk(&[""], "-a")])),
        ("*** Update File: f\n*** Move to: g", update("f", Some("g"), vec![])),
        ("*** Update File: f\n@@\n-a\n\\ No newline at end of file", update("f", None, vec![hunk(&[""], "-a")])),
        (
            "*** Update File: f\n@@\n-a\u{2028}b\u{85}c\x0cd",
            update("f", None, vec![hunk(&[""], "-a\u{2028}b\u{85}c\x0cd")]),
        ),
        (
            "*** Update File: f\n@@\n-a\n*** End of File",
            update("f", None, vec![Hunk { end_of_file: true, ..hunk(&[""], "-a") }]),
        ),
    ];
    for (text, expected) in table {
        assert_eq!(Patch::parse(&enveloped(text)).unwrap().operations, std::slice::from_ref(expected), "{text}");
    }
}

#[test]
fn what_is_no_patch_is_refused_with_the_reason() {
    let sections: &[(&str, &str)] = &[
        ("", "The patch changes no file"),
        ("*** Frobnicate File: a", "line 2: '*** Frobnicate File: a' is not a valid hunk header"),
        ("+x", "line 2: '+x' is not a valid hunk header"),
        ("*** Add File: a\nx", "Invalid Add File Line 3: x"),
        ("*** Add File: a\n+x\n\n+y", "Invalid Add File Line 4: "),
        ("*** Delete File: a\n-x", "line 3: '-x' is not a valid hunk header"),
        ("*** Update File: a", "line 2: Update file hunk for path 'a' is empty"),
        ("*** Update File: a\n@@", "line 4: Nothing in this section"),
        ("*** Update File: a\n@@\n*** End of File", "line 5: Nothing in this section"),
        ("*** Update File: a\n@@\nx", "line 4: Invalid Line"),
        ("*** Update File: a\n@@\n-x\n*** Nonsense", "line 5: Invalid Line: *** Nonsense"),
        ("*** Update File: a\n@@\n-x\n*** End of File\n+y", "line 6: expected a hunk that begins with @@, got: +y"),
        ("*** Update File: a\n@@\n-x\n*** Move to: b", "line 5: Invalid Line: *** Move to: b"),
        ("*** Update File: a\n@@\n-x\n*** End Patch\n", "line 5: '*** End Patch' is not a valid hunk header"),
    ];
    for (text, reason) in sections {
        let (code, message) = code_of(Patch::parse(&enveloped(text)));
        assert_eq!(code, "apply_patch_invalid_diff", "{text}");
        assert!(message.starts_with(reason), "{text}: {message}");
    }
    let texts: &[(&str, &str)] = &[
        ("", "The patch is empty"),
        (" \n\n", "The patch is empty"),
        ("hello", "The first line of the patch must be '*** Begin Patch'"),
        ("*** Begin Patch", "The last line of the patch must be '*** End Patch'"),
        ("*** Begin Patch\n*** Delete File: a", "The last line of the patch must be '*** End Patch'"),
        ("cd x && apply_patch <<'EOF'\n*** Begin Patch\n*** End Patch\nEOF", "The first line of the patch must be"),
        ("{", "The patch is not JSON that can be understood: EOF"),
        ("[]", "The patch is not JSON that can be understood: it names no operation"),
        ("{}", "The patch is not JSON that can be understood: an operation has no `type`"),
        ("[1]", "The patch is not JSON that can be understood: a list must hold operations"),
        (r#"{"type": "x", "path": "a"}"#, "The patch is not JSON that can be understood: the type \"x\" is none of"),
        (
            r#"{"type": "delete_file", "path": 1}"#,
            "The patch is not JSON that can be understood: `path` is not a string",
        ),
        (r#"{"type": "update_file", "path": "a"}"#, "Update file hunk for path 'a' is empty"),
        (r#"{"type": "create_file", "path": "a", "diff": "x"}"#, "Invalid Add File Line 1: x"),
    ];
    for (text, reason) in texts {
        let (code, message) = code_of(Patch::parse(text));
        assert_eq!(code, "apply_patch_invalid_diff", "{text}");
        assert!(message.starts_with(reason), "{text}: {message}");
    }
}

#[test]
fn an_empty_path_is_refused_while_reading() {
    for section in
        ["*** Add File:  \n+x", "*** Delete File:", "*** Update File: \n-x", "*** Update File: a\n*** Move to: \n-x"]
    {
        let expected = ("apply_patch_invalid_path", "apply_patch path must be non-empty".to_owned());
        assert_eq!(code_of(Patch::parse(&enveloped(section))), expected, "{section}");
    }
    assert_eq!(code_of(Patch::parse(r#"{"type": "delete_file"}"#)).0, "apply_patch_invalid_path");
}

#[test]
fn a_patch_has_a_size_it_may_not_exceed() {
    let long = enveloped(&format!("*** Add File: a\n+{}", "x".repeat(16 << 20)));
    assert_eq!(code_of(Patch::parse(&long)).0, "limit_exceeded");
    let many = enveloped(&"*** Delete File: a\n".repeat(10_001));
    assert_eq!(code_of(Patch::parse(&many)).0, "limit_exceeded");
    assert!(Patch::parse(&enveloped(&"*** Delete File: a\n".repeat(10_000))).is_ok());
}

#[test]
fn a_patch_names_every_path_it_would_touch() {
    let text = enveloped("*** Add File: a\n+x\n*** Update File: ./b\n*** Move to: c/d\n*** Delete File: /workspace/e");
    assert_eq!(Patch::parse(&text).unwrap().paths().collect::<Vec<_>>(), ["a", "./b", "c/d", "/workspace/e"]);
}

#[test]
fn the_carriage_returns_of_a_patch_are_its_own() {
    let text = enveloped("*** Update File: f\n@@\n-a\n+b").replace('\n', "\r\n");
    let expected = Operation::Update {
        path: "f".to_owned(),
        move_to: None,
        hunks: vec![hunk(&[""], "-a|+b")],
        ending: Ending::CrLf,
    };
    assert_eq!(Patch::parse(&text).unwrap().operations, [expected]);
}
