//! The connection to a guest: one reader that routes what arrives, one outbox, and how both end.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    sync::Arc,
    time::Duration,
};

use bytes::{Buf, BufMut, BytesMut};
use parking_lot::Mutex;
use sandbar_guest::protocol::{Event, FRAME_HEADER, FrameHeader, Hello, MAX_DATA, VERSION, WireError};
use sandbar_machine::{MachineError, Result};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::Notify,
};

use super::{
    lane::{KEEP_FROM, Lane, Shape, Then},
    outbox::{BoxWriter, Outbox},
};

/// The receiving half of a connection.
pub(super) type BoxReader = Box<dyn AsyncRead + Send + Unpin>;

/// Bytes read at once if no large frame is being received; an idle machine has no larger buffer.
const CHUNK: usize = 16 * 1024;

/// Maximum length of an event that is not bulk.
const MAX_EVENT: usize = 64 * 1024;

/// Number of channels that are remembered after the host closed them, for events that the guest had already sent.
const REMEMBERED: usize = 4096;

/// How long a new guest may take to send its hello.
const GREETING: Duration = Duration::from_secs(30);

/// How a connection ended.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// The machine was stopped, or its guest ended regularly.
    Gone,
    /// The connection failed, or the guest broke the protocol.
    Broken(Arc<str>),
}

impl End {
    pub(crate) fn broken(reason: impl Into<Arc<str>>) -> Self {
        Self::Broken(reason.into())
    }

    pub(crate) fn error(&self, action: &'static str) -> MachineError {
        match self {
            Self::Gone => MachineError::Gone,
            Self::Broken(reason) => MachineError::transport(action, reason.to_string()),
        }
    }
}

/// A live connection.
pub(crate) struct Link {
    routes: Mutex<Routes>,
    pub(super) outbox: Outbox,
    over: Notify,
}

#[derive(Default)]
struct Routes {
    live: HashMap<u32, Arc<Lane>>,
    /// Channels that the host closed; the guest may not know yet.
    closed: HashSet<u32>,
    closed_order: VecDeque<u32>,
    last: u32,
    /// The host asked the machine to stop, so any end of the connection counts as regular.
    stopping: bool,
    end: Option<End>,
}

impl Link {
    pub(super) fn new(writer: BoxWriter) -> Self {
        Self { routes: Mutex::new(Routes::default()), outbox: Outbox::new(writer), over: Notify::new() }
    }

    /// Opens a channel for a request.
    pub(crate) fn route(&self, shape: Shape, window: u32) -> Result<(u32, Arc<Lane>), End> {
        let mut routes = self.routes.lock();
        if let Some(end) = &routes.end {
            return Err(end.clone());
        }
        let id = routes.fresh();
        let lane = Arc::new(Lane::new(shape, window));
        routes.live.insert(id, lane.clone());
        Ok((id, lane))
    }

    /// Removes a channel whose request was never sent.
    pub(crate) fn forget(&self, id: u32) {
        self.routes.lock().live.remove(&id);
    }

    /// Closes a channel; `true` if the guest still has to be told.
    pub(crate) fn abandon(&self, id: u32) -> bool {
        let mut routes = self.routes.lock();
        if routes.live.remove(&id).is_none() || routes.end.is_some() {
            return false;
        }
        routes.closed.insert(id);
        routes.closed_order.push_back(id);
        if routes.closed_order.len() > REMEMBERED
            && let Some(oldest) = routes.closed_order.pop_front()
        {
            routes.closed.remove(&oldest);
        }
        true
    }

    /// Records that the guest is about to be told to stop.
    pub(crate) fn stopping(&self) {
        self.routes.lock().stopping = true;
    }

    /// Ends the connection, once. Every channel receives the end after the events that it already has.
    pub(crate) fn end(&self, end: End) {
        let (lanes, end) = {
            let mut routes = self.routes.lock();
            let end = if routes.stopping { End::Gone } else { end };
            let end = routes.end.get_or_insert(end).clone();
            (std::mem::take(&mut routes.live), end)
        };
        self.outbox.shut();
        for lane in lanes.into_values() {
            lane.end(end.clone());
        }
        self.over.notify_waiters();
    }

    /// Waits until the connection has ended.
    pub(crate) async fn over(&self) {
        let over = self.over.notified();
        if self.ended().is_none() {
            over.await;
        }
    }

    /// How the connection ended, if it has.
    pub(crate) fn ended(&self) -> Option<End> {
        self.routes.lock().end.clone()
    }

    /// Ends the connection because the guest broke the protocol; nothing more from this guest is read.
    pub(crate) fn violated(&self, action: &'static str, how: WireError) -> MachineError {
        tracing::warn!(%how, "the guest broke the protocol; closing its connection");
        let end = End::broken(how.to_string());
        let error = end.error(action);
        self.end(end);
        error
    }

