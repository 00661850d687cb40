//! Paths of a workspace: which one is below which.
#![allow(clippy::expect_used, reason = "a test")]

use sandbar_sandbox::WorkspacePath;

#[test]
fn a_path_is_within_itself_and_what_is_above_it() {
    let path = |text: &str| WorkspacePath::new(text).expect(text);
    for (inner, outer, expected) in [
        ("a", "a", true),
        ("a/b", "a", true),
        ("a/b/c", "a", true),
        ("a", "a/b", false),
        ("ab", "a", false),
        ("b", "a", false),
        ("b/a", "a", false),
    ] {
        assert_eq!(path(inner).is_within(&path(outer)), expected, "{inner} in {outer}");
    }
}
