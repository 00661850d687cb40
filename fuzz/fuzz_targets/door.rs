//! What is said at the door of a detached machine, by a visitor and by its supervisor.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sandbar_guest::protocol::{Knock, Welcome};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(knock) = Knock::decode(bytes) {
        assert!(Knock::decode(&knock.encode()) == Ok(knock));
    }
    if let Ok(welcome) = Welcome::decode(bytes) {
        assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
    }
});
