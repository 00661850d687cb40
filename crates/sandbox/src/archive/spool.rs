//! Temporary storage of an archive while it is checked: in memory while it is small, then in an unnamed file.

use std::io::{self, Seek, Write};

use bytes::Bytes;
use futures::StreamExt;
use sandbar_machine::{ByteStream, MachineError};
use tempfile::SpooledTempFile;
use tokio::{sync::mpsc, task::spawn_blocking};

use super::ArchiveLimits;
use crate::{Result, SandboxError};

/// Bytes held in memory before the archive moves to a file.
const MEMORY: usize = 16 << 20;
/// Pieces that may wait to be written.
const WAITING: usize = 8;

/// Stores the whole stream and rewinds to its beginning.
pub(super) async fn spool(input: ByteStream, limits: &ArchiveLimits, name: &str) -> Result<SpooledTempFile> {
    let (sender, mut pieces) = mpsc::channel(WAITING);
    let writer = spawn_blocking(move || {
        let mut file = SpooledTempFile::new(MEMORY);
        while let Some(piece) = pieces.blocking_recv() {
            let piece: Bytes = piece?;
            file.write_all(&piece).map_err(|error| not_stored(&error).because(error))?;
        }
        file.rewind().map_err(|error| not_stored(&error).because(error))?;
        Ok(file)
    });
    feed(input, limits, name.to_owned(), sender).await;
    writer.await.map_err(|error| SandboxError::workspace_archive_read_error(name, "cannot be stored").because(error))?
}

fn not_stored(error: &io::Error) -> SandboxError {
    SandboxError::workspace_archive_read_error("the archive", format!("cannot be stored while it is checked: {error}"))
}

/// Passes a stream on while it is within the limit. An error is the last item.
async fn feed(mut input: ByteStream, limits: &ArchiveLimits, name: String, sender: mpsc::Sender<Result<Bytes>>) {
    let limit = limits.max_input_bytes.map_or(u64::MAX, u64::from);
    let mut total = 0u64;
    while let Some(piece) = input.next().await {
        let piece = piece.map_err(|error| unread(&name, error)).and_then(|piece| {
            total = total.saturating_add(piece.len() as u64);
            if total > limit { Err(SandboxError::limit_exceeded(&name, limit, total)) } else { Ok(piece) }
        });
        let last = piece.is_err();
        // If the receiver is closed, the writer returns its own error.
        if sender.send(piece).await.is_err() || last {
            return;
        }
    }
}

fn unread(name: &str, error: MachineError) -> SandboxError {
    SandboxError::workspace_archive_read_error(name, error.code()).because(error)
}
