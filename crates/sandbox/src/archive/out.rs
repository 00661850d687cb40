//! The way out of a pass: a tar stream in pieces, or nothing but the question whether anybody still waits.

use bytes::{Bytes, BytesMut};
use sandbar_machine::MachineError;
use tokio::sync::mpsc;

use crate::{Result, SandboxError};

/// What is gathered before it is passed on, and how many such pieces may wait.
const PIECE: usize = 64 << 10;
const WAITING: usize = 8;

/// Where the pieces come out. Dropping it ends the pass.
pub(super) type Pieces = mpsc::Receiver<Result<Bytes, MachineError>>;

/// What becomes of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// They were only to be looked at.
    Drop,
    /// They are passed on.
    Send,
}

/// Where a pass puts what it has found to be good.
#[derive(Debug)]
pub(super) struct Out {
    sender: mpsc::Sender<Result<Bytes, MachineError>>,
    what: Use,
    buffer: BytesMut,
}

impl Out {
    pub(super) fn new(what: Use) -> (Self, Pieces) {
        let (sender, pieces) = mpsc::channel(WAITING);
        (Self { sender, what, buffer: BytesMut::new() }, pieces)
    }

    /// Passes bytes on, and fails when nobody wants them any more.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if self.sender.is_closed() {
            return Err(nobody());
        }
        if self.what == Use::Drop {
            return Ok(());
        }
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    /// Passes on what was gathered.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.sender.blocking_send(Ok(self.buffer.split().freeze())).map_err(|_closed| nobody())
    }

    /// Ends the stream with what went wrong.
    pub(super) fn fail(self, error: MachineError) {
        let _nobody_waits = self.sender.blocking_send(Err(error));
    }
}

fn nobody() -> SandboxError {
    SandboxError::workspace_archive_read_error("the archive", "nobody waits for it any more")
}
