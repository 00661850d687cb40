//! What a local machine is made of, as its supervisor reads it.

use sandbar_guest::protocol::Launch;

/// Whether the bytes were read to the end.
pub fn accepts(bytes: &[u8]) -> bool {
    let Ok(launch) = Launch::decode(bytes) else { return false };
    assert!(!launch.id.contains(&b'/') && launch.id != b".." && !launch.id.is_empty());
    assert_eq!(launch.encode(), bytes);
    true
}
