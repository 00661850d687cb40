//! A forked process that works on files for a channel, as the user that the request names.

mod archive_pipe;
pub(super) mod job;
mod unpack;

use std::{
    os::fd::{AsRawFd, OwnedFd},
    rc::Rc,
};

use rustix::{
    event::{EventfdFlags, eventfd},
    process::{Resource, Rlimit, setrlimit},
};
use sandbar_guest::protocol::{Event, FRAME_HEADER, FailKind, FrameHeader};

use self::job::{Job, report};
use super::{
    Server,
    channels::{
        Task,
        relay::{
            Relay, Role, SourceKind,
            sink::{BULK_PIPE, SinkEnd},
        },
    },
    files::{Answer, Fail},
    hosts::link::Id,
    process,
};
use crate::{
    identity::User,
    sys::{
        self,
        process::{Fork, exit_now, fork_into},
    },
};

/// Address space of a worker in bytes.
const WORKER_MEMORY: u64 = 1 << 30;

/// A forked process that works on files.
pub(crate) struct Worker {
    pub(crate) pid: i32,
    status: OwnedFd,
    pub(crate) code: Option<i32>,
    /// Whether it writes to disk.
    pub(crate) fills: bool,
}

impl Worker {
    /// Its answer, once it has ended and all its output has been passed on.
    pub(crate) fn outcome(&mut self, relay: &Relay) -> Option<Event<'static>> {
        let code = self.code.filter(|_| relay.is_silent())?;
        let mut said = vec![0; 64 * 1024];
        let length = rustix::io::read(&self.status, &mut said).unwrap_or(0);
        let said = said.get(..length).unwrap_or_default();
        let fail = FrameHeader::decode(said).ok().flatten().and_then(|header| {
            match Event::decode(header.kind, said.get(FRAME_HEADER..)?) {
                Ok(Event::Fail(kind, errno, message)) => Some(Event::Fail(kind, errno, message)),
                _ => None,
            }
        });
        Some(match (code, fail) {
            (_, Some(fail)) => fail,
            (0, None) => Event::Done,
            (code, None) => Event::Fail(FailKind::Errno, libc::EIO, format!("the worker ended with {code}")),
        })
    }
}

impl Server {
    /// Starts a worker.
    pub(super) fn start_worker(&mut self, id: Id, window: u32, user: Option<Rc<User>>, job: Job) -> Answer<()> {
        self.access.reset();
        let (stdout, their_stdout) = process::pipe_from_child()?;
        let (status, their_status) = process::pipe_from_child()?;
        let (their_stdin, stdin) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&stdin, true)?;
        let meter = match job {
            Job::Unpack(..) => {
                // Room for all bytes in flight, so that neither side waits for the other at every piece.
                let _stays_small = rustix::pipe::fcntl_setpipe_size(&stdin, BULK_PIPE);
                Some(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
            }
            _ => None,
        };
        let fills = meter.is_some();
        let pid = match fork_into(0)? {
            Fork::Child => {
                // Keep only its own pipes: an inherited input pipe of a command would hide that input's end.
                let pipes = [&their_stdin, &their_stdout, &their_status];
                let mut keep: Vec<_> = pipes.into_iter().chain(&meter).map(AsRawFd::as_raw_fd).collect();
                if sys::process::close_all_but(&mut keep).is_err() {
                    exit_now(1);
                }
                let files = self.access.files();
                bound_memory();
                let become_user = user.map_or(Ok(()), |user| {
                    sys::process::become_user(user.uid, user.gid, &user.groups)?;
                    sys::security::set_caps(sys::security::Caps::NONE)?;
                    sys::security::close_memory()
                });
                let done =
                    become_user.map_err(Fail::from).and_then(|()| job.run(files, (their_stdin, meter), their_stdout));
                let code = i32::from(done.is_err());
                if let Err(fail) = done {
                    report(&their_status, fail);
                }
                exit_now(code)
            }
            Fork::Parent(pid) => pid,
        };
        let mut relay = Relay::new(id, window);
        relay.source(Role::Out, stdout, SourceKind::Pipe, &self.epoll);
        match (self.hosts.get_mut(id.link), meter) {
            (Some(link), Some(meter)) => relay.bulk_sink(stdin, meter, &mut link.outbox, &self.epoll)?,
            _ => relay.sink(stdin, SinkEnd::Close),
        }
        self.channels.add_child(pid, id);
        self.channels.insert(id, relay, Task::Worker(Worker { pid, status, code: None, fills }));
        Ok(())
    }
}

/// Limits a worker's memory, whatever archive or directory it reads.
fn bound_memory() {
    let most = Rlimit { current: Some(WORKER_MEMORY), maximum: Some(WORKER_MEMORY) };
    let _has_less_already = setrlimit(Resource::As, most);
}
