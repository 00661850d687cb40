//! One connection to a host: its number, its input, and what happens to its channels when it ends.

use std::{io, os::fd::OwnedFd};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    fs::OFlags,
    io::Errno,
};
use sandbar_guest::protocol::{Event, FRAME_HEADER, FrameHeader, Request};

use super::{SCRATCH, Server, bulk::Moving, outbox::Outbox, relay::Role};

/// Most open connections. Connections whose host is gone do not count: a background process may keep their channels for
/// long.
const LINKS: usize = 128;
/// Bulk frames of one host that are handled before other hosts have their turn.
const BULK_TURNS: usize = 16;
/// How many more reads are made from a lost host.
const LAST_WORDS: usize = 16;
/// Requests after which the answers so far are sent.
const CROWD: usize = 16;
/// Bound of connection numbers, which take 24 bits of a readiness key.
const NUMBERS: u32 = 1 << 24;
/// Connection number of detached commands.
pub(super) const NOBODY: u32 = NUMBERS;

/// A channel of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) link: u32,
    pub(crate) channel: u32,
}

impl Id {
    /// The channel's part of a readiness key; its two lowest bits are left for the role.
    pub(crate) fn key(self) -> u64 {
        u64::from(self.link) << 34 | u64::from(self.channel) << 2
    }
}

/// Meaning of a readiness key.
pub(super) enum Wake {
    /// A descriptor of a channel.
    Channel(Id, Role),
    /// Input of a connection.
    Input(u32),
    /// A connection is writable again; every turn flushes anyway.
    Output,
    /// A child ended.
    Children,
    /// A new connection.
    Hub,
}

/// Low bits of keys that are not a channel's.
const OWN: u64 = 3;
const INPUT: u64 = OWN;
const OUTPUT: u64 = 1 << 2 | OWN;
pub(super) const CHILDREN: u64 = u64::MAX;
pub(super) const HUB: u64 = u64::MAX - 4;

impl Wake {
    pub(super) fn of(key: u64) -> Self {
        // Connection numbers are too small to collide with the two last keys.
        let link = u32::try_from(key >> 34).unwrap_or_default();
        let channel = u32::try_from(key >> 2 & u64::from(u32::MAX)).unwrap_or_default();
        let id = Id { link, channel };
        match key {
            CHILDREN => Self::Children,
            HUB => Self::Hub,
            _ if key & OWN == 0 => Self::Channel(id, Role::Out),
            _ if key & OWN == 1 => Self::Channel(id, Role::Err),
            _ if key & OWN == 2 => Self::Channel(id, Role::Sink),
            _ if channel == 0 => Self::Input(link),
            _ => Self::Output,
        }
    }
}

/// A connection to a host.
pub(super) struct Link {
    /// `None` once the host is gone and only its channels remain.
    pub(super) input: Option<OwnedFd>,
    pub(super) outbox: Outbox,
    output_armed: bool,
    inbox: Vec<u8>,
    /// A bulk frame whose bytes are being spliced to their sink.
    pub(super) moving: Option<Moving>,
    /// Whether the last frame was a bulk frame: then the next probably is too.
    pub(super) in_bulk: bool,
}

impl Link {
    /// The connection of detached commands.
    pub(super) fn nobody() -> Self {
        let outbox = Outbox::nowhere();
        Self { input: None, outbox, output_armed: false, inbox: Vec::new(), moving: None, in_bulk: false }
    }

    /// Whether the host is still connected.
    pub(super) fn is_open(&self) -> bool {
        self.input.is_some()
    }
}

impl Server {
    /// Starts to serve a host.
    pub(super) fn greet(&mut self, input: OwnedFd, output: OwnedFd) -> io::Result<()> {
        for fd in [&input, &output] {
            let flags = rustix::fs::fcntl_getfl(fd)?;
            rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?;
        }
        // As large as the system allows, so that a large file takes fewer turns. Fails for a container's stream, which
        // is a pipe.
        let _pipes_have_none = rustix::net::sockopt::set_socket_send_buffer_size(&output, 1 << 20);
        while self.links.contains_key(&self.next_link) {
            self.next_link = (self.next_link + 1) % NUMBERS;
        }
        let number = self.next_link;
        epoll::add(&self.epoll, &input, EventData::new_u64(u64::from(number) << 34 | INPUT), EventFlags::IN)?;
        let mut outbox = Outbox::new(output);
        outbox.push(0, &Event::Hello(self.settings.hello.clone()));
        let link =
            Link { input: Some(input), outbox, output_armed: false, inbox: Vec::new(), moving: None, in_bulk: false };
        self.links.insert(number, link);
        self.next_link = (number + 1) % NUMBERS;
        self.watch_lease();
        Ok(())
    }

