//! A whole connection: frames one after the other, each read as either side would read it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _both_answers_are_right = sandbar_fuzz::frames::accepts(bytes);
});
