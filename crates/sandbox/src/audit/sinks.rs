//! Where events go: a function, or a file that only grows.

use std::{
    fmt,
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

use super::{Event, PayloadOverride};

/// Takes events, on a thread of its own. It may block, fail or panic: the session does not notice.
pub trait Sink: Send {
    /// Takes one event.
    ///
    /// # Errors
    /// Whatever kept it from doing so. The event is lost to this sink, and counted.
    fn deliver(&mut self, event: &Event) -> io::Result<()>;

    /// What this sink is told differently: it has the last word, after what holds for all and for each operation. Asked
    /// once, before the first event.
    fn policy(&self) -> PayloadOverride {
        PayloadOverride::default()
    }

    /// Called when nothing is waiting.
    ///
    /// # Errors
    /// Whatever kept it from doing so.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Calls a function with every event.
pub struct Callback<F>(F);

impl<F: FnMut(&Event) + Send> Callback<F> {
    /// Calls this function.
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

/// Appends every event to a file, one line of JSON each. Several may append to one file: each line is written at once,
/// at whatever the end is then.
#[derive(Debug)]
pub struct Jsonl {
    file: File,
    /// The last line is not whole.
    torn: bool,
}

impl Jsonl {
    /// Opens or makes the file (for its owner only), and the directories above it.
    ///
    /// # Errors
    /// The system's own words.
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
        // Once and not in a loop: the rest of a line would land after what others have written since.
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
