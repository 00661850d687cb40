//! Bytes for the guest: written at once if the stream accepts them, otherwise by the writer task.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use parking_lot::Mutex;
use tokio::{io::AsyncWrite, sync::Notify};

/// The sending half of a connection.
pub(super) type BoxWriter = Box<dyn AsyncWrite + Send + Unpin>;

/// Above this number of waiting bytes, only answers to the guest are added.
const CONGESTED: usize = 1 << 20;

/// An empty buffer with more capacity than this is freed: there may be a thousand idle machines.
const MAX_IDLE_CAPACITY: usize = 64 * 1024;

/// Frames in the order they were added.
pub(super) struct Outbox {
    inner: Mutex<Inner>,
    drained: Notify,
}

struct Inner {
    writer: Option<BoxWriter>,
    pending: Vec<u8>,
    written: usize,
    flusher: Option<Waker>,
}

impl Outbox {
    pub(super) fn new(writer: BoxWriter) -> Self {
        let inner = Inner { writer: Some(writer), pending: Vec::new(), written: 0, flusher: None };
        Self { inner: Mutex::new(inner), drained: Notify::new() }
    }

    /// Adds frames and writes what the stream accepts now, so that a request costs no task switch.
    pub(super) fn push(&self, fill: impl FnOnce(&mut Vec<u8>)) {
        let mut inner = self.inner.lock();
        if inner.writer.is_none() {
            return;
        }
        let idle = inner.pending.is_empty();
        fill(&mut inner.pending);
        if idle && !matches!(inner.flush(&mut noop_context()), Poll::Ready(Ok(()))) {
            inner.wake();
        }
    }

    /// Adds a frame given in two parts; only what the stream does not accept now is copied.
    pub(super) fn push_bulk(&self, header: &[u8], bytes: &[u8]) {
        let mut inner = self.inner.lock();
        let idle = inner.pending.is_empty();
        let Some(writer) = &mut inner.writer else { return };
        let parts = [IoSlice::new(header), IoSlice::new(bytes)];
        let written = match idle.then(|| Pin::new(writer).poll_write_vectored(&mut noop_context(), &parts)) {
            Some(Poll::Ready(Ok(count))) => count,
            // An error shows again when the writer task tries.
            _ => 0,
        };
        inner.pending.extend(header.iter().skip(written));
        inner.pending.extend_from_slice(bytes.get(written.saturating_sub(header.len())..).unwrap_or_default());
        if idle && !inner.pending.is_empty() {
            inner.wake();
        }
    }

    /// Whether so many bytes wait that nothing should be added.
    pub(super) fn congested(&self) -> bool {
        self.inner.lock().waiting() > CONGESTED
    }

    /// Waits until something may be added.
    pub(super) async fn ready(&self) {
        loop {
            let drained = self.drained.notified();
            if !self.congested() {
                return;
            }
            drained.await;
        }
    }

    /// Ends the stream; bytes that were not written are dropped.
    pub(super) fn shut(&self) {
        let mut inner = self.inner.lock();
        let closed = inner.writer.take();
        inner.pending = Vec::new();
        inner.written = 0;
        let flusher = inner.flusher.take();
        drop(inner);
        drop(closed);
        if let Some(flusher) = flusher {
            flusher.wake();
        }
        self.drained.notify_waiters();
    }

    /// The writer task; ready when the stream failed or was shut.
    pub(super) fn poll_write_out(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.inner.lock();
        if inner.writer.is_none() {
            return Poll::Ready(Ok(()));
        }
        inner.flusher = Some(cx.waker().clone());
        let outcome = inner.flush(cx);
        let relieved = inner.waiting() <= CONGESTED;
        drop(inner);
        if relieved {
            self.drained.notify_waiters();
        }
        match outcome {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }
}

/// A context that wakes no task: when the stream has room again, the writer task polls and is woken, not the sender.
fn noop_context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

impl Inner {
    fn wake(&mut self) {
        if let Some(flusher) = self.flusher.take() {
            flusher.wake();
        }
    }

    fn waiting(&self) -> usize {
        self.pending.len() - self.written
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(writer) = &mut self.writer else { return Poll::Ready(Ok(())) };
        while self.written < self.pending.len() {
            let rest = self.pending.get(self.written..).unwrap_or_default();
            let Poll::Ready(outcome) = Pin::new(&mut *writer).poll_write(cx, rest) else {
                self.compact();
                return Poll::Pending;
            };
            match outcome {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.written = 0;
        self.pending.clear();
        if self.pending.capacity() > MAX_IDLE_CAPACITY {
            self.pending = Vec::new();
        }
        // A pipe or socket has nothing to flush; a buffering stream has.
        ready!(Pin::new(writer).poll_flush(cx))?;
        Poll::Ready(Ok(()))
    }

    /// Drops written bytes once they are more than half of the buffer.
    fn compact(&mut self) {
        if self.written > self.pending.len() / 2 {
            self.pending.drain(..self.written);
            self.written = 0;
        }
    }
}
