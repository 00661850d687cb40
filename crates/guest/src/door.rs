//! The door: the listening socket of a machine that outlives its maker. Only the machine's user can reach it. The
//! supervisor checks every visitor before it passes the connection to PID 1.

pub(crate) mod bridge;
pub(crate) mod hub;
pub(crate) mod own;
pub(crate) mod visitors;

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd},
    time::Instant,
};

use rustix::{
    event::{PollFd, PollFlags},
    fs::{AtFlags, Mode, inotify},
    io::IoSlice,
    net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
        bind, listen, sendmsg, socket_with, socketpair, sockopt::socket_peercred,
    },
};
use sandbar_guest::protocol::{DOOR, Detached};

use self::visitors::Visitors;
use crate::{
    handles::path_of,
    machine::failure::{Setup, Step},
};

/// Whether the machine goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Stay,
    /// An authorized visitor asked for the end, or the socket file was removed.
    End,
}

pub(crate) struct Door {
    visitors: Visitors,
    /// The machine's directory, which contains the socket file.
    dir: OwnedFd,
    /// inotify watch for removals in that directory. `None` when the system has no more watches; the machine works
    /// without it.
    watch: Option<OwnedFd>,
    /// The socket that passes connections to PID 1.
    hub: OwnedFd,
}

impl Door {
    /// Creates the socket in the machine's directory. Also returns the end from which PID 1 takes connections.
    pub(crate) fn open(dir: BorrowedFd<'_>, detached: &Detached) -> Setup<(Self, OwnedFd)> {
        let step = "open the machine's door";
        let dir = rustix::io::fcntl_dupfd_cloexec(dir, 3).step(step)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).step(step)?;
        // By descriptor: a socket path has a maximum length that a state directory's path can exceed.
        let path = format!("{}/{DOOR}", path_of(&dir));
        let before = rustix::process::umask(Mode::from_raw_mode(0o177));
        let bound = SocketAddrUnix::new(path).and_then(|address| bind(&listener, &address));
        rustix::process::umask(before);
        bound.step(step)?;
        listen(&listener, 128).step(step)?;
        let (hub, inside) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).step(step)?;
        let visitors = Visitors::new(listener, detached, is_welcome);
        let door = Self { visitors, watch: watch(&dir).ok(), dir, hub };
        Ok((door, inside))
    }

    /// Passes a connection to PID 1. On an error the connection is closed, which its host notices.
    pub(crate) fn hand_over(&self, stream: &OwnedFd) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [stream.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        // Never wait for a machine that accepts no connections.
        sendmsg(&self.hub, &[IoSlice::new(b"+")], &mut ancillary, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Adds the descriptors to poll.
    pub(crate) fn wait_for<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
        fds.extend(self.watch.iter().map(|watch| PollFd::new(watch, PollFlags::IN)));
        fds.extend(self.visitors.awaited().map(|(fd, until)| PollFd::new(fd, until)));
    }

    /// When the oldest visitor times out.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.visitors.deadline()
    }

    /// Handles everything that is ready, without blocking.
    pub(crate) fn turn(&mut self) -> Verdict {
        if self.is_gone() {
            return Verdict::End;
        }
        let visitors::Verdict::Enter(entering) = self.visitors.turn() else { return Verdict::End };
        for stream in entering {
            let _closed = self.hand_over(&stream);
        }
        Verdict::Stay
    }

    /// Whether the socket file was removed: without it no visitor could attach to the machine or end it.
    fn is_gone(&self) -> bool {
        let mut spent = [0; 4096];
        let touched = self.watch.as_ref().is_some_and(|watch| rustix::io::read(watch, &mut spent).is_ok());
        touched && rustix::fs::statat(&self.dir, DOOR, AtFlags::SYMLINK_NOFOLLOW).is_err()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Closing an inotify descriptor takes the kernel tens of milliseconds. The machine's end need not wait for
        // that: the supervisor exits next, which closes it.
        let _closed_at_exit = self.watch.take().map(IntoRawFd::into_raw_fd);
    }
}

fn watch(dir: &OwnedFd) -> io::Result<OwnedFd> {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    let what = inotify::WatchFlags::DELETE | inotify::WatchFlags::MOVED_FROM;
    inotify::add_watch(&watch, path_of(dir), what)?;
    Ok(watch)
}

/// Accepts the machine's own user, and root, who has access anyway. Refuses processes inside a machine: for a machine
/// made by an ordinary user they have the same uid, and the socket and its nonce could have been mounted into a machine
/// by mistake.
fn is_welcome(stream: &OwnedFd) -> bool {
    let Ok(peer) = socket_peercred(stream) else { return false };
    let known = peer.uid.is_root() || peer.uid == rustix::process::geteuid();
    known && is_outside(peer.pid)
}

/// Whether a process is in this process's user namespace. A process that cannot be inspected is not.
fn is_outside(pid: rustix::process::Pid) -> bool {
    let place = |who: &str| rustix::fs::stat(format!("/proc/{who}/ns/user")).map(|stat| (stat.st_dev, stat.st_ino));
    match (place("self"), place(&pid.as_raw_nonzero().to_string())) {
        (Ok(ours), Ok(theirs)) => ours == theirs,
        _ => false,
    }
}
