//! How a process finds a machine that outlives its maker: a socket beside the machine's files, and what is said at it.
//!
//! A visitor knocks with the machine's nonce. Its supervisor answers with what the maker left to be remembered, and hands
//! the connection on to the guest, whose first words follow. A visitor that does not know the nonce is hung up on.

use std::time::Duration;

use super::{
    VERSION, WireError,
    wire::{Reader, Writer},
};

/// The socket's name in the machine's own directory.
pub const DOOR: &str = "door";

/// What every machine's directory holds as long as anything is in it: only what has it is ever removed as one.
pub const MARK: &str = ".sandbar";

/// Said on the leash by a maker that has everything it needs: from then on the machine lives without it.
pub const LET_GO: u8 = b'!';

/// No machine has more to be remembered.
pub const MAX_MEMO: usize = 2 * 1024 * 1024;

/// What only the machine and the holders of its handle know.
pub type Nonce = [u8; 16];

/// What makes a machine outlive its maker.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Detached {
    /// What a visitor must know.
    pub nonce: Nonce,
    /// What every visitor is told: the maker's own notes.
    pub memo: Vec<u8>,
    /// Milliseconds without a visitor after which it ends; 0 means never.
    pub lease_ms: u64,
}

impl Detached {
    /// How long it lives without a visitor; `None` is for ever.
    #[must_use]
    pub fn lease(&self) -> Option<Duration> {
        (self.lease_ms > 0).then(|| Duration::from_millis(self.lease_ms))
    }
}

/// Without its contents: the notes may hold secrets.
impl std::fmt::Debug for Detached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Detached").finish_non_exhaustive()
    }
}

/// What a visitor wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To speak with the guest.
    Attach,
    /// That the machine ends. Understood by every version.
    End,
}

/// A visitor's first and only words to the supervisor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Knock {
    /// The version the visitor speaks.
    pub version: u32,
    /// What it wants.
    pub wish: Wish,
    /// What it knows.
    pub nonce: Nonce,
}

impl Knock {
    /// How long one is.
    pub const LENGTH: usize = 21;

    /// This program's own words.
    #[must_use]
    pub fn new(wish: Wish, nonce: Nonce) -> Self {
        Self { version: VERSION, wish, nonce }
    }

    /// The message's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::LENGTH);
        let mut to = Writer(&mut out);
        to.u32(self.version);
        to.u8(match self.wish {
            Wish::Attach => 0,
            Wish::End => 1,
        });
        out.extend_from_slice(&self.nonce);
        out
    }

    /// Reads the message.
    ///
    /// # Errors
    /// When the bytes are not exactly one.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader(bytes);
        let version = from.u32()?;
        let wish = match from.u8()? {
            0 => Wish::Attach,
            1 => Wish::End,
            _ => return Err(WireError("a choice is unknown")),
        };
        let nonce = from.0.try_into().map_err(|_| WireError("a nonce is not 16 bytes"))?;
        Ok(Self { version, wish, nonce })
    }
}

/// What comes before the memo in the supervisor's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version the machine speaks; one that differs from the visitor's is the whole answer.
    pub version: u32,
    /// How long the memo is.
    pub length: u32,
}

impl Welcome {
    /// How long one is.
    pub const LENGTH: usize = 8;

    /// The message's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::LENGTH);
        let mut to = Writer(&mut out);
        to.u32(self.version);
        to.u32(self.length);
        out
    }

    /// Reads the message.
    ///
    /// # Errors
    /// When the bytes are not exactly one, or announce a memo that is too long.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader(bytes);
        let welcome = Self { version: from.u32()?, length: from.u32()? };
        from.end()?;
        if welcome.length as usize > MAX_MEMO {
            return Err(WireError("its memo is too long"));
        }
        Ok(welcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_at_the_door_is_understood() {
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
