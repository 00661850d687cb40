//! A manifest as text in each of its formats: what is read is sound, and is written and read again as the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _both_answers_are_right = sandbar_fuzz::manifest::accepts(bytes);
});
