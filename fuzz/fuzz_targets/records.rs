//! Records off a stream: the first byte is the size of the pieces it arrives in, which must make no difference.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _both_answers_are_right = sandbar_fuzz::records::accepts(bytes);
});
