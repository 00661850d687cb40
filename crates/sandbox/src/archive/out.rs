//! Output of a pass: sends a tar stream in pieces, or discards it and only checks that the reader still exists.

use bytes::{Bytes, BytesMut};
use sandbar_machine::MachineError;
use tokio::sync::mpsc;

use crate::{Result, SandboxError};

/// Bytes collected before they are sent, and the number of such pieces that may wait.
const PIECE: usize = 64 << 10;
const WAITING: usize = 8;

/// Receiver of the pieces. Dropping it ends the pass.
pub(super) type Pieces = mpsc::Receiver<Result<Bytes, MachineError>>;

/// What a pass does with its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Discards it: the pass only checks the archive.
    Drop,
    /// Sends it to the reader.
    Send,
}

/// Writer for the checked members.
#[derive(Debug)]
pub(super) struct Out {
    sender: mpsc::Sender<Result<Bytes, MachineError>>,
    usage: Use,
    buffer: BytesMut,
}

impl Out {
    pub(super) fn new(usage: Use) -> (Self, Pieces) {
        let (sender, pieces) = mpsc::channel(WAITING);
        (Self { sender, usage, buffer: BytesMut::new() }, pieces)
    }

    /// Writes bytes. Fails if the reader is gone.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if self.sender.is_closed() {
            return Err(reader_gone());
        }
        if self.usage == Use::Drop {
            return Ok(());
        }
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    /// Sends the collected bytes.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.sender.blocking_send(Ok(self.buffer.split().freeze())).map_err(|_closed| reader_gone())
    }

    /// Ends the stream with an error.
    pub(super) fn fail(self, error: MachineError) {
        let _reader_gone = self.sender.blocking_send(Err(error));
    }
}

fn reader_gone() -> SandboxError {
    SandboxError::workspace_archive_read_error("the archive", "its reader is gone")
}
