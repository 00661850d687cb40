//! What a guest tells of the commands it knows.

use sandbar_guest::protocol::ProcessRecord;

/// Whether the bytes were read to the end.
pub fn accepts(bytes: &[u8]) -> bool {
    let Ok(records) = ProcessRecord::decode_all(bytes) else { return false };
    assert_eq!(ProcessRecord::decode_all(&ProcessRecord::encode_all(&records)), Ok(records));
    true
}
