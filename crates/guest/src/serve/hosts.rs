//! The connections to all hosts, and how long the machine lives without one.

pub(super) mod link;
pub(super) mod outbox;
mod splice;

use std::{
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    fs::OFlags,
};
use sandbar_guest::protocol::{Event, Hello};

use self::link::{DETACHED, Id, Link, NUMBERS};
use super::{channels::Channels, files::Fail};
use crate::door::hub::Hub;

/// Most open connections. Connections whose host is gone do not count: a background process may keep their channels for
/// long.
const LINKS: usize = 128;

/// How long the maker may take to connect before the lease starts.
const FIRST_HOST: Duration = Duration::from_secs(30);

/// The hosts of a machine.
pub(super) struct Hosts {
    /// Source of connections, on a machine that outlives its hosts.
    hub: Option<Hub>,
    links: HashMap<u32, Link>,
    next: u32,
    lease: Option<Lease>,
    hello: Hello,
    /// Connection on which `Stop` was requested.
    stopping: Option<u32>,
    /// How the only connection ended.
    ended: Option<io::Result<()>>,
}

impl Hosts {
    pub(super) fn new(hub: Option<Hub>, lease: Option<Duration>, hello: Hello) -> Self {
        let lease = lease.map(Lease::new);
        Self { hub, links: HashMap::new(), next: 0, lease, hello, stopping: None, ended: None }
    }

    /// Whether the machine outlives its hosts.
    pub(super) fn may_change(&self) -> bool {
        self.hub.is_some()
    }

