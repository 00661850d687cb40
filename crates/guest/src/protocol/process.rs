//! Encoding of the guest's list of commands: the bulk data of `Processes`.

use super::{
    ExitKind, WireError,
    wire::{self, Wire},
};

/// Most bytes of a command's arguments in a record.
pub const MAX_WORDS: usize = 512;

wire! {
    /// State of a command.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum ProcessState {
        /// A host is attached to it.
        #[default]
        Held = 0,
        /// It runs, and no host is attached.
        Alone = 1,
        /// It ended, and no host has confirmed that yet.
        Ended(code: i32, how: ExitKind) = 2,
    }
    unknown "a choice is unknown";
}

wire! {
    /// A command of a machine.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ProcessRecord {
        /// Id of the command.
        pub id: u64,
        /// Program and arguments, cut to [`MAX_WORDS`] bytes.
        pub argv: Vec<Vec<u8>>,
        /// The user it runs as; `None` is the default user.
        pub user: Option<Vec<u8>>,
        /// Whether it has a terminal.
        pub tty: bool,
        /// Whether it survives its host.
        pub kept: bool,
        /// Start time in seconds since 1970.
        pub since: u64,
        /// State of the command.
        pub state: ProcessState,
    }
    check ProcessRecord::check;
}

impl ProcessRecord {
    /// Encodes a list of records.
    #[must_use]
    pub fn encode_all(records: &[Self]) -> Vec<u8> {
        let mut out = Vec::new();
        Self::write_list(records, &mut out);
        out
    }

    /// Decodes a list of records.
    ///
    /// # Errors
    /// When the bytes are not exactly one list.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Self>, WireError> {
        wire::decode(bytes)
    }

    fn check(&self) -> Result<(), WireError> {
        // An empty argument still takes memory.
        if self.argv.iter().map(|word| word.len() + 1).sum::<usize>() > 2 * MAX_WORDS {
            return Err(WireError("a command has too many words"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_commands_survive_a_round_trip() {
        let one = ProcessRecord { id: 7, argv: vec![b"sh".to_vec(), Vec::new()], since: 9, ..ProcessRecord::default() };
        let alone = ProcessRecord { state: ProcessState::Alone, user: Some(b"ada".to_vec()), ..one.clone() };
        let ended = ProcessState::Ended(-3, ExitKind::Deadline);
        let ended = ProcessRecord { state: ended, tty: true, kept: true, ..one.clone() };
        let all = [one.clone(), alone, ended];
        let bytes = ProcessRecord::encode_all(&all);
        assert_eq!(ProcessRecord::decode_all(&bytes).expect("records"), all);
        for cut in 0..bytes.len() {
            assert!(ProcessRecord::decode_all(&bytes[..cut]).is_err(), "{cut}");
        }
        let endless = ProcessRecord { argv: vec![Vec::new(); 2 * MAX_WORDS + 1], ..one };
        assert!(ProcessRecord::decode_all(&ProcessRecord::encode_all(&[endless])).is_err());
    }
}
