//! Which side of a copy failed: a read error must not be reported as a write error.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use rustix::fs::FileType;
use sandbar::{MachineError, machine::ByteStream};
use sandbar_host_files::{Descend, Refusal, Rules, Visitor, WalkEntry, WalkOptions, as_path, walk};
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
                *kept.lock() = Some(error);
                MachineError::invalid("the source of the copy", "cannot be read")
            })
        }))
    }

    /// Takes the stored error.
    pub(super) fn failed(&self) -> Option<MachineError> {
        self.0.lock().take()
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

/// Maximum number of entries to try when looking for an unreadable one, and their maximum depth.
const TRIES: usize = 100_000;
const DEPTH: usize = 200;

/// First entry of a directory of the host that this user cannot read, and the error.
pub(super) fn first_unreadable(root: &Path) -> Option<(PathBuf, io::Error)> {
    let dir = match File::open(root) {
        Ok(dir) => dir,
        Err(error) => return Some((root.to_owned(), error)),
    };
    let options = WalkOptions { entries: TRIES, depth: DEPTH, rules: Rules::default() };
    let (path, error) = walk(&dir, &options, &mut Search).err().flatten()?;
    Some((root.join(as_path(&path)), error))
}

/// Search for an entry that cannot be read: it stops there, or with nothing.
struct Search;

impl Search {
    /// Errors without a number are not about permissions: the entry has changed, or is too deep.
    fn judge(path: &[u8], error: io::Error) -> Result<(), <Self as Visitor>::Stop> {
        if error.raw_os_error().is_some() { Err(Some((path.to_vec(), error))) } else { Ok(()) }
    }
}

impl Visitor for Search {
    type Stop = Option<(Vec<u8>, io::Error)>;

    fn visit(&mut self, entry: &WalkEntry<'_>) -> Result<Descend, Self::Stop> {
        if entry.kind == FileType::RegularFile
            && let Err(error) = entry.file()
        {
            Self::judge(entry.path, error)?;
        }
        Ok(Descend::Into)
    }

    fn unreadable(&mut self, path: &[u8], error: io::Error) -> Result<(), Self::Stop> {
        Self::judge(path, error)
    }

    fn refused(&self, _refusal: Refusal) -> Self::Stop {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn the_first_entry_that_cannot_be_read_is_found() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("dir")).unwrap();
        fs::write(temp.path().join("dir/file"), "x").unwrap();
        symlink("nowhere", temp.path().join("link")).unwrap();
        assert!(first_unreadable(temp.path()).is_none());
        let missing = temp.path().join("missing");
        let (path, error) = first_unreadable(&missing).unwrap();
        assert_eq!((path, error.kind()), (missing, io::ErrorKind::NotFound));
    }
}