    pub(super) fn get(&self, number: u32) -> Option<&Link> {
        self.links.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Link> {
        self.links.get_mut(&number)
    }

    /// The connection of detached commands.
    pub(super) fn add_detached(&mut self) {
        self.links.entry(DETACHED).or_insert_with(Link::detached);
    }

    pub(super) fn numbers(&self) -> Vec<u32> {
        self.links.keys().copied().collect()
    }

    /// Starts to serve a host.
    pub(super) fn greet(&mut self, input: OwnedFd, output: OwnedFd, epoll: &OwnedFd) -> io::Result<()> {
        for fd in [&input, &output] {
            let flags = rustix::fs::fcntl_getfl(fd)?;
            rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?;
        }
        // As large as the system allows, so that a large file takes fewer turns. Fails for a container's stream, which
        // is a pipe.
        let _pipes_have_none = rustix::net::sockopt::set_socket_send_buffer_size(&output, 1 << 20);
        while self.links.contains_key(&self.next) {
            self.next = (self.next + 1) % NUMBERS;
        }
        let number = self.next;
        epoll::add(epoll, &input, EventData::new_u64(Link::input_key(number)), EventFlags::IN)?;
        let mut link = Link::new(input, output);
        link.outbox.push(0, &Event::Hello(self.hello.clone()));
        self.links.insert(number, link);
        self.next = (number + 1) % NUMBERS;
        self.watch_lease();
        Ok(())
    }

    /// Accepts the next connections; an error ends the machine.
    pub(super) fn admit(&mut self, epoll: &OwnedFd) -> io::Result<()> {
        let Some(hub) = &mut self.hub else { return Ok(()) };
        for stream in hub.take()? {
            if self.links.values().filter(|link| link.is_open()).count() < LINKS
                && let Ok(output) = rustix::io::fcntl_dupfd_cloexec(&stream, 3)
            {
                // A connection that cannot be served is closed, which its host notices.
                let _closed = self.greet(stream, output, epoll);
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

    /// Queues a failure as the last event of a channel.
    pub(super) fn fail(&mut self, id: Id, Fail { kind, errno, message }: Fail) {
        self.push(id, &Event::Fail(kind, errno, message));
    }

    /// Whether a connection's outbox is full.
    pub(super) fn is_full(&self, number: u32) -> bool {
        self.links.get(&number).is_none_or(|link| link.outbox.is_full())
    }

    /// Flushes a connection. If the stream is full, polls it; if the outbox has room again, polls the sources again.
    pub(super) fn flush(&mut self, number: u32, channels: &mut Channels, epoll: &OwnedFd) -> io::Result<()> {
        let Some(link) = self.links.get_mut(&number) else { return Ok(()) };
        let was_full = link.outbox.is_full();
        let done = link.flush(number, epoll)?;
        if (was_full || done) && !link.outbox.is_full() {
            let own = channels.iter_mut().filter(|(id, _)| id.link == number);
            for (_, channel) in own.filter(|(_, channel)| channel.relay.is_stalled()) {
                channel.relay.rearm(epoll);
            }
        }
        Ok(())
    }

    /// Drops connections whose host is gone, and which have no channel left.
    pub(super) fn forget_closed(&mut self, channels: &Channels) {
        self.links.retain(|number, link| link.is_open() || channels.of(*number).next().is_some());
    }

    /// Closes the connection of a host that is gone; `false` if it was the only one, which ends the machine.
    pub(super) fn close(&mut self, number: u32, how: io::Result<()>, epoll: &OwnedFd) -> bool {
        if self.hub.is_none() {
            self.ended.get_or_insert(how);
            return false;
        }
        self.links.get_mut(&number).map(|link| link.close(epoll)).is_some()
    }

    /// Ends the machine when the answer to `Stop` has been sent on this connection.
    pub(super) fn stop_after(&mut self, number: u32) {
        self.stopping = Some(number);
    }

    /// How the machine ends, if it does: its only host is gone, or a host asked to stop it and has the answer.
    pub(super) fn end(&mut self) -> Option<io::Result<()>> {
        self.ended.take().or_else(|| {
            let link = self.links.get(&self.stopping?);
            link.is_none_or(|link| link.outbox.is_empty()).then_some(Ok(()))
        })
    }

    /// Updates the lease after a host connected or left.
    pub(super) fn watch_lease(&mut self) {
        let attended = self.links.values().any(Link::is_open);
        if let Some(lease) = &mut self.lease {
            if attended { lease.attended() } else { lease.left_alone() }
        }
    }

    /// Resets the idle time after a request.
    pub(super) fn use_lease(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.used();
        }
    }

    /// When the machine ends unless a host connects.
    pub(super) fn lease_end(&self) -> Option<Instant> {
        self.lease.as_ref().and_then(Lease::end)
    }
}

/// The time that a machine lives without hosts.
struct Lease {
    length: Duration,
    /// When the last host left; `None` while a host is connected.
    idle: Option<Instant>,
    /// Idle time before the current hosts connected. Reset by the first request: a host that only checks whether the
    /// machine lives does not extend the lease.
    spent: Duration,
}

impl Lease {
    fn new(length: Duration) -> Self {
        let now = Instant::now();
        Self { length, idle: Some(now.checked_add(FIRST_HOST).unwrap_or(now)), spent: Duration::ZERO }
    }

    fn attended(&mut self) {
        if let Some(since) = self.idle.take() {
            self.spent += since.elapsed();
        }
    }

    fn left_alone(&mut self) {
        self.idle.get_or_insert_with(Instant::now);
    }

    fn used(&mut self) {
        self.spent = Duration::ZERO;
    }

    fn end(&self) -> Option<Instant> {
        self.idle?.checked_add(self.length.saturating_sub(self.spent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Time left of a lease, in whole seconds.
    fn left(lease: &Lease) -> Option<u64> {
        lease.end().map(|end| end.saturating_duration_since(Instant::now()).as_secs_f64().round() as u64)
    }

    #[test]
    fn a_lease_runs_only_while_no_host_is_there() {
        let mut lease = Lease::new(HOUR);
        assert_eq!(left(&lease), Some(3600 + FIRST_HOST.as_secs()), "the maker gets time to connect");
        lease.attended();
        assert_eq!(left(&lease), None);
        lease.left_alone();
        assert_eq!(left(&lease), Some(3600));
    }

    #[test]
    fn only_a_host_that_asks_for_something_extends_a_lease() {
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds));
        let mut lease = Lease { length: HOUR, idle: ago(600), spent: Duration::ZERO };
        lease.attended();
        lease.left_alone();
        assert_eq!(left(&lease), Some(3000), "it only looked");
        lease.idle = ago(900);
        lease.left_alone();
        assert_eq!(left(&lease), Some(2100), "a second host that leaves changes nothing");
        lease.attended();
        assert_eq!(lease.spent.as_secs(), 1500);
        lease.used();
        lease.left_alone();
        assert_eq!(left(&lease), Some(3600));
    }

    #[test]
    fn a_spent_lease_ends_at_once() {
        let idle = Some(Instant::now());
        let lease = Lease { length: HOUR, idle, spent: 2 * HOUR };
        assert_eq!(lease.end(), idle);
    }
}
