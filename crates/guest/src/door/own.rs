//! The door of a machine without a supervisor: PID 1 of a container listens itself, for bridges that the engine starts.
//!
//! It is an abstract socket in the container's own network namespace, not a file: it needs no directory, cannot be
//! replaced, and Landlock keeps commands from connecting to it.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Instant,
};

use rustix::{
    event::{
        PollFlags,
        epoll::{self, EventData, EventFlags},
    },
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with, sockopt::socket_peercred,
    },
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime},
};
use sandbar_guest::protocol::{DOOR, Detached};

use super::visitors::{Verdict, Visitors};

/// Name of a machine's abstract socket.
pub(crate) fn name(id: &[u8]) -> Vec<u8> {
    [b"sandbar-", DOOR.as_bytes(), b"-", id].concat()
}

/// The listening socket and its visitors, behind one epoll descriptor.
pub(crate) struct OwnDoor {
    visitors: Visitors,
    epoll: OwnedFd,
    timer: OwnedFd,
}

impl OwnDoor {
    /// Opens the socket. Call this before the process enters Landlock: then processes inside Landlock cannot even
    /// connect.
    pub(crate) fn open(id: &[u8], detached: &Detached) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        bind(&listener, &SocketAddrUnix::new_abstract_name(&name(id))?)?;
        listen(&listener, 128)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &timer, EventData::new_u64(0), EventFlags::IN)?;
        let mut door = Self { visitors: Visitors::new(listener, detached, is_from_outside), epoll, timer };
        door.watch()?;
        Ok(door)
    }

    /// Accepted connections; `None` when the machine must end.
    pub(crate) fn turn(&mut self) -> io::Result<Option<Vec<OwnedFd>>> {
        let Verdict::Enter(entering) = self.visitors.turn() else { return Ok(None) };
        for stream in &entering {
            // A visitor that was accepted within one turn was never registered.
            let _not_there = epoll::delete(&self.epoll, stream);
        }
        self.watch()?;
        Ok(Some(entering))
    }

    /// Updates the epoll registrations and the timer.
    fn watch(&mut self) -> io::Result<()> {
        for (fd, until) in self.visitors.awaited() {
            let flags = match until {
                PollFlags::IN => EventFlags::IN,
                PollFlags::OUT => EventFlags::OUT,
                _ => EventFlags::empty(),
            };
            if epoll::modify(&self.epoll, fd, EventData::new_u64(0), flags).is_err() {
                epoll::add(&self.epoll, fd, EventData::new_u64(0), flags)?;
            }
        }
        // Without a deadline this is zero, which disarms the timer.
        let left =
            self.visitors.deadline().map(|until| until.saturating_duration_since(Instant::now()).as_millis() + 1);
        let left = i64::try_from(left.unwrap_or_default()).unwrap_or(i64::MAX);
        let it_value = Timespec { tv_sec: left / 1000, tv_nsec: left % 1000 * 1_000_000 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}

impl AsFd for OwnDoor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Whether the engine started the visitor: then its parent is outside this PID namespace, while every other process
/// descends from PID 1.
fn is_from_outside(stream: &OwnedFd) -> bool {
    let Ok(peer) = socket_peercred(stream) else { return false };
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", peer.pid.as_raw_nonzero())) else { return false };
    // The name in parentheses may contain anything; only numbers follow the last parenthesis.
    stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)) == Some("0")
}

#[cfg(test)]
mod tests {
    use rustix::net::connect;
    use sandbar_guest::protocol::{Knock, Wish};

    use super::*;

    #[test]
    fn a_descendant_of_the_namespaces_first_process_is_refused() {
        let id = format!("test{}", std::process::id());
        let nonce = [7; 16];
        let mut door = OwnDoor::open(id.as_bytes(), &Detached { nonce, memo: Vec::new(), lease_ms: 0 }).unwrap();
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &SocketAddrUnix::new_abstract_name(&name(id.as_bytes())).unwrap()).unwrap();
        rustix::io::write(&socket, &Knock::new(Wish::Attach, nonce).encode()).unwrap();
        assert!(door.turn().unwrap().is_some_and(|entering| entering.is_empty()));
        // If the door closes the connection before it read the knock, the peer sees a reset.
        assert_eq!(rustix::io::read(&socket, &mut [0; 8]).unwrap_or_default(), 0);
    }
}
