//! Sinks of events: a function, or a file that is only appended to.

use std::{fmt, io, path::Path};

use sandbar_jsonl::LineFile;

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
pub struct Jsonl(LineFile);

impl Jsonl {
    /// Opens the file, or creates it and its parent directories for the owner only.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        LineFile::open_with_parents(path).map(Self)
    }
}

impl Sink for Jsonl {
    fn deliver(&mut self, event: &Event) -> io::Result<()> {
        self.0.append(&[serde_json::to_vec(event)?])
    }
}
