//! The engine beside the Python SDK (0.24): the same diffs, the same texts.

use serde::Deserialize;
use serde_json::json;

use super::*;

/// A diff and what `apply_diff` of the Python SDK made of it; without a text it makes a new file.
#[derive(Deserialize)]
struct Case {
    name: String,
    text: Option<String>,
    diff: String,
    result: Option<String>,
}

/// What this engine makes of cases on purpose that the SDK refuses or does in another way.
const DELIBERATE: &[(&str, Result<&str, ()>)] = &[
    // Typographic letters are found by what a keyboard has, in anchors too.
    ("typographic quotes", Ok("x\n")),
    ("typographic dash", Ok("x\n")),
    ("typographic dash in an anchor", Ok("c\na – b\nx\n")),
    // A mark at the beginning of a file is no letter of its first line.
    ("a byte order mark before the line", Ok("\u{feff}x\nb\n")),
    // Blank lines around hunks belong to no hunk.
    ("a blank line at the end of a hunk in the middle", Ok("one\n2\nthree\n4\nfive\n")),
    ("create with a blank line at the end", Ok("a")),
    // Markers as models write them.
    ("an anchor without a space", Ok("one\ntwo\n3\nfour\nfive\n")),
    ("three stars end a hunk", Ok("1\ntwo\nthree\nfour\nfive\n")),
    ("git's note about a newline", Ok("four\n5")),
    // Every line keeps its own ending.
    ("mixed endings", Ok("x\nb\r\nc\n")),
    ("mixed endings, carriage return first", Ok("a\r\nb\nx\r\n")),
    // The SDK's reader of whole patches refuses these two before `apply_diff` sees them.
    ("nothing at all", Err(())),
    ("create from nothing", Err(())),
];

fn made(case: &Case) -> Result<String, String> {
    let files: Vec<(&str, &[u8])> = case.text.iter().map(|text| ("f", text.as_bytes())).collect();
    let machine = machine(&files);
    let kind = if case.text.is_some() { "update_file" } else { "create_file" };
    let operation = json!({"type": kind, "path": "f", "diff": case.diff});
    run(&machine, &operation.to_string(), Profile::Sdk).map_err(|error| error.to_string())?;
    Ok(String::from_utf8(tree(&machine).remove(0).2).unwrap())
}

#[test]
fn every_diff_does_what_it_does_in_the_python_sdk_unless_more_is_forgiven() {
    let cases = include_str!("../../../tests/data/v4a.jsonl").lines();
    let cases: Vec<Case> = cases.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(cases.len() >= 100, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let made = made(case);
        let ours = made.as_deref().map_err(|_| ());
        let theirs = case.result.as_deref().ok_or(());
        let deliberate = DELIBERATE.iter().find(|(name, _)| *name == case.name);
        if ours != deliberate.map_or(theirs, |(_, expected)| *expected) || (deliberate.is_some() && ours == theirs) {
            wrong.push(format!("{}: {:?}\n  ours   {made:?}\n  theirs {theirs:?}", case.name, case.diff));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    for (name, _) in DELIBERATE {
        assert!(cases.iter().any(|case| case.name == *name), "{name} is no case");
    }
}
