//! The root of the library has as many names as a reader can look through.

#![allow(clippy::expect_used, reason = "a test")]

use std::{collections::BTreeSet, fs, path::Path};

/// Names at the root of `sandbar`, modules included.
const ROOT_NAMES: usize = 120;

#[test]
fn the_root_of_the_library_has_few_names() {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/api/sandbar.txt");
    let list = fs::read_to_string(list).expect("the list of public items");
    let paths = list.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(": "));
    let mut names = BTreeSet::new();
    for (path, _) in paths {
        // The root has every name of the prelude.
        let path = path.strip_prefix("prelude::").unwrap_or(path);
        names.extend(path.split("::").next().map(str::to_owned));
    }
    assert!(names.contains("SandboxAgent") && names.contains("machine"), "{names:?}");
    assert!(names.len() <= ROOT_NAMES, "{} names: {names:?}", names.len());
}
