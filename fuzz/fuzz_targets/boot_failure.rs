//! Why a machine could not be set up, as the host reads it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sandbar_guest::protocol::BootFailure;

fuzz_target!(|bytes: &[u8]| {
    let Ok(failure) = BootFailure::decode(bytes) else { return };
    assert_eq!(BootFailure::decode(&failure.encode()), Ok(failure));
});
