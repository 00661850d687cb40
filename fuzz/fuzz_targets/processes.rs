//! What a guest tells of the commands it knows.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _both_answers_are_right = sandbar_fuzz::processes::accepts(bytes);
});
