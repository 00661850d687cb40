//! Splices bulk bytes from a host into a worker's pipe, without copying them through the guest.

use std::io;

use rustix::io::Errno;
use sandbar_guest::protocol::{FRAME_HEADER, FrameHeader, MAX_DATA, Request};

use super::link::{Id, ReadOutcome};
use crate::serve::{Server, requests::too_much};

/// Fewer bytes are copied faster than spliced.
const WORTH_MOVING: usize = 4 * 1024;

/// A frame that is being spliced.
pub(crate) struct Splice {
    id: Id,
    left: usize,
}

impl Server {
    /// Handles an incomplete frame. If its bytes can be spliced, the ones already read are passed on, and the rest is
    /// spliced when it arrives; returns the number of bytes used.
    pub(crate) fn begin_splice(&mut self, number: u32, begun: &[u8]) -> io::Result<usize> {
        let Some(link) = self.hosts.get_mut(number) else { return Ok(0) };
        // The header is not complete yet.
        let Some(header) = FrameHeader::decode(begun).map_err(io::Error::other)? else { return Ok(0) };
        let id = Id { link: number, channel: header.channel };
        let (length, here) = (header.length as usize, begun.get(FRAME_HEADER..).unwrap_or_default());
        let left = length.saturating_sub(here.len());
        let bulk = Request::is_bulk(header.kind) && length <= MAX_DATA;
        let channel = self.channels.get_mut(id).filter(|channel| bulk && channel.relay.has_meter());
        link.in_bulk = channel.is_some();
        let Some(channel) = channel else { return Ok(0) };
        if length > channel.relay.room() {
            return Err(too_much());
        }
        link.splice = Some(Splice { id, left });
        if !here.is_empty() {
            channel.relay.feed(here, &mut link.outbox, &self.epoll);
            self.settle(id);
        }
        Ok(begun.len())
    }

    /// Continues with a frame that is being spliced. If its sink is full or gone, the bytes are read anyway: frames for
    /// other channels follow them.
    pub(crate) fn receive_splice(&mut self, number: u32) -> io::Result<ReadOutcome> {
        let Some(link) = self.hosts.get_mut(number) else { return Ok(ReadOutcome::Nothing) };
        let (Some(splice), Some(input)) = (&mut link.splice, &link.input) else { return Ok(ReadOutcome::Nothing) };
        let id = splice.id;
        let mut channel = self.channels.get_mut(id);
        let moved = match &mut channel {
            Some(channel) if splice.left >= WORTH_MOVING => channel.relay.move_in(input, splice.left),
            _ => None,
        };
        let count = match moved {
            Some(count) => count,
            None => {
                let most = splice.left.min(self.scratch.len());
                let count = match rustix::io::read(input, self.scratch.get_mut(..most).unwrap_or_default()) {
                    Ok(0) => return Ok(ReadOutcome::End),
                    Ok(count) => count,
                    Err(Errno::AGAIN | Errno::INTR) => return Ok(ReadOutcome::Nothing),
                    Err(error) => return Err(error.into()),
                };
                if let Some(channel) = channel {
                    let bytes = self.scratch.get(..count).unwrap_or_default();
                    channel.relay.feed(bytes, &mut link.outbox, &self.epoll);
                }
                count
            }
        };
        splice.left = splice.left.saturating_sub(count);
        if splice.left == 0 {
            link.splice = None;
        }
        self.settle(id);
        Ok(ReadOutcome::Bytes)
    }
}
