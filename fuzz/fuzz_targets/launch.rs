//! What a local machine is made of, as its supervisor reads it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sandbar_guest::protocol::Launch;

fuzz_target!(|bytes: &[u8]| {
    let Ok(launch) = Launch::decode(bytes) else { return };
    assert!(!launch.id.contains(&b'/') && launch.id != b".." && !launch.id.is_empty());
    assert_eq!(launch.encode(), bytes);
});
