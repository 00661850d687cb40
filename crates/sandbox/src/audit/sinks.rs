//! Sinks of events: a function, or a file that is only appended to.

use std::{
    fmt,
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

use super::{Event, PayloadOverride};

/// Takes events, on its own thread. A sink may block, fail or panic without an effect on the session.
pub trait Sink: Send {
    /// Takes one event.
    ///
    /// # Errors
    /// Why the event could not be taken. The event is lost for this sink, and counted.
    fn deliver(&mut self, event: &Event) -> io::Result<()>;

    /// Overrides of the policy for this sink; they win over the general policy and over those of an operation. Called
    /// once, before the first event.
    fn policy(&self) -> PayloadOverride {
        PayloadOverride::default()
    }

    /// Called when the queue is empty.
    ///
    /// # Errors
    /// Why the sink could not flush.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Calls a function with every event.
pub struct Callback<F>(F);

impl<F: FnMut(&Event) + Send> Callback<F> {
    /// A sink that calls this function.
    pub fn new(call: F) -> Self {
        Self(call)
    }
}

impl<F: FnMut(&Event) + Send> Sink for Callback<F> {
    fn deliver(&mut self, event: &Event) -> io::Result<()> {
        (self.0)(event);
        Ok(())
    }
}

impl<F> fmt::Debug for Callback<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callback")
    }
}

/// Appends every event to a file, as one line of JSON. Several processes may append to one file: each line is one write
/// at the current end of the file.
#[derive(Debug)]
pub struct Jsonl {
    file: File,
    /// Whether the last line was written only in part.
    torn: bool,
}

impl Jsonl {
    /// Opens the file, or creates it and its parent directories for the owner only.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        Ok(Self { file, torn: false })
    }
}

impl Sink for Jsonl {
    fn deliver(&mut self, event: &Event) -> io::Result<()> {
        let mut line = Vec::new();
        if self.torn {
            line.push(b'\n');
        }
        serde_json::to_writer(&mut line, event)?;
        line.push(b'\n');
        // One write, not a loop: the rest of a line would land after lines that other processes wrote meanwhile.
        let written = loop {
            match self.file.write(&line) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if written == line.len() {
            self.torn = false;
            return Ok(());
        }
        self.torn |= written > 0;
        Err(io::Error::new(io::ErrorKind::WriteZero, "only a part of the line was written"))
    }
}