    /// Accepts the next connections; an error ends the machine.
    pub(super) fn admit(&mut self) -> io::Result<()> {
        let Some(hub) = &mut self.hub else { return Ok(()) };
        for stream in hub.take()? {
            if self.links.values().filter(|link| link.is_open()).count() < LINKS
                && let Ok(output) = rustix::io::fcntl_dupfd_cloexec(&stream, 3)
            {
                // A connection that cannot be served is closed, which its host notices.
                let _closed = self.greet(stream, output);
            }
        }
        Ok(())
    }

    /// Queues an event for the host of a channel.
    pub(super) fn push(&mut self, id: Id, event: &Event<'_>) {
        if let Some(link) = self.links.get_mut(&id.link) {
            link.outbox.push(id.channel, event);
        }
    }

    /// Whether a connection's outbox is full.
    pub(super) fn is_full(&self, number: u32) -> bool {
        self.links.get(&number).is_none_or(|link| link.outbox.is_full())
    }

    /// Flushes every connection.
    pub(super) fn flush(&mut self) {
        let numbers: Vec<u32> = self.links.keys().copied().collect();
        for number in numbers {
            if let Err(error) = self.flush_link(number) {
                self.lose_deaf(number, error);
            }
        }
        let channels = &self.channels;
        self.links.retain(|number, link| link.is_open() || channels.keys().any(|id| id.link == *number));
    }

    /// Flushes a connection. If the stream is full, polls it; if the outbox has room again, polls the sources again.
    fn flush_link(&mut self, number: u32) -> io::Result<()> {
        let Some(link) = self.links.get_mut(&number) else { return Ok(()) };
        let was_full = link.outbox.is_full();
        let done = link.outbox.flush()?;
        if done == link.output_armed
            && let Some(stream) = link.outbox.stream()
        {
            if done {
                epoll::delete(&self.epoll, stream)?;
            } else {
                let key = EventData::new_u64(u64::from(number) << 34 | OUTPUT);
                epoll::add(&self.epoll, stream, key, EventFlags::OUT)?;
            }
            link.output_armed = !done;
        }
        if (was_full || done) && !link.outbox.is_full() {
            let own = self.channels.iter_mut().filter(|(id, _)| id.link == number);
            for (_, channel) in own.filter(|(_, channel)| channel.relay.is_stalled()) {
                channel.relay.rearm(&self.epoll);
            }
        }
        Ok(())
    }

    /// Reads frames from a host and handles them.
    pub(super) fn receive(&mut self, number: u32) {
        self.guise.hold();
        let received = self.receive_some(number);
        self.guise.release();
        match received {
            Ok(true) => {}
            Ok(false) => self.lose(number, Ok(())),
            Err(error) => self.lose(number, Err(error)),
        }
    }

    /// The same; `false` when the host disconnected.
    fn receive_some(&mut self, number: u32) -> io::Result<bool> {
        for _ in 0..BULK_TURNS {
            let heard = match self.links.get(&number) {
                Some(Link { moving: Some(_), .. }) => self.receive_moving(number)?,
                Some(Link { in_bulk: true, .. }) => self.receive_frames(number, Wanted::Header)?,
                _ => self.receive_frames(number, Wanted::Frames)?,
            };
            match heard {
                Heard::End => return Ok(false),
                Heard::Something if self.links.get(&number).is_some_and(|link| link.in_bulk) => {}
                Heard::Something | Heard::Nothing => break,
            }
        }
        Ok(true)
    }

