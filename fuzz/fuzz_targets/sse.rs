//! An event stream as a model's server sends it: the first byte is the size of its pieces, which must make no difference.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _both_answers_are_right = sandbar_fuzz::sse::accepts(bytes);
});
