//! Manifests of the Python SDK load here, are described in the same words, and go back to Python unchanged.

#![allow(clippy::expect_used, reason = "a test")]

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use sandbar_sandbox::Manifest;
use serde_json::{Value, json};

/// Runs the script in the interpreter that has the SDK, and returns what it printed.
fn python(arguments: &[&str], input: String) -> String {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = package.join("../../.venv-agents/bin/python");
    assert!(python.exists(), "there is no {}: `cargo xtask setup` makes it", python.display());
    let mut child = Command::new(python)
        .arg(package.join("tests/python/manifests.py"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python starts");
    let mut stdin = child.stdin.take().expect("its input");
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("python ends");
    let _ended_early = writer.join().expect("the input is written");
    let printed = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    printed
}

#[test]
fn manifests_of_the_python_sdk_load_unchanged() {
    let mut pairs = String::new();
    let mut count = 0;
    for line in python(&[], String::new()).lines() {
        let case: Value = serde_json::from_str(line).expect("a line of JSON");
        let (name, theirs) = (&case["name"], &case["manifest"]);
        let manifest =
            Manifest::from_json(&theirs.to_string()).unwrap_or_else(|error| panic!("{name}: {}", error.full_message()));
        for (depth, described) in case["describe"].as_object().expect("descriptions") {
            let depth = depth.parse().expect("a number");
            assert_eq!(Some(manifest.describe(depth).as_str()), described.as_str(), "{name} at depth {depth}");
        }
        for text in [manifest.to_yaml(), manifest.to_json()] {
            let text = text.expect("it is written");
            let again = if text.starts_with('{') { Manifest::from_json(&text) } else { Manifest::from_yaml(&text) };
            assert_eq!(again.expect("it is read again"), manifest, "{name}");
        }
        let pair = json!({"name": name, "theirs": theirs, "ours": manifest});
        pairs.push_str(&format!("{pair}\n"));
        count += 1;
    }
    assert!(count > 100, "{count} manifests");
    let different = python(&["compare"], pairs);
    assert_eq!(different, "");
}
