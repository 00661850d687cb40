//! A saved run, as text from anywhere or as one of ours with parts exchanged: it is refused, or can be looked at and driven.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _both_answers_are_right = sandbar_fuzz::run_state::accepts(bytes);
});
