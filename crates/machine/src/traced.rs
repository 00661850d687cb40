//! A machine that says what it is asked to do: one event for each operation, with its time and outcome.

use std::{ffi::OsString, fmt, future::Future, sync::Arc, time::Instant};

use async_trait::async_trait;
use tracing::{Instrument, debug, debug_span};

use crate::{
    ByteStream, Command, DirEntry, Endpoint, Features, Machine, MachineHandle, Process, ProcessId, ProcessInfo, Result,
    ScanOptions, Signal, Target, TreeIndex,
};

/// Forwards everything to another machine and traces it. Contents, arguments and variables are never part of a trace.
#[derive(Clone, Debug)]
pub struct Traced {
    inner: Arc<dyn Machine>,
}

impl Traced {
    /// The same machine, traced.
    #[must_use]
    pub fn new(inner: Arc<dyn Machine>) -> Self {
        Self { inner }
    }
}

/// Runs one operation inside its span, and reports how it ended.
async fn traced<T>(
    operation: &'static str,
    about: impl fmt::Display,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let span = debug_span!("machine", operation, about = %about);
    async {
        let begun = Instant::now();
        let result = work.await;
        let outcome = result.as_ref().map_or_else(crate::MachineError::code, |_value| "ok");
        // Half a million years fit.
        debug!(outcome, elapsed_us = begun.elapsed().as_micros() as u64, "done");
        result
    }
    .instrument(span)
    .await
}

#[async_trait]
impl Machine for Traced {
    fn handle(&self) -> MachineHandle {
        self.inner.handle()
    }

    fn features(&self) -> Features {
        self.inner.features()
    }

    async fn spawn(&self, command: Command) -> Result<Process> {
        let program = command.argv.first().cloned().unwrap_or_default();
        traced("spawn", program.display(), self.inner.spawn(command)).await
    }

    async fn read(&self, target: &Target) -> Result<ByteStream> {
        traced("read", &target.path, self.inner.read(target)).await
    }

    async fn write(&self, target: &Target, data: ByteStream) -> Result<()> {
        traced("write", &target.path, self.inner.write(target, data)).await
    }

    async fn stop(&self) -> Result<()> {
        traced("stop", "", self.inner.stop()).await
    }

    async fn processes(&self) -> Result<Vec<ProcessInfo>> {
        traced("processes", "", self.inner.processes()).await
    }

    async fn adopt(&self, process: ProcessId) -> Result<Option<Process>> {
        traced("adopt", process, self.inner.adopt(process)).await
    }

    async fn signal(&self, process: ProcessId, signal: Signal) -> Result<bool> {
        traced("signal", process, self.inner.signal(process, signal)).await
    }

    async fn port(&self, port: u16) -> Result<Endpoint> {
        traced("port", port, self.inner.port(port)).await
    }

    async fn stat(&self, target: &Target) -> Result<Option<DirEntry>> {
        traced("stat", &target.path, self.inner.stat(target)).await
    }

    async fn list(&self, target: &Target) -> Result<Vec<DirEntry>> {
        traced("list", &target.path, self.inner.list(target)).await
    }

    async fn make_dir(&self, target: &Target) -> Result<()> {
        traced("make_dir", &target.path, self.inner.make_dir(target)).await
    }

    async fn remove(&self, target: &Target) -> Result<()> {
        traced("remove", &target.path, self.inner.remove(target)).await
    }

    async fn rename(&self, from: &Target, to: &Target) -> Result<()> {
        traced("rename", format!("{} to {}", from.path, to.path), self.inner.rename(from, to)).await
    }

    async fn scan(&self, root: &Target, options: &ScanOptions) -> Result<TreeIndex> {
        traced("scan", &root.path, self.inner.scan(root, options)).await
    }

    async fn pack(&self, root: &Target, skip: &[OsString]) -> Result<ByteStream> {
        traced("pack", &root.path, self.inner.pack(root, skip)).await
    }

    async fn unpack(&self, root: &Target, tar: ByteStream) -> Result<()> {
        traced("unpack", &root.path, self.inner.unpack(root, tar)).await
    }

    async fn snapshot(&self) -> Result<String> {
        traced("snapshot", "", self.inner.snapshot()).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tracing::{
        Event, Metadata, Subscriber,
        field::{Field, Visit},
        span::{Attributes, Id, Record},
    };

    use super::*;
    use crate::{MachinePath, MemoryMachine, once};

    /// Everything that was traced, as text.
    #[derive(Clone, Debug, Default)]
    struct Seen(Arc<Mutex<String>>);

    impl Visit for Seen {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            self.0.lock().unwrap().push_str(&format!("{field}={value:?} "));
        }
    }

    impl Subscriber for Seen {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, span: &Attributes<'_>) -> Id {
            span.record(&mut self.clone());
            Id::from_u64(1)
        }

        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[tokio::test]
    async fn a_trace_names_the_operation_and_its_outcome_but_no_contents() {
        let seen = Seen::default();
        let _guard = tracing::subscriber::set_default(seen.clone());
        let machine = Traced::new(Arc::new(MemoryMachine::new()));
        let target = Target::from(MachinePath::new("/workspace/key.txt").unwrap());
        machine.write(&target, once("hunter2")).await.unwrap();
        machine.stat(&MachinePath::new("/nowhere").unwrap().into()).await.unwrap();
        machine.list(&MachinePath::new("/nowhere").unwrap().into()).await.unwrap_err();
        machine.spawn(Command::new(["curl", "hunter2"]).env("TOKEN", "hunter2")).await.unwrap_err();
        let text = seen.0.lock().unwrap().clone();
        for expected in
            ["\"write\"", "/workspace/key.txt", "\"ok\"", "\"list\"", "\"not_found\"", "curl", "\"unsupported\""]
        {
            assert!(text.contains(expected), "{expected} in {text}");
        }
        assert!(!text.contains("hunter2"), "{text}");
        assert!(!text.contains("TOKEN"), "{text}");
    }
}
