//! How a process attaches to a machine that outlives its maker: a socket in the machine's directory, and the messages
//! exchanged on it.
//!
//! A visitor knocks with the machine's nonce. The supervisor answers with the maker's memo and passes the connection to
//! the guest, whose `Hello` follows. A visitor with a wrong nonce is disconnected.

use std::time::Duration;

use super::{
    VERSION, WireError,
    wire::{self, Wire, read_bytes},
};

/// Name of the socket file in the machine's directory.
pub const DOOR: &str = "door";

/// Marker file of every machine's directory, removed last: only a directory with this marker is removed as a leftover.
pub const MARK: &str = ".sandbar";

/// Byte that the maker writes to the leash to let the machine outlive it.
pub const LET_GO: u8 = b'!';

/// Longest memo in bytes.
pub const MAX_MEMO: usize = 2 * 1024 * 1024;

/// Secret shared by a machine and the holders of its handle.
pub type Nonce = [u8; 16];

/// Settings of a machine that outlives its maker.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Detached {
    /// Secret that a visitor must send.
    pub nonce: Nonce,
    /// The maker's own data, sent to every visitor.
    pub memo: Vec<u8>,
    /// Milliseconds without an attached host after which the machine ends; 0 means never.
    pub lease_ms: u64,
}

impl Detached {
    /// How long the machine lives without an attached host; `None` means forever.
    #[must_use]
    pub fn lease(&self) -> Option<Duration> {
        (self.lease_ms > 0).then(|| Duration::from_millis(self.lease_ms))
    }
}

/// Omits the contents: the memo may hold secrets.
impl std::fmt::Debug for Detached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Detached").finish_non_exhaustive()
    }
}

impl Wire<'_> for Detached {
    fn write(&self, to: &mut Vec<u8>) {
        u8::write_list(&self.nonce, to);
        u8::write_list(&self.memo, to);
        self.lease_ms.write(to);
    }

    fn read(from: &mut &[u8]) -> Result<Self, WireError> {
        let nonce = nonce(read_bytes(from)?)?;
        Ok(Self { nonce, memo: read_bytes(from)?.to_vec(), lease_ms: u64::read(from)? })
    }
}

fn nonce(bytes: &[u8]) -> Result<Nonce, WireError> {
    bytes.try_into().map_err(|_| WireError("a nonce is not 16 bytes"))
}

wire! {
    /// Purpose of a visit.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Wish {
        /// Connect to the guest.
        Attach = 0,
        /// End the machine. Understood by every version.
        End = 1,
    }
    unknown "a choice is unknown";
}

/// The one message of a visitor to the supervisor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Knock {
    /// Protocol version of the visitor.
    pub version: u32,
    /// Purpose of the visit.
    pub wish: Wish,
    /// The machine's secret, as the visitor knows it.
    pub nonce: Nonce,
}

impl Knock {
    /// Encoded length in bytes.
    pub const LENGTH: usize = 21;

    /// A knock with this program's version.
    #[must_use]
    pub fn new(wish: Wish, nonce: Nonce) -> Self {
        Self { version: VERSION, wish, nonce }
    }

    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        [wire::encode(&(self.version, self.wish)), self.nonce.to_vec()].concat()
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// When the bytes are not exactly one knock.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, WireError> {
        let (version, wish) = Wire::read(&mut bytes)?;
        Ok(Self { version, wish, nonce: nonce(bytes)? })
    }
}

wire! {
    /// Header of the supervisor's answer; the memo follows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Welcome {
        /// Protocol version of the machine. If it differs from the visitor's, no memo follows.
        pub version: u32,
        /// Length of the memo in bytes.
        pub length: u32,
    }
    check Welcome::check;
}

impl Welcome {
    /// Encoded length in bytes.
    pub const LENGTH: usize = 8;

    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        wire::encode(self)
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// When the bytes are not exactly one answer, or announce a memo longer than [`MAX_MEMO`].
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        wire::decode(bytes)
    }

    fn check(&self) -> Result<(), WireError> {
        if self.length as usize > MAX_MEMO { Err(WireError("its memo is too long")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knocks_and_answers_survive_a_round_trip() {
        for wish in [Wish::Attach, Wish::End] {
            let knock = Knock::new(wish, [7; 16]);
            let bytes = knock.encode();
            assert_eq!(bytes.len(), Knock::LENGTH);
            assert!(Knock::decode(&bytes) == Ok(knock));
            assert!(Knock::decode(&bytes[..20]).is_err());
        }
        let welcome = Welcome { version: VERSION, length: 9 };
        assert_eq!(welcome.encode().len(), Welcome::LENGTH);
        assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
        let endless = Welcome { length: u32::MAX, ..welcome };
        assert!(Welcome::decode(&endless.encode()).is_err());
    }
}
