//! One connection to a host: its number, its input, and what happens to its channels when it ends.

use std::{io, os::fd::OwnedFd};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
};
use sandbar_guest::protocol::{FRAME_HEADER, FrameHeader, Request};

use super::{outbox::Outbox, splice::Splice};
use crate::serve::{SCRATCH, Server, channels::relay::Role};

/// Bulk frames of one host that are handled before other hosts have their turn.
const BULK_TURNS: usize = 16;
/// How many more reads are made from a lost host.
const LAST_WORDS: usize = 16;
/// Requests after which the answers so far are sent.
const CROWD: usize = 16;
/// Bound of connection numbers, which take 24 bits of a readiness key.
pub(crate) const NUMBERS: u32 = 1 << 24;
/// Connection number of detached commands.
pub(crate) const DETACHED: u32 = NUMBERS;

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
pub(crate) enum Wake {
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
pub(crate) const CHILDREN: u64 = u64::MAX;
pub(crate) const HUB: u64 = u64::MAX - 4;

impl Wake {
    pub(crate) fn of(key: u64) -> Self {
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
pub(crate) struct Link {
    /// `None` once the host is gone and only its channels remain.
    pub(crate) input: Option<OwnedFd>,
    pub(crate) outbox: Outbox,
    output_armed: bool,
    inbox: Vec<u8>,
    /// A bulk frame whose bytes are being spliced to their sink.
    pub(crate) splice: Option<Splice>,
    /// Whether the last frame was a bulk frame: then the next probably is too.
    pub(crate) in_bulk: bool,
}

impl Link {
    pub(crate) fn new(input: OwnedFd, output: OwnedFd) -> Self {
        Self { input: Some(input), ..Self::over(Outbox::new(output)) }
    }

    /// The connection of detached commands.
    pub(crate) fn detached() -> Self {
        Self::over(Outbox::nowhere())
    }

    fn over(outbox: Outbox) -> Self {
        Self { input: None, outbox, output_armed: false, inbox: Vec::new(), splice: None, in_bulk: false }
    }

    /// Readiness key of a connection's input.
    pub(crate) fn input_key(number: u32) -> u64 {
        u64::from(number) << 34 | INPUT
    }

    /// Whether the host is still connected.
    pub(crate) fn is_open(&self) -> bool {
        self.input.is_some()
    }

    /// Sends what the stream takes, and polls it for the rest; `true` when everything was sent.
    pub(crate) fn flush(&mut self, number: u32, epoll: &OwnedFd) -> io::Result<bool> {
        let done = self.outbox.flush()?;
        if done == self.output_armed
            && let Some(stream) = self.outbox.stream()
        {
            if done {
                epoll::delete(epoll, stream)?;
            } else {
                epoll::add(epoll, stream, EventData::new_u64(u64::from(number) << 34 | OUTPUT), EventFlags::OUT)?;
            }
            self.output_armed = !done;
        }
        Ok(done)
    }

    /// Closes the connection; only its channels remain.
    pub(crate) fn close(&mut self, epoll: &OwnedFd) {
        if let Some(stream) = self.outbox.stream().filter(|_| self.output_armed) {
            let _gone_anyway = epoll::delete(epoll, stream);
        }
        if let Some(input) = self.input.take() {
            let _gone_anyway = epoll::delete(epoll, &input);
        }
        self.outbox.shut();
        *self = Self::detached();
    }
}

impl Server {
    /// Flushes every connection.
    pub(crate) fn flush(&mut self) {
        for number in self.hosts.numbers() {
            if let Err(error) = self.hosts.flush(number, &mut self.channels, &self.epoll) {
                self.lose_deaf(number, error);
            }
        }
        self.hosts.forget_closed(&self.channels);
    }

    /// Reads frames from a host and handles them.
    pub(crate) fn receive(&mut self, number: u32) {
        self.access.hold();
        let received = self.receive_some(number);
        self.access.release();
        match received {
            Ok(true) => {}
            Ok(false) => self.lose(number, Ok(())),
            Err(error) => self.lose(number, Err(error)),
        }
    }

    /// The same; `false` when the host disconnected.
    fn receive_some(&mut self, number: u32) -> io::Result<bool> {
        for _ in 0..BULK_TURNS {
            let heard = match self.hosts.get(number) {
                Some(Link { splice: Some(_), .. }) => self.receive_splice(number)?,
                Some(Link { in_bulk: true, .. }) => self.receive_frames(number, ReadAmount::Header)?,
                _ => self.receive_frames(number, ReadAmount::Frames)?,
            };
            match heard {
                ReadOutcome::End => return Ok(false),
                ReadOutcome::Bytes if self.hosts.get(number).is_some_and(|link| link.in_bulk) => {}
                ReadOutcome::Bytes | ReadOutcome::Nothing => break,
            }
        }
        Ok(true)
    }

    /// Reads some bytes and handles the frames that are now complete.
    fn receive_frames(&mut self, number: u32, what: ReadAmount) -> io::Result<ReadOutcome> {
        let Some(link) = self.hosts.get_mut(number) else { return Ok(ReadOutcome::Nothing) };
        let Some(input) = &link.input else { return Ok(ReadOutcome::Nothing) };
        let heard = read_into(input, &mut link.inbox, what)?;
        if heard != ReadOutcome::Bytes {
            return Ok(heard);
        }
        let mut inbox = std::mem::take(&mut link.inbox);
        let (mut used, mut bulk, mut taken) = (0, link.in_bulk, 0);
        while let Some((header, payload)) = next_frame(inbox.get(used..).unwrap_or_default())? {
            let id = Id { link: number, channel: header.channel };
            self.accept(id, header.kind, payload)?;
            bulk = Request::is_bulk(header.kind) && self.channels.get(id).is_some_and(|to| to.relay.has_meter());
            used += FRAME_HEADER + payload.len();
            taken += 1;
            if taken % CROWD == 0 && !self.answer_early(number)? {
                return Ok(ReadOutcome::Nothing);
            }
        }
        if let Some(link) = self.hosts.get_mut(number) {
            link.in_bulk = bulk;
        }
        used += self.begin_splice(number, inbox.get(used..).unwrap_or_default())?;
        inbox.drain(..used);
        if inbox.is_empty() && inbox.capacity() > 4 * SCRATCH {
            inbox = Vec::new();
        }
        if let Some(link) = self.hosts.get_mut(number) {
            link.inbox = inbox;
        }
        Ok(heard)
    }

    /// Sends the answers so far, so that the host can work on them meanwhile; `false` when it is gone.
    fn answer_early(&mut self, number: u32) -> io::Result<bool> {
        self.access.reset();
        self.send_files();
        self.hosts.flush(number, &mut self.channels, &self.epoll)?;
        Ok(self.hosts.get(number).is_some_and(Link::is_open))
    }

    fn accept(&mut self, id: Id, kind: u8, payload: &[u8]) -> io::Result<()> {
        let request = Request::decode(kind, payload).map_err(io::Error::other)?;
        if !request.is_about_files() {
            self.access.reset();
        }
        match request {
            Request::Open(window, open) => self.open(id, window, open),
            other => self.proceed(id, other),
        }
    }

    /// Handles a host that cannot be written to. Its last input still counts: it may confirm output.
    pub(crate) fn lose_deaf(&mut self, number: u32, error: io::Error) {
        self.access.hold();
        for _ in 0..LAST_WORDS {
            if !self.hosts.may_change() || !matches!(self.receive_some(number), Ok(true)) {
                break;
            }
        }
        self.access.release();
        self.lose(number, Err(error));
    }

    /// Handles a host that is gone or sent invalid frames. Its commands are killed, or detached if they survive it; a
    /// machine with only this host ends.
    pub(crate) fn lose(&mut self, number: u32, how: io::Result<()>) {
        if !self.hosts.close(number, how, &self.epoll) {
            return;
        }
        let own: Vec<Id> = self.channels.of(number).collect();
        for id in own {
            self.leave(id);
        }
        self.hosts.watch_lease();
    }
}

/// Result of reading from a host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    Bytes,
    Nothing,
    End,
}

/// Appends available bytes: as many as fit, or only the rest of a header.
fn read_into(input: &OwnedFd, inbox: &mut Vec<u8>, what: ReadAmount) -> io::Result<ReadOutcome> {
    let mut header = [0; FRAME_HEADER];
    let count = match what {
        ReadAmount::Frames => {
            inbox.reserve(SCRATCH);
            rustix::io::read(input, rustix::buffer::spare_capacity(inbox))
        }
        ReadAmount::Header => {
            let missing = FRAME_HEADER.saturating_sub(inbox.len());
            rustix::io::read(input, header.get_mut(..missing).unwrap_or_default())
        }
    };
    match count {
        Ok(0) => Ok(ReadOutcome::End),
        Ok(count) => {
            if what == ReadAmount::Header {
                inbox.extend_from_slice(header.get(..count).unwrap_or_default());
            }
            Ok(ReadOutcome::Bytes)
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(ReadOutcome::Nothing),
        Err(error) => Err(error.into()),
    }
}

/// How much to read from a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadAmount {
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
