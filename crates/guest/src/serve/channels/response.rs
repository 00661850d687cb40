//! Sends files, answers and stored output to hosts, a turn at a time.

use std::{fs::File, io, os::unix::fs::FileExt, rc::Rc};

use sandbar_guest::protocol::{Event, FailKind, MAX_DATA};

use super::{Channel, Task};
use crate::serve::{Server, hosts::link::Id};

/// Bytes of one file that are sent before another channel has its turn.
const TURN: usize = 1024 * 1024;

/// A response to send: a file, or bytes.
pub(crate) enum Response {
    /// A file, the offset of the next byte, and its size when it was opened; 0 for files without a known size, as in
    /// `/proc`.
    File(Rc<File>, u64, u64),
    Bytes(Vec<u8>, usize),
}

impl Server {
    /// Gives every channel with bytes to send a turn, unless its host's outbox is full.
    pub(crate) fn send_files(&mut self) {
        for _ in 0..self.channels.to_send.len() {
            let Some(id) = self.channels.to_send.pop_front() else { return };
            let more = if self.hosts.is_full(id.link) { Ok(self.channels.has(id)) } else { self.send_some(id) };
            match more {
                Ok(true) => self.channels.to_send.push_back(id),
                Ok(false) => {}
                Err(error) => self.lose(id.link, Err(error)),
            }
        }
    }

    /// Sends some bytes; `true` if more could follow at once.
    fn send_some(&mut self, id: Id) -> io::Result<bool> {
        if let Some(Channel { relay, task: Task::Process(_), .. }) = self.channels.get_mut(id)
            && let Some(link) = self.hosts.get_mut(id.link)
        {
            let more = relay.replay(&mut link.outbox)?;
            relay.rearm(&self.epoll);
            self.settle(id);
            return Ok(more);
        }
        let Some(Channel { relay, task: Task::Response(response), .. }) = self.channels.get_mut(id) else {
            return Ok(false);
        };
        let Some(link) = self.hosts.get_mut(id.link) else { return Ok(false) };
        let mut turn = 0;
        while turn < TURN && !link.outbox.is_full() {
            let room = relay.available().min(MAX_DATA).min(self.scratch.len());
            let buffer = self.scratch.get_mut(..room).unwrap_or_default();
            let read = match response {
                Response::File(..) if room == 0 => return Ok(false),
                Response::File(_, offset, size) if *size > 0 && *offset >= *size => Ok(0),
                Response::File(file, offset, size) => {
                    let moved = move_file(file, *offset, *size, room);
                    if let Some(length) = moved {
                        link.outbox.file(id.channel, file.clone(), *offset, length);
                        *offset += u64::from(length);
                        relay.spend(length as usize);
                        turn += length as usize;
                        continue;
                    }
                    let read = file.read_at(buffer, *offset);
                    *offset += read.as_ref().map_or(0, |count| *count as u64);
                    read
                }
                Response::Bytes(bytes, sent) => {
                    let rest = bytes.get(*sent..).unwrap_or_default();
                    if room == 0 && !rest.is_empty() {
                        return Ok(false);
                    }
                    let count = rest.len().min(room);
                    buffer.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
                    *sent += count;
                    Ok(count)
                }
            };
            let last = match read {
                Ok(0) => Event::Done,
                Ok(count) => {
                    relay.spend(count);
                    turn += count;
                    link.outbox.bulk(id.channel, false, self.scratch.get(..count).unwrap_or_default())?;
                    continue;
                }
                Err(error) => {
                    Event::Fail(FailKind::Errno, error.raw_os_error().unwrap_or(libc::EIO), error.to_string())
                }
            };
            link.outbox.push(id.channel, &last);
            self.channels.remove(id);
            return Ok(false);
        }
        Ok(true)
    }
}

/// Bytes of a file to send by `sendfile`; small pieces, and files without a known size, are read instead.
fn move_file(file: &File, offset: u64, size: u64, room: usize) -> Option<u32> {
    let large = |size: u64| {
        let length = size.saturating_sub(offset).min(room as u64);
        u32::try_from(length).ok().filter(|length| *length >= 64 * 1024)
    };
    // The file may have become shorter since it was opened.
    large(size).and_then(|_| large(file.metadata().ok()?.len().min(size)))
}
