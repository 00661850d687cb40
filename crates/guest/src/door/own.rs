//! The door of a machine without a supervisor: PID 1 of a container opens it itself, for bridges that its engine starts.
//!
//! It is a name in the container's own network namespace, and no file: there need be no place for one, nobody can put
//! another in its place, and what Landlock keeps inside cannot knock.

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

/// What the door of a machine is called.
pub(crate) fn name(id: &[u8]) -> Vec<u8> {
    [b"sandbar-", DOOR.as_bytes(), b"-", id].concat()
}

/// The door, and everything to be waited for at it behind one descriptor.
pub(crate) struct OwnDoor {
    visitors: Visitors,
    epoll: OwnedFd,
    timer: OwnedFd,
}

impl OwnDoor {
    /// Opens it. To be done before this process enters Landlock: then nobody who is in it gets even a connection.
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

    /// Those who may come in. `None`: the machine is to end.
    pub(crate) fn turn(&mut self) -> io::Result<Option<Vec<OwnedFd>>> {
        let Verdict::Enter(entering) = self.visitors.turn() else { return Ok(None) };
        for stream in &entering {
            // One that came and went through at once was never waited for.
            let _not_there = epoll::delete(&self.epoll, stream);
        }
        self.watch()?;
        Ok(Some(entering))
    }

    /// Waits for what there is to be waited for now.
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
        // Nothing at all would mean never.
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

/// Whether the engine started the visitor: its parent is not in this PID namespace then, where everybody else descends from
/// PID 1.
fn is_from_outside(stream: &OwnedFd) -> bool {
    let Ok(peer) = socket_peercred(stream) else { return false };
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", peer.pid.as_raw_nonzero())) else { return false };
    // The name in parentheses may hold anything; what follows the last one is numbers.
    stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)) == Some("0")
}

#[cfg(test)]
mod tests {
    use rustix::net::connect;
    use sandbar_guest::protocol::{Knock, Wish};

    use super::*;

    #[test]
    fn nobody_who_descends_from_this_namespaces_first_process_is_spoken_with() {
        let id = format!("test{}", std::process::id());
        let nonce = [7; 16];
        let mut door = OwnDoor::open(id.as_bytes(), &Detached { nonce, memo: Vec::new(), lease_ms: 0 }).unwrap();
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &SocketAddrUnix::new_abstract_name(&name(id.as_bytes())).unwrap()).unwrap();
        rustix::io::write(&socket, &Knock::new(Wish::Attach, nonce).encode()).unwrap();
        assert!(door.turn().unwrap().is_some_and(|entering| entering.is_empty()));
        // It may hang up before the knock was read, which is a reset.
        assert_eq!(rustix::io::read(&socket, &mut [0; 8]).unwrap_or_default(), 0);
    }
}
