//! Records on their way to a file: a bounded queue to a writer with its own thread, and a file of lines.
//!
//! The caller never waits for the writer. A record that does not fit is dropped and counted, and the writer gets a
//! [`Gap`] in its place.
//!
//! ```
//! use std::{io, time::Duration};
//!
//! use sandbar_jsonl::{Limits, LineFile, Queue, Writer};
//!
//! struct Lines(LineFile);
//!
//! impl Writer<&'static str> for Lines {
//!     fn write(&mut self, batch: &[&'static str]) -> io::Result<()> {
//!         self.0.append(batch)
//!     }
//! }
//!
//! let path = std::env::temp_dir().join(format!("lines-{}.jsonl", std::process::id()));
//! let queue = Queue::start("lines", Lines(LineFile::open(&path)?), Limits::default());
//! queue.offer("{}", 2);
//! assert!(queue.close(Duration::from_secs(60)));
//! assert_eq!(std::fs::read_to_string(&path)?, "{}\n");
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), io::Error>(())
//! ```

mod file;
mod queue;
#[cfg(test)]
mod tests;

pub use self::{
    file::LineFile,
    queue::{Counts, Gap, Limits, Queue, Writer},
};
