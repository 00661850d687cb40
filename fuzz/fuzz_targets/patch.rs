//! A patch as a model sends it: as text, or inside a script.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _both_answers_are_right = sandbar_fuzz::patch::accepts(bytes);
});
