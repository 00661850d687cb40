//! A command the guest knows, as bytes: the bulk data of `Processes`.

use super::{
    ExitKind, WireError,
    event::{EXITS, number, numbered},
    wire::{Reader, Writer},
};

/// What is told of a command's words at most.
pub const MAX_WORDS: usize = 512;

/// What has become of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessState {
    /// A host reads what it prints.
    #[default]
    Held,
    /// It runs, and nobody reads what it prints.
    Alone,
    /// It ended, and nobody has heard of that.
    Ended(i32, ExitKind),
}

/// A command the guest knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessRecord {
    /// Its number.
    pub id: u64,
    /// The program and its arguments, no more than [`MAX_WORDS`] bytes of them.
    pub argv: Vec<Vec<u8>>,
    /// Whose identity.
    pub user: Option<Vec<u8>>,
    /// Whether it has a terminal.
    pub tty: bool,
    /// Whether it outlives its holder.
    pub kept: bool,
    /// Seconds since 1970.
    pub since: u64,
    /// What has become of it.
    pub state: ProcessState,
}

impl ProcessRecord {
    /// The bytes of several.
    #[must_use]
    pub fn encode_all(records: &[Self]) -> Vec<u8> {
        let mut out = Vec::new();
        Writer(&mut out).list(records, |to, record| record.write(to));
        out
    }

    /// Reads several.
    ///
    /// # Errors
    /// When the bytes are not exactly that.
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
        // An empty word still costs something where it is kept.
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
    fn what_is_told_of_commands_is_understood() {
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
