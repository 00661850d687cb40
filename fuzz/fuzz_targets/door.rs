//! What is said at the door of a detached machine, by a visitor and by its supervisor.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _both_answers_are_right = sandbar_fuzz::door::accepts(bytes);
});