    /// Reads some bytes and handles the frames that are now complete.
    fn receive_frames(&mut self, number: u32, what: Wanted) -> io::Result<Heard> {
        let Some(link) = self.links.get_mut(&number) else { return Ok(Heard::Nothing) };
        let Some(input) = &link.input else { return Ok(Heard::Nothing) };
        let heard = read_into(input, &mut link.inbox, what)?;
        if heard != Heard::Something {
            return Ok(heard);
        }
        let mut inbox = std::mem::take(&mut link.inbox);
        let (mut used, mut bulk, mut taken) = (0, link.in_bulk, 0);
        while let Some((header, payload)) = next_frame(inbox.get(used..).unwrap_or_default())? {
            let id = Id { link: number, channel: header.channel };
            self.accept(id, header.kind, payload)?;
            bulk = Request::is_bulk(header.kind) && self.channels.get(&id).is_some_and(|to| to.relay.has_meter());
            used += FRAME_HEADER + payload.len();
            taken += 1;
            if taken % CROWD == 0 && !self.answer_early(number)? {
                return Ok(Heard::Nothing);
            }
        }
        if let Some(link) = self.links.get_mut(&number) {
            link.in_bulk = bulk;
        }
        used += self.begin_moving(number, inbox.get(used..).unwrap_or_default())?;
        inbox.drain(..used);
        if inbox.is_empty() && inbox.capacity() > 4 * SCRATCH {
            inbox = Vec::new();
        }
        if let Some(link) = self.links.get_mut(&number) {
            link.inbox = inbox;
        }
        Ok(heard)
    }

    /// Sends the answers so far, so that the host can work on them meanwhile; `false` when it is gone.
    fn answer_early(&mut self, number: u32) -> io::Result<bool> {
        self.guise.shed();
        self.send_files();
        self.flush_link(number)?;
        Ok(self.links.get(&number).is_some_and(Link::is_open))
    }

    fn accept(&mut self, id: Id, kind: u8, payload: &[u8]) -> io::Result<()> {
        let request = Request::decode(kind, payload).map_err(io::Error::other)?;
        if !request.is_about_files() {
            self.guise.shed();
        }
        match request {
            Request::Open(window, open) => self.open(id, window, open),
            other => self.proceed(id, other),
        }
    }

    /// Handles a host that cannot be written to. Its last input still counts: it may confirm output.
    pub(super) fn lose_deaf(&mut self, number: u32, error: io::Error) {
        self.guise.hold();
        for _ in 0..LAST_WORDS {
            if self.hub.is_none() || !matches!(self.receive_some(number), Ok(true)) {
                break;
            }
        }
        self.guise.release();
        self.lose(number, Err(error));
    }

    /// Handles a host that is gone or sent invalid frames. Its commands are killed, or detached if they survive it; a
    /// machine with only this host ends.
    pub(super) fn lose(&mut self, number: u32, how: io::Result<()>) {
        if self.hub.is_none() {
            self.ended.get_or_insert(how);
            return;
        }
        let Some(link) = self.links.get_mut(&number) else { return };
        if let Some(stream) = link.outbox.stream().filter(|_| link.output_armed) {
            let _gone_anyway = epoll::delete(&self.epoll, stream);
        }
        if let Some(input) = link.input.take() {
            let _gone_anyway = epoll::delete(&self.epoll, &input);
        }
        link.output_armed = false;
        link.inbox = Vec::new();
        (link.moving, link.in_bulk) = (None, false);
        link.outbox.shut();
        let own: Vec<Id> = self.channels.keys().filter(|id| id.link == number).copied().collect();
        for id in own {
            self.leave(id);
        }
        self.watch_lease();
    }
}

/// Result of reading from a host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    Something,
    Nothing,
    End,
}

/// Appends available bytes: as many as fit, or only the rest of a header.
fn read_into(input: &OwnedFd, inbox: &mut Vec<u8>, what: Wanted) -> io::Result<Heard> {
    let mut header = [0; FRAME_HEADER];
    let count = match what {
        Wanted::Frames => {
            inbox.reserve(SCRATCH);
            rustix::io::read(input, rustix::buffer::spare_capacity(inbox))
        }
        Wanted::Header => {
            let missing = FRAME_HEADER.saturating_sub(inbox.len());
            rustix::io::read(input, header.get_mut(..missing).unwrap_or_default())
        }
    };
    match count {
        Ok(0) => Ok(Heard::End),
        Ok(count) => {
            if what == Wanted::Header {
                inbox.extend_from_slice(header.get(..count).unwrap_or_default());
            }
            Ok(Heard::Something)
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(Heard::Nothing),
        Err(error) => Err(error.into()),
    }
}

/// How much to read from a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Frames,
    /// Leaves the bytes after the header in the stream.
    Header,
}

/// The first complete frame.
fn next_frame(bytes: &[u8]) -> io::Result<Option<(FrameHeader, &[u8])>> {
    let Some(header) = FrameHeader::decode(bytes).map_err(io::Error::other)? else { return Ok(None) };
    let payload = bytes.get(FRAME_HEADER..FRAME_HEADER + header.length as usize);
    Ok(payload.map(|payload| (header, payload)))
}
