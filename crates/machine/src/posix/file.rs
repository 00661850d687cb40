//! Reading a file with `cat`, and moving an uploaded file to its path.

use std::{ffi::OsStr, io, os::unix::ffi::OsStrExt};

use bytes::Bytes;
use futures::{StreamExt, stream};

use super::{
    dotted,
    run::{Call, Events},
    script, split,
};
use crate::{ByteStream, Machine, MachineError, MachinePath, Result, Target};

/// [`Machine::read`] through `cat`, for a machine whose command output passes every byte unchanged.
///
/// # Errors
/// Those of the machine, from this call or from the stream.
pub async fn read<M: Machine + ?Sized>(machine: &M, target: &Target) -> Result<ByteStream> {
    refuse_root("read", target)?;
    let (parent, name) = split(&target.path);
    let call = Call::new("read", target, script::READ)?.arg(&parent).arg(dotted(name));
    let mut reader = FileReader { events: Events::new(call.start(machine).await?), call };
    // If the file cannot be read, this call fails and not the stream.
    let Some(first) = reader.next().await? else { return Ok(Box::pin(stream::empty())) };
    let rest = stream::try_unfold(reader, |mut reader| async move {
        let piece = reader.next().await?;
        Ok::<_, MachineError>(piece.map(|piece| (piece, reader)))
    });
    Ok(Box::pin(stream::iter([Ok(first)]).chain(rest)))
}

struct FileReader {
    call: Call,
    events: Events,
}

impl FileReader {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        match self.events.next().await? {
            Some(piece) => Ok(Some(piece)),
            None => self.call.check(&self.events).map(|()| None),
        }
    }
}

/// The last step of [`Machine::write`], for a provider that uploads files: moves the uploaded file `spool`, which belongs to
/// the machine's default user, to the path of the target. The move is atomic, sets the mode and creates missing parents. The
/// spool is removed, also after an error. [`Target::expected`] is checked before the move, not atomically with it.
///
/// # Errors
/// Those of [`Machine::write`].
pub async fn place<M: Machine + ?Sized>(machine: &M, target: &Target, spool: &MachinePath) -> Result<()> {
    let placed = try_place(machine, target, spool).await;
    if placed.is_err() {
        // The script removes the spool, but it may not have run.
        let _first_error_is_returned = super::remove(machine, &Target::from(spool)).await;
    }
    placed
}

async fn try_place<M: Machine + ?Sized>(machine: &M, target: &Target, spool: &MachinePath) -> Result<()> {
    refuse_root("write", target)?;
    let (parent, name) = split(&target.path);
    if let Some(expected) = target.expected
        && !expected.is(super::stat(machine, target).await?.as_ref())
    {
        return Err(MachineError::Changed(target.path.clone()));
    }
    let start = target.beneath.clone().unwrap_or_else(MachinePath::root);
    let mode = target.mode.map_or(String::new(), |mode| format!("{:o}", mode & 0o777));
    let mut call = Call::new("write", target, script::PLACE)?.arg(&start).arg(spool).arg(mode).arg(name);
    let below = parent.as_bytes().get(start.as_bytes().len()..).unwrap_or_default();
    for part in below.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        call = call.arg(OsStr::from_bytes(part));
    }
    call.run(machine, 0).await?;
    Ok(())
}

/// Refuses `/` and [`Target::beneath`] itself: their parents must not be entered.
fn refuse_root(action: &'static str, target: &Target) -> Result<()> {
    if target.path.parent().is_none() || target.beneath.as_ref() == Some(&target.path) {
        return Err(MachineError::from_io(action, &target.path, io::ErrorKind::IsADirectory.into()));
    }
    Ok(())
}
