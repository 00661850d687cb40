//! Sinks of events: a function, or a file that is only appended to.

use std::{
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
};

use parking_lot::Mutex;
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

/// A sink that several sessions share. Its overrides are read when it is made: a session that begins does not wait for
/// the event that the sink takes from another session.
#[derive(Clone)]
pub(crate) struct SharedSink {
    policy: PayloadOverride,
    sink: Arc<Mutex<dyn Sink>>,
}

impl SharedSink {
    pub(crate) fn new(sink: impl Sink + 'static) -> Self {
        // A sink must not panic through the caller's thread.
        let policy = catch_unwind(AssertUnwindSafe(|| sink.policy())).unwrap_or_default();
        Self { policy, sink: Arc::new(Mutex::new(sink)) }
    }
}

impl Sink for SharedSink {
    fn deliver(&mut self, event: &Event) -> io::Result<()> {
        self.sink.lock().deliver(event)
    }

    fn policy(&self) -> PayloadOverride {
        self.policy
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.lock().flush()
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

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use super::*;
    use crate::audit::{Audit, AuditOptions, Gap, Phase, Subject};

    #[test]
    fn a_session_begins_while_a_shared_sink_is_stuck() {
        let ((taken, is_taken), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
        let sink = SharedSink::new(Callback::new(move |_: &Event| {
            taken.send(()).unwrap();
            let _test_ended = released.recv();
        }));
        let mut first = sink.clone();
        let event = Event::new("first", Subject::Record(Gap::AuditDropped), Phase::Finish, String::new());
        let stuck = thread::spawn(move || first.deliver(&event));
        is_taken.recv().unwrap();
        let (begun, has_begun) = mpsc::channel();
        thread::spawn(move || begun.send(Audit::new("second", vec![Box::new(sink)], AuditOptions::default())));
        let second = has_begun.recv_timeout(Duration::from_secs(100)).expect("it does not wait for the sink");
        drop(release);
        stuck.join().unwrap().unwrap();
        drop(second);
    }
}
