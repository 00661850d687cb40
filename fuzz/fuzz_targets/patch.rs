//! A patch as a model sends it: as text, or inside a script.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sandbar_sandbox::patch::{self, Patch};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let first = Patch::parse(text).ok();
    assert_eq!(Patch::parse(text).ok(), first);
    let _any_answer_but_a_panic = patch::from_script(text);
});
