//! What is said at the door of a detached machine, by a visitor and by its supervisor.

use sandbar_guest::protocol::{Knock, Welcome};

/// Whether the bytes were read to the end.
pub fn accepts(bytes: &[u8]) -> bool {
    let (knock, welcome) = (Knock::decode(bytes), Welcome::decode(bytes));
    if let Ok(knock) = knock {
        assert!(Knock::decode(&knock.encode()) == Ok(knock));
    }
    if let Ok(welcome) = welcome {
        assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
    }
    knock.is_ok() || welcome.is_ok()
}
