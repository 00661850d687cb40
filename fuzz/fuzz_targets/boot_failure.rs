//! Why a machine could not be set up, as the host reads it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _both_answers_are_right = sandbar_fuzz::boot_failure::accepts(bytes);
});
