//! One pass through a tar stream.

use std::io::{self, Read};

use sandbar_machine::{
    MachineError,
    tar::{Event, Reader, padding},
};

use super::{Summary, broken, cleaner::Cleaner};
use crate::{Result, SandboxError};

const BLOCK: usize = 512;
const PIECE: usize = 64 << 10;

/// Passes every member to the cleaner.
pub(super) fn pass(mut input: impl Read, cleaner: &mut Cleaner) -> Result<Summary> {
    let (mut reader, mut buffer) = (Reader::new(), vec![0; PIECE]);
    // Bytes that remain of the current member's content and padding.
    let mut left = 0u64;
    let mut last = Vec::new();
    while reader.finish().is_err() {
        // Outside of content, read one block at a time: the exact end of the archive must be known.
        let want = if left == 0 { BLOCK } else { usize::try_from(left).unwrap_or(PIECE).min(PIECE) };
        let got = fill(&mut input, &mut buffer[..want]).map_err(|error| unreadable(cleaner.archive(), error))?;
        if got == 0 {
            return Err(broken(cleaner.archive(), "ends early"));
        }
        if left == 0 {
            cleaner.overhead(got as u64)?;
        }
        left = left.saturating_sub(got as u64);
        for event in reader.push(&buffer[..got]).map_err(|error| malformed(cleaner, &last, error))? {
            match event {
                Event::Member(member) => {
                    cleaner.begin(&member)?;
                    left = member.size.saturating_add(padding(member.size) as u64);
                    last = member.path;
                }
                Event::Data(data) => cleaner.data(&data)?,
                Event::Done => cleaner.end()?,
            }
        }
    }
    nothing_follows(input, &mut buffer, cleaner)?;
    cleaner.finish()
}

/// Checks that only zeros follow the end: other programs might unpack anything else.
fn nothing_follows(mut input: impl Read, buffer: &mut [u8], cleaner: &mut Cleaner) -> Result<()> {
    loop {
        let got = fill(&mut input, buffer).map_err(|error| unreadable(cleaner.archive(), error))?;
        if got == 0 {
            return Ok(());
        }
        if buffer[..got].iter().any(|byte| *byte != 0) {
            return Err(broken(cleaner.archive(), "has data after its end"));
        }
        cleaner.overhead(got as u64)?;
    }
}

/// Reads until the buffer is full or the input ends.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match input.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

fn malformed(cleaner: &Cleaner, last: &[u8], error: MachineError) -> SandboxError {
    let reason = match &error {
        MachineError::Invalid { reason, .. } => reason.clone(),
        other => other.to_string(),
    };
    if last.is_empty() {
        return broken(cleaner.archive(), format!("is not a tar archive, or {reason}")).because(error);
    }
    cleaner.refuse(last, format!("is followed by data that {reason}")).because(error)
}

/// Error from the decompressor or from the input below it.
pub(super) fn unreadable(archive: &str, error: io::Error) -> SandboxError {
    if error.get_ref().is_some_and(|inner| inner.is::<SandboxError>()) {
        // The input's own error, passed through the decompressor.
        return match error.into_inner().map(|inner| inner.downcast::<SandboxError>()) {
            Some(Ok(own)) => *own,
            _ => broken(archive, "cannot be read"),
        };
    }
    match error.kind() {
        _ if error.raw_os_error().is_some() => {
            SandboxError::workspace_archive_read_error(archive, "cannot be read back").because(error)
        }
        io::ErrorKind::UnexpectedEof => broken(archive, "ends early").because(error),
        _ => broken(archive, "is damaged, or not compressed in this format").because(error),
    }
}
