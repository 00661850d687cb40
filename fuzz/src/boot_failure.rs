//! Why a machine could not be set up, as the host reads it.

use sandbar_guest::protocol::BootFailure;

/// Whether the bytes were read to the end.
pub fn accepts(bytes: &[u8]) -> bool {
    let Ok(failure) = BootFailure::decode(bytes) else { return false };
    assert_eq!(BootFailure::decode(&failure.encode()), Ok(failure));
    true
}
