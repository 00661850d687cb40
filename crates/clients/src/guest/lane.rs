//! One channel as shared by the reader task and its owner: what arrived, what may still arrive, what may be sent.

use std::{
    collections::VecDeque,
    task::{Context, Poll, Waker},
};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use sandbar_guest::protocol::{Event, ExitKind, FailKind, INPUT_WINDOW, WireError};

use super::link::End;

/// Smaller bulk payloads are copied, so that a small slice does not keep a large buffer alive.
pub(crate) const KEEP_FROM: usize = 32 * 1024;

/// Small pieces are joined up to this size.
const JOINED: usize = 64 * 1024;

/// Pieces of two streams keep their order until this many wait; then they are joined, so that single bytes cannot fill
/// the memory.
const ORDERED: usize = 1024;

/// The events that a request may be answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Started, output, one exit, done.
    Process,
    /// Started, bytes, done.
    Download,
    /// Credit, done.
    Upload,
    /// Bytes, done.
    Records,
    /// Done.
    Plain,
    /// Started, bytes and credit, an exit when the far side has sent everything, done.
    Connection,
}

/// An event that the guest sent on a channel.
#[derive(Debug)]
pub(crate) enum Incoming {
    Started,
    /// Started with this process id; the flag says whether the command takes input.
    Kept(u64, bool),
    Data(Bytes),
    ErrorData(Bytes),
    Omitted(u64),
    Exit(i32, ExitKind),
    Done,
    Fail(Failure),
}

/// The guest's refusal of a request. The message is untrusted.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailKind,
    pub(crate) errno: i32,
    pub(crate) message: String,
}

/// Whether a channel continues after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    More,
    Over,
}

#[derive(Debug)]
enum Item {
    Piece { error: bool, bytes: BytesMut },
    Event(Incoming),
}

#[derive(Debug)]
pub(crate) struct Lane {
    shape: Shape,
    window: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Item>,
    /// Bulk bytes that the guest may still send.
    allowance: u64,
    /// Bytes that the owner consumed and that the guest was not told about yet.
    taken: u32,
    /// Bulk bytes that the guest lets us send, and whether that was ever more than its first window.
    credit: u64,
    wide: bool,
    started: bool,
    /// Whether the command survives its client: the guest then stores output until it is acknowledged, so credit is
    /// given at once.
    kept: bool,
    omitted: bool,
    exited: bool,
    end: Option<End>,
    waker: Option<Waker>,
}

impl Lane {
    pub(crate) fn new(shape: Shape, window: u32) -> Self {
        let credit = match shape {
            Shape::Process | Shape::Upload | Shape::Connection => u64::from(INPUT_WINDOW),
            Shape::Download | Shape::Records | Shape::Plain => 0,
        };
        let state = State { allowance: u64::from(window), credit, ..State::default() };
        Self { shape, window, state: Mutex::new(state) }
    }

    /// Queues a large bulk payload without a copy.
    pub(crate) fn keep(&self, error: bool, bytes: BytesMut) -> Result<(), WireError> {
        let mut state = self.state.lock();
        self.charge(&mut state, error, bytes.len())?;
        state.queue.push_back(Item::Piece { error, bytes });
        state.wake();
        Ok(())
    }

    /// Copies a small bulk payload, onto the last waiting piece if that is small too.
    pub(crate) fn copy(&self, error: bool, bytes: &[u8]) -> Result<(), WireError> {
        let mut state = self.state.lock();
        self.charge(&mut state, error, bytes.len())?;
        let reach = if state.queue.len() < ORDERED { 1 } else { 2 };
        let tail = state.queue.iter_mut().rev().take(reach).find_map(|item| match item {
            Item::Piece { error: same, bytes: tail } if *same == error => Some(tail),
            Item::Piece { .. } | Item::Event(_) => None,
        });
        match tail {
            Some(tail) if tail.len() < KEEP_FROM && tail.len() + bytes.len() <= JOINED => tail.extend_from_slice(bytes),
            _ => state.queue.push_back(Item::Piece { error, bytes: BytesMut::from(bytes) }),
        }
        state.wake();
        Ok(())
    }

    fn charge(&self, state: &mut State, error: bool, length: usize) -> Result<(), WireError> {
        let legal = match self.shape {
            Shape::Process => state.started,
            Shape::Download => state.started && !error,
            Shape::Connection => state.started && !state.exited && !error,
            Shape::Records => !error,
            Shape::Upload | Shape::Plain => false,
        };
        if !legal {
            return Err(WireError("bulk bytes where none may be"));
        }
        let length = length as u64;
        state.allowance = state.allowance.checked_sub(length).ok_or(WireError("more bytes than were allowed"))?;
        Ok(())
    }

