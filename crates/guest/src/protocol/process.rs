//! Encoding of the guest's list of commands: the bulk data of `Processes`.

use super::{
    ExitKind, WireError,
    event::{EXITS, number, numbered},
    wire::{Reader, Writer},
};

/// Most bytes of a command's arguments in a record.
pub const MAX_WORDS: usize = 512;

/// State of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessState {
    /// A host is attached to it.
    #[default]
    Held,
    /// It runs, and no host is attached.
    Alone,
    /// It ended, and no host has confirmed that yet.
    Ended(i32, ExitKind),
}

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

impl ProcessRecord {
    /// Encodes a list of records.
    #[must_use]
    pub fn encode_all(records: &[Self]) -> Vec<u8> {
        let mut out = Vec::new();
        Writer(&mut out).list(records, |to, record| record.write(to));
        out
    }

    /// Decodes a list of records.
    ///
    /// # Errors
    /// When the bytes are not exactly one list.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Self>, WireError> {
        let mut from = Reader(bytes);
        let records = from.list(Self::read)?;
        from.end()?;
        Ok(records)
    }

    fn write(&self, to: &mut Writer<'_>) {
        to.u64(self.id);
        to.list(&self.argv, |to, word| to.bytes(word));
        to.option(self.user.as_ref(), |to, user| to.bytes(user));
        to.flag(self.tty);
        to.flag(self.kept);
        to.u64(self.since);
        match self.state {
            ProcessState::Held => to.u8(0),
            ProcessState::Alone => to.u8(1),
            ProcessState::Ended(code, how) => {
                to.u8(2);
                to.i32(code);
                to.u8(number(&EXITS, &how));
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let record = Self {
            id: from.u64()?,
            argv: from.list(Reader::string)?,
            user: from.option(Reader::string)?,
            tty: from.flag()?,
            kept: from.flag()?,
            since: from.u64()?,
            state: match from.u8()? {
                0 => ProcessState::Held,
                1 => ProcessState::Alone,
                2 => ProcessState::Ended(from.i32()?, numbered(&EXITS, from.u8()?)?),
                _ => return Err(WireError("a choice is unknown")),
            },
        };
        // An empty argument still takes memory.
        if record.argv.iter().map(|word| word.len() + 1).sum::<usize>() > 2 * MAX_WORDS {
            return Err(WireError("a command has too many words"));
        }
        Ok(record)
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
