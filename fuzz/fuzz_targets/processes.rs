//! What a guest tells of the commands it knows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sandbar_guest::protocol::ProcessRecord;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(records) = ProcessRecord::decode_all(bytes) {
        assert_eq!(ProcessRecord::decode_all(&ProcessRecord::encode_all(&records)), Ok(records));
    }
});
