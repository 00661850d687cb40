//! Moves a command's descriptors from one host to another: output that a host has not confirmed is stored, and sent
//! again to the next host.

use std::{io, os::fd::OwnedFd};

use rustix::event::epoll::EventFlags;
use sandbar_guest::protocol::{Event, MAX_DATA};

use super::{Relay, Role};
use crate::serve::{
    channels::backlog::Backlog,
    hosts::{link::Id, outbox::Outbox},
};

impl Relay {
    /// Stores output until the host confirms it.
    pub(crate) fn remember(&mut self) {
        self.backlog = Some(Backlog::default());
    }

    /// Whether no host is attached.
    pub(crate) fn is_orphan(&self) -> bool {
        self.orphan
    }

    /// Whether stored output has not been sent to the current host yet.
    pub(crate) fn is_behind(&self) -> bool {
        self.backlog.as_ref().is_some_and(|backlog| !backlog.is_sent())
    }

    /// Connects the descriptors to another channel: of a host that has sent and confirmed nothing yet, or, without a
    /// window, of no host.
    pub(crate) fn rehome(&mut self, id: Id, window: Option<u32>, epoll: &OwnedFd) {
        let sink = self.sink.as_mut().map(|sink| &mut sink.watched);
        for watched in [self.out.as_mut(), self.err.as_mut(), sink].into_iter().flatten() {
            watched.disarm(epoll);
        }
        (self.id, self.orphan, self.credit) = (id, window.is_none(), u64::from(window.unwrap_or(0)));
        if let Some(backlog) = &mut self.backlog {
            backlog.rewind();
        }
        if let Some(sink) = &mut self.sink {
            // Limits queued input, however many hosts attach one after another.
            sink.queue.truncate(sink.window);
            (sink.owed, sink.inherited) = (0, sink.queue.len());
            if !sink.queue.is_empty() {
                sink.watched.arm(epoll, Role::Sink.key(id), EventFlags::OUT);
            }
        }
        self.rearm(epoll);
    }

    /// Sends stored output within credit, as long as the outbox has room; `true` if more could follow.
    pub(crate) fn replay(&mut self, outbox: &mut Outbox) -> io::Result<bool> {
        let Some(backlog) = &mut self.backlog else { return Ok(false) };
        if let Some(omitted) = backlog.untold() {
            outbox.push(self.id.channel, &Event::Omitted(omitted));
        }
        while !outbox.is_full() && self.credit > 0 {
            let most = usize::try_from(self.credit).unwrap_or(MAX_DATA).min(MAX_DATA);
            let Some((error, bytes)) = backlog.next(most) else { break };
            let count = bytes.len();
            outbox.bulk(self.id.channel, error, bytes)?;
            self.credit -= count as u64;
            backlog.sent(count);
        }
        Ok(self.credit > 0 && !backlog.is_sent())
    }
}
