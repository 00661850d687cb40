//! Connections to ports inside the machine, from the attempt to the stream.

use std::{
    net::{Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt::socket_error},
};
use sandbar_guest::protocol::Event;

use super::{
    Channel, Task,
    relay::{Relay, Role, SourceKind, sink::SinkEnd},
};
use crate::serve::{
    Server,
    files::{Answer, Fail},
    hosts::link::Id,
};

/// A connection attempt.
pub(crate) struct Connecting {
    socket: OwnedFd,
    to: SocketAddr,
}

/// The address to try next if nothing listens here: a program that asks for `localhost` may listen on either.
fn instead_of(to: SocketAddr) -> Option<SocketAddr> {
    to.is_ipv4().then(|| SocketAddr::from((Ipv6Addr::LOCALHOST, to.port())))
}

impl Server {
    pub(crate) fn connect(&mut self, id: Id, window: u32, to: SocketAddr) -> Answer<()> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match (connect(&socket, &to), instead_of(to)) {
            (Ok(()) | Err(Errno::INPROGRESS), _) => {}
            (Err(_), Some(next)) => return self.connect(id, window, next),
            (Err(error), None) => return Err(error.into()),
        }
        epoll::add(&self.epoll, &socket, EventData::new_u64(id.key()), EventFlags::OUT)?;
        self.channels.insert(id, Relay::new(id, window), Task::Connecting(Connecting { socket, to }));
        Ok(())
    }

    /// Handles the end of a connection attempt.
    pub(crate) fn connected(&mut self, id: Id) {
        let Some(Channel { relay, task: Task::Connecting(connecting), .. }) = self.channels.remove(id) else { return };
        if let Err(fail) = self.use_connection(id, relay, connecting) {
            self.hosts.fail(id, fail);
        }
    }

    fn use_connection(&mut self, id: Id, mut relay: Relay, Connecting { socket, to }: Connecting) -> Answer<()> {
        let _not_watched = epoll::delete(&self.epoll, &socket);
        match (socket_error(&socket).unwrap_or(Err(Errno::IO)), instead_of(to)) {
            (Ok(()), _) => {
                let write = rustix::io::fcntl_dupfd_cloexec(&socket, 3)?;
                relay.source(Role::Out, socket, SourceKind::Stream, &self.epoll);
                relay.sink(write, SinkEnd::Shutdown);
                self.hosts.push(id, &Event::Started);
                self.channels.insert(id, relay, Task::Connected { half_closed: false });
                Ok(())
            }
            (Err(_), Some(next)) => {
                let window = u32::try_from(relay.available()).unwrap_or(u32::MAX);
                self.connect(id, window, next)
            }
            (Err(error), None) => {
                let message = format!("nothing listens on port {}", to.port());
                Err(Fail { message, ..error.into() })
            }
        }
    }
}
