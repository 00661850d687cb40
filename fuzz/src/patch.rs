//! A patch as a model sends it: as text, or inside a script.

use sandbar_sandbox::patch::{self, Patch};

/// Whether the bytes were read to the end.
pub fn accepts(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let first = Patch::parse(text).ok();
    assert_eq!(Patch::parse(text).ok(), first);
    let _any_answer_but_a_panic = patch::from_script(text);
    first.is_some()
}
