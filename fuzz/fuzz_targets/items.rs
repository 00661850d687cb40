//! An item of a transcript as a model's server sends it: read, looked at, and written as the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _both_answers_are_right = sandbar_fuzz::items::accepts(bytes);
});
