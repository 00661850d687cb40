//! What a local machine is made of, as its supervisor reads it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _both_answers_are_right = sandbar_fuzz::launch::accepts(bytes);
});
