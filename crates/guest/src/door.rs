//! The door of a machine that outlives its maker: a socket only its user can reach, behind which the supervisor looks at
//! every visitor before it hands the connection on to PID 1.

pub(crate) mod own;
pub(crate) mod visitors;

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd},
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
use crate::failure::{Setup, Step};

/// What the supervisor has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    Stay,
    /// End the machine: somebody who may asked for it, or its door was taken away.
    End,
}

pub(crate) struct Door {
    visitors: Visitors,
    /// The machine's directory, where the door must stay.
    dir: OwnedFd,
    /// Tells that something was removed there; the system has only so many, and a machine can do without.
    watch: Option<OwnedFd>,
    /// Where PID 1 takes connections.
    hub: OwnedFd,
}

impl Door {
    /// Puts the door into the machine's directory. Also returns PID 1's end of the hub.
    pub(crate) fn open(dir: BorrowedFd<'_>, detached: &Detached) -> Setup<(Self, OwnedFd)> {
        let step = "open the machine's door";
        let dir = rustix::io::fcntl_dupfd_cloexec(dir, 3).step(step)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).step(step)?;
        // By descriptor: a socket's path may be only so long, a state directory's longer.
        let path = format!("/proc/self/fd/{}/{DOOR}", dir.as_raw_fd());
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

    /// Hands a connection to PID 1. One that cannot be handed over is closed, which its host hears.
    pub(crate) fn hand_over(&self, stream: &OwnedFd) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [stream.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        // A machine that takes none is not waited for.
        sendmsg(&self.hub, &[IoSlice::new(b"+")], &mut ancillary, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Adds what is to be waited for.
    pub(crate) fn wait_for<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
        fds.extend(self.watch.iter().map(|watch| PollFd::new(watch, PollFlags::IN)));
        fds.extend(self.visitors.awaited().map(|(fd, until)| PollFd::new(fd, until)));
    }

    /// When the first visitor has had its time.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.visitors.deadline()
    }

    /// Does whatever can be done without waiting.
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

    /// Whether somebody removed the door by hand: nobody could ever come in again, nor end the machine.
    fn is_gone(&self) -> bool {
        let mut spent = [0; 4096];
        let touched = self.watch.as_ref().is_some_and(|watch| rustix::io::read(watch, &mut spent).is_ok());
        touched && rustix::fs::statat(&self.dir, DOOR, AtFlags::SYMLINK_NOFOLLOW).is_err()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Closing it takes the kernel tens of milliseconds, for which the machine's end need not wait: the supervisor's own
        // end, which follows, closes it.
        let _closed_at_exit = self.watch.take().map(IntoRawFd::into_raw_fd);
    }
}

fn watch(dir: &OwnedFd) -> io::Result<OwnedFd> {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    let what = inotify::WatchFlags::DELETE | inotify::WatchFlags::MOVED_FROM;
    inotify::add_watch(&watch, format!("/proc/self/fd/{}", dir.as_raw_fd()), what)?;
    Ok(watch)
}

/// Only the machine's own user, and root, who could do anything anyway; and nobody from inside a machine, who is the same
/// user where an ordinary one made it, and could have been shown the door and its nonce by mistake.
fn is_welcome(stream: &OwnedFd) -> bool {
    let Ok(peer) = socket_peercred(stream) else { return false };
    let known = peer.uid.is_root() || peer.uid == rustix::process::geteuid();
    known && is_outside(peer.pid)
}

/// Whether a process is in the user namespace this one is in. One that cannot be looked at is not.
fn is_outside(pid: rustix::process::Pid) -> bool {
    let place = |who: &str| rustix::fs::stat(format!("/proc/{who}/ns/user")).map(|stat| (stat.st_dev, stat.st_ino));
    match (place("self"), place(&pid.as_raw_nonzero().to_string())) {
        (Ok(ours), Ok(theirs)) => ours == theirs,
        _ => false,
    }
}
