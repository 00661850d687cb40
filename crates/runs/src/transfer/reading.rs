//! Which side of a copy failed: a read error must not be reported as a write error.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use rustix::fs::OFlags;
use sandbar::{ByteStream, MachineError};
use tokio::sync::mpsc;

use crate::Error;

/// Maximum number of bytes per read of a file.
const CHUNK: usize = 64 * 1024;

/// Error of the stream that a copy reads.
#[derive(Clone, Default)]
pub(super) struct Reading(Arc<Mutex<Option<MachineError>>>);

impl Reading {
    /// Wraps a stream: its error is stored here, and the reader of the stream gets a generic error.
    pub(super) fn watch(&self, stream: ByteStream) -> ByteStream {
        let kept = self.0.clone();
        Box::pin(stream.map(move |piece| {
            piece.map_err(|error| {
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                MachineError::invalid("the source of the copy", "cannot be read")
            })
        }))
    }

    /// Takes the stored error.
    pub(super) fn failed(&self) -> Option<MachineError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Converts a machine's error about a file of the host, which the machine knows by another path.
pub(super) fn host_error(what: String, error: MachineError) -> Error {
    match error {
        MachineError::Transport { source, .. } => Error::io(what, source),
        MachineError::Denied { reason, .. } => Error::io(what, reason),
        MachineError::Exhausted { what: resource, reason } if reason.starts_with('/') => {
            // The machine's path means nothing to the caller; the name of the archive member does.
            let words = match reason.split_once(": member ") {
                Some((_, member)) => member,
                None => reason.rsplit(": ").next().unwrap_or(&reason),
            };
            Error::io(what, format!("{resource} is exhausted: {words}"))
        }
        MachineError::File { source, .. } => Error::io(what, source),
        other => Error::io(what, other),
    }
}

/// The content of a file as a stream. It ends with an error if reading fails, so that a part is never taken for the whole.
pub(super) fn content(mut file: File) -> ByteStream {
    let (sender, mut pieces) = mpsc::channel(4);
    tokio::task::spawn_blocking(move || {
        let mut buffer = vec![0; CHUNK];
        loop {
            let piece = match file.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => Ok(Bytes::copy_from_slice(&buffer[..length])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(MachineError::transport("read the source", error)),
            };
            let is_last = piece.is_err();
            if sender.blocking_send(piece).is_err() || is_last {
                return;
            }
        }
    });
    Box::pin(stream::poll_fn(move |task| pieces.poll_recv(task)))
}

/// Maximum number of entries to try when looking for an unreadable one.
const TRIES: usize = 100_000;

/// First entry of a directory of the host that this user cannot read, and the error.
pub(super) fn first_unreadable(root: &Path) -> Option<(PathBuf, io::Error)> {
    let mut waiting = vec![root.to_owned()];
    let mut tries = 0;
    while let Some(dir) = waiting.pop() {
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) => return Some((dir, error)),
        };
        for entry in entries.flatten() {
            tries += 1;
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            // The entry may have been replaced by a link or a pipe: do not follow it, do not block on it.
            let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
            match kind {
                _ if tries > TRIES => return None,
                kind if kind.is_dir() => waiting.push(path),
                kind if kind.is_file() => {
                    if let Err(error) = File::options().read(true).custom_flags(flags).open(&path) {
                        return Some((path, error));
                    }
                }
                _ => {}
            }
        }
    }
    None
}