    fn deliver(&self, header: FrameHeader, buffer: &mut BytesMut) -> Result<(), WireError> {
        let total = FRAME_HEADER + header.length as usize;
        let mut routes = self.routes.lock();
        let Some(lane) = routes.live.get(&header.channel) else {
            let event = Event::decode(header.kind, buffer.get(FRAME_HEADER..total).unwrap_or_default())?;
            if !routes.closed.contains(&header.channel) {
                return Err(WireError("a channel that is not open"));
            }
            if matches!(event, Event::Done | Event::Fail(..)) {
                routes.closed.remove(&header.channel);
            }
            buffer.advance(total);
            return Ok(());
        };
        match Event::bulk(header.kind) {
            Some(error) if header.length as usize >= KEEP_FROM => {
                let mut frame = buffer.split_to(total);
                frame.advance(FRAME_HEADER);
                lane.keep(error, frame)?;
            }
            Some(error) => {
                lane.copy(error, buffer.get(FRAME_HEADER..total).unwrap_or_default())?;
                buffer.advance(total);
            }
            None => {
                let event = Event::decode(header.kind, buffer.get(FRAME_HEADER..total).unwrap_or_default())?;
                if lane.accept(event)? == Then::Over {
                    routes.live.remove(&header.channel);
                }
                buffer.advance(total);
            }
        }
        Ok(())
    }
}

impl Routes {
    fn fresh(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && !self.live.contains_key(&self.last) && !self.closed.contains(&self.last) {
                return self.last;
            }
        }
    }
}

/// Ends the connection when the reader task is dropped, for instance because the runtime shuts down.
struct EndOnDrop(Arc<Link>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end(End::Gone);
    }
}

/// The receiving half of a connection and the bytes that it has read ahead.
pub(super) struct Intake {
    reader: BoxReader,
    buffer: BytesMut,
}

impl Intake {
    pub(super) fn new(reader: BoxReader) -> Self {
        Self { reader, buffer: BytesMut::new() }
    }

    /// The guest's hello, checked.
    pub(crate) async fn hello(&mut self) -> Result<Hello> {
        const ACTION: &str = "start it";
        let frame = async {
            loop {
                if let Some(header) = self.whole_frame().map_err(|how| MachineError::transport(ACTION, how))? {
                    return Ok(header);
                }
                match self.fill().await {
                    Ok(0) => return Err(MachineError::Gone),
                    Ok(_) => {}
                    Err(error) => return Err(MachineError::transport(ACTION, error)),
                }
            }
        };
        let header = tokio::time::timeout(GREETING, frame)
            .await
            .map_err(|_late| MachineError::transport(ACTION, "the guest did not say hello within 30 seconds"))??;
        let payload = self.buffer.split_to(FRAME_HEADER + header.length as usize);
        let event = Event::decode(header.kind, payload.get(FRAME_HEADER..).unwrap_or_default());
        match event.map_err(|how| MachineError::transport(ACTION, how))? {
            Event::Hello(hello) if header.channel == 0 && hello.version == VERSION => Ok(hello),
            Event::Hello(hello) if header.channel == 0 => Err(MachineError::transport(
                ACTION,
                format!("the guest speaks version {} of the protocol, not {VERSION}", hello.version),
            )),
            _ => Err(MachineError::transport(ACTION, "the guest's first frame is not a hello")),
        }
    }

    /// The reader task: routes frames until the connection ends, then ends it for every channel.
    pub(crate) async fn receive(mut self, link: Arc<Link>) {
        let _ends_the_link = EndOnDrop(link.clone());
        let end = loop {
            match self.route_all(&link) {
                Ok(()) => {}
                Err(how) => {
                    tracing::warn!(%how, "the guest broke the protocol; closing its connection");
                    break End::broken(how.to_string());
                }
            }
            match self.fill().await {
                Ok(0) if self.buffer.is_empty() => break End::Gone,
                Ok(0) => break End::broken("the connection ended in the middle of a frame"),
                Ok(_) => {}
                Err(error) => break End::broken(error.to_string()),
            }
        };
        link.end(end);
    }

    fn route_all(&mut self, link: &Link) -> Result<(), WireError> {
        while let Some(header) = self.whole_frame()? {
            link.deliver(header, &mut self.buffer)?;
        }
        Ok(())
    }

    /// The header of the first frame, if the whole frame is in the buffer.
    fn whole_frame(&self) -> Result<Option<FrameHeader>, WireError> {
        let Some(header) = FrameHeader::decode(&self.buffer)? else { return Ok(None) };
        let length = header.length as usize;
        let fits = match Event::bulk(header.kind) {
            Some(_) => (1..=MAX_DATA).contains(&length),
            None => length <= MAX_EVENT,
        };
        if !fits {
            return Err(WireError("its payload is longer than one of its kind may be"));
        }
        Ok((self.buffer.len() >= FRAME_HEADER + length).then_some(header))
    }

    /// Reads more. A large frame gets a buffer of its own size, so that its bytes can be passed on without a copy.
    async fn fill(&mut self) -> io::Result<usize> {
        let missing = match FrameHeader::decode(&self.buffer) {
            Ok(Some(header)) => (FRAME_HEADER + header.length as usize).saturating_sub(self.buffer.len()),
            _ => 0,
        };
        let wanted = if missing > KEEP_FROM { missing + FRAME_HEADER } else { CHUNK };
        self.buffer.reserve(wanted);
        self.reader.read_buf(&mut (&mut self.buffer).limit(wanted)).await
    }
}
