//! Source of host connections for a machine that outlives its maker.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::{Errno, IoSliceMut},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};

use crate::door::own::OwnDoor;

/// Source of connections; its descriptor is readable when a connection may be waiting.
pub(crate) enum Hub {
    /// The supervisor passes connections over this socket.
    Supervisor(OwnedFd),
    /// PID 1 itself listens.
    Door(Box<OwnDoor>),
}

impl Hub {
    /// The next connections. If the supervisor is gone or a client asked to end the machine, this is an error: the
    /// machine ends.
    pub(crate) fn take(&mut self) -> io::Result<Vec<OwnedFd>> {
        match self {
            Self::Supervisor(hub) => handed_over(hub),
            Self::Door(door) => door.turn()?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl AsFd for Hub {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Supervisor(hub) => hub.as_fd(),
            Self::Door(door) => door.as_fd(),
        }
    }
}

fn handed_over(hub: &OwnedFd) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    match recvmsg(hub, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags) {
        Ok(message) if message.bytes == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => {}
        Err(Errno::AGAIN | Errno::INTR) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    }
    let received = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok(received.flatten().collect())
}