    /// Queues an event that is not bulk.
    pub(crate) fn accept(&self, event: Event<'_>) -> Result<Then, WireError> {
        let mut state = self.state.lock();
        let (incoming, then) = match event {
            Event::Started if self.starts() && !state.started => {
                state.started = true;
                (Incoming::Started, Then::More)
            }
            Event::Kept(process, input) if self.shape == Shape::Process && !state.started => {
                (state.started, state.kept) = (true, true);
                (Incoming::Kept(process, input), Then::More)
            }
            Event::Omitted(count) if state.kept && !state.omitted => {
                state.omitted = true;
                (Incoming::Omitted(count), Then::More)
            }
            Event::Credit(more) if matches!(self.shape, Shape::Process | Shape::Upload | Shape::Connection) => {
                state.credit = state.credit.saturating_add(u64::from(more));
                state.wide |= state.credit > u64::from(INPUT_WINDOW);
                state.wake();
                return Ok(Then::More);
            }
            Event::Exit(code, how) if self.exits() && state.started && !state.exited => {
                state.exited = true;
                (Incoming::Exit(code, how), Then::More)
            }
            Event::Done if self.may_be_done(&state) => (Incoming::Done, Then::Over),
            Event::Fail(kind, errno, message) => (Incoming::Fail(Failure { kind, errno, message }), Then::Over),
            _ => return Err(WireError("an event where it may not be")),
        };
        state.queue.push_back(Item::Event(incoming));
        state.wake();
        Ok(then)
    }

    fn starts(&self) -> bool {
        matches!(self.shape, Shape::Process | Shape::Download | Shape::Connection)
    }

    fn exits(&self) -> bool {
        matches!(self.shape, Shape::Process | Shape::Connection)
    }

    fn may_be_done(&self, state: &State) -> bool {
        match self.shape {
            Shape::Process | Shape::Connection => state.exited,
            Shape::Download => state.started,
            Shape::Upload | Shape::Records | Shape::Plain => true,
        }
    }

    /// Ends the lane with its connection; what arrived before is still delivered.
    pub(crate) fn end(&self, end: End) {
        let mut state = self.state.lock();
        state.end.get_or_insert(end);
        state.wake();
    }

    /// The next event. Only one task may wait on a lane.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Result<Incoming, End>> {
        let mut state = self.state.lock();
        if let Some(item) = state.queue.pop_front() {
            return Poll::Ready(Ok(match item {
                Item::Event(incoming) => incoming,
                Item::Piece { error: false, bytes } => Incoming::Data(bytes.freeze()),
                Item::Piece { error: true, bytes } => Incoming::ErrorData(bytes.freeze()),
            }));
        }
        if let Some(end) = &state.end {
            return Poll::Ready(Err(end.clone()));
        }
        state.wait(cx);
        Poll::Pending
    }

    /// Ready when bulk bytes may be sent.
    pub(crate) fn poll_credit(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.credit > 0 {
            return Poll::Ready(());
        }
        state.wait(cx);
        Poll::Pending
    }

    /// Whether the guest ever allowed more than its first window.
    pub(crate) fn is_wide(&self) -> bool {
        self.state.lock().wide
    }

    /// Uses up to `wanted` bytes of the credit for sending.
    pub(crate) fn spend(&self, wanted: usize) -> usize {
        let mut state = self.state.lock();
        let granted = wanted.min(usize::try_from(state.credit).unwrap_or(usize::MAX));
        state.credit -= granted as u64;
        granted
    }

    /// Records that the owner consumed this many bytes. Returns the credit to send to the guest, once it is worth a
    /// frame.
    pub(crate) fn taken(&self, count: usize) -> Option<u32> {
        let mut state = self.state.lock();
        state.taken = state.taken.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        let worthwhile = if state.kept { 1 } else { self.window.div_ceil(4) };
        if state.taken < worthwhile {
            return None;
        }
        let grant = std::mem::take(&mut state.taken);
        state.allowance += u64::from(grant);
        Some(grant)
    }
}

impl State {
    fn wait(&mut self, cx: &Context<'_>) {
        match &self.waker {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            _ => self.waker = Some(cx.waker().clone()),
        }
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_bytes_of_two_streams_cannot_fill_the_memory() {
        let lane = Lane::new(Shape::Process, 1 << 20);
        lane.accept(Event::Started).expect("started");
        for turn in 0..1 << 20 {
            lane.copy(turn % 2 == 0, b"x").expect("copy");
        }
        let state = lane.state.lock();
        assert!(state.queue.len() < 2 * ORDERED, "{}", state.queue.len());
        drop(state);
        assert!(lane.copy(false, b"x").is_err(), "the window is used up");
    }

    #[test]
    fn consumed_bytes_are_granted_again_in_batches() {
        let lane = Lane::new(Shape::Download, 1000);
        lane.accept(Event::Started).expect("started");
        lane.copy(false, &[0; 1000]).expect("copy");
        assert_eq!(lane.taken(249), None);
        assert_eq!(lane.taken(1), Some(250));
        lane.copy(false, &[0; 250]).expect("copy");
        assert!(lane.copy(false, b"x").is_err());
    }
}
