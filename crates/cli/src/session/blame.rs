//! Which side of a copy failed: what breaks while it is read must not be told as something that could not be written.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use futures::StreamExt;
use rustix::fs::OFlags;
use sandbar::{ByteStream, MachineError};

use crate::failure::Failure;

/// What reading ended with, if it did not end well.
#[derive(Clone, Default)]
pub(super) struct Reading(Arc<Mutex<Option<MachineError>>>);

impl Reading {
    /// The same stream; what breaks it is kept here, and whoever takes the stream only hears that it broke.
    pub(super) fn watch(&self, stream: ByteStream) -> ByteStream {
        let kept = self.0.clone();
        Box::pin(stream.map(move |piece| {
            piece.map_err(|error| {
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                MachineError::invalid("what is copied", "cannot be read")
            })
        }))
    }

    /// What broke it.
    pub(super) fn failed(&self) -> Option<MachineError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What a machine said about something of the host, which it knows by another path.
pub(super) fn host(what: impl Into<String>, error: MachineError) -> Failure {
    let failure = Failure::new(what);
    match error {
        MachineError::Transport { source, .. } => match source.downcast::<io::Error>() {
            Ok(error) => failure.because(*error),
            Err(other) => failure.because(io::Error::other(other)),
        },
        MachineError::Denied { reason, .. } => failure.because(io::Error::other(reason)),
        MachineError::Exhausted { what, reason } if reason.starts_with('/') => {
            // The machine's path means nothing here, the file in what is copied does.
            let words = match reason.split_once(": member ") {
                Some((_, member)) => member,
                None => reason.rsplit(": ").next().unwrap_or(&reason),
            };
            failure.because(io::Error::other(format!("{what} is exhausted: {words}")))
        }
        MachineError::File { source, .. } => failure.because(source),
        other => failure.because(other),
    }
}

/// How many things are tried to find the one that cannot be read.
const TRIES: usize = 100_000;

/// The first thing in a directory of the host that this user cannot read, and why.
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
            // It may be something else by now; that is neither followed nor waited for.
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
