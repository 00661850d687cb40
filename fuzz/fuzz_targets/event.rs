//! An event as the host reads it: the first byte is the frame's kind, the rest its payload.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _both_answers_are_right = sandbar_fuzz::event::accepts(bytes);
});
