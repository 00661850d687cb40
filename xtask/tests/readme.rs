//! The README tells the truth about code: what it shows is an example that is compiled and run.

#![allow(clippy::expect_used, reason = "a test")]

use std::{fs, path::Path};

#[test]
fn the_readme_shows_the_quickstart_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let readme = fs::read_to_string(root.join("README.md")).expect("README.md");
    let example = fs::read_to_string(root.join("crates/sandbar/examples/quickstart.rs")).expect("the example");
    let (_, code) = example.split_once("\nuse ").expect("the example imports something");
    assert!(readme.contains(&format!("```rust\nuse {code}```")), "README.md and quickstart.rs differ");
}
