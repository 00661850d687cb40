//! An archive from anywhere: the first byte is its format, the rest its bytes; what is passed on must be good itself.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _both_answers_are_right = sandbar_fuzz::archive::accepts(bytes);
});
