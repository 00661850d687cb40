//! The README tells the truth about code: what it shows is an example that is compiled and run.

#![allow(clippy::expect_used, reason = "a test")]

use std::{fs, path::Path};

#[test]
fn the_readme_shows_examples_as_they_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let readme = fs::read_to_string(root.join("README.md")).expect("README.md");
    let folder = root.join("crates/sandbar/examples");
    for name in ["quickstart.rs", "weather.rs"] {
        let example = fs::read_to_string(folder.join(name)).expect("the example");
        let (_, code) = example.split_once("\nuse ").expect("the example imports something");
        assert!(readme.contains(&format!("```rust\nuse {code}```")), "README.md and {name} differ");
    }
}

#[test]
fn the_readme_names_examples_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let readme = fs::read_to_string(root.join("README.md")).expect("README.md");
    let tables = readme.split("| idea |").skip(1).filter_map(|rest| rest.split("\n\n").next());
    let rows = tables.flat_map(|table| table.lines().skip(2));
    let names: Vec<&str> = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).collect();
    assert!(names.len() >= 19, "{names:?}");
    for name in names {
        assert!(root.join(format!("crates/sandbar/examples/{name}.rs")).exists(), "there is no example {name}");
    }
}
