//! Executes requests of the host.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    rc::Rc,
    time::{Duration, Instant},
};

use sandbar_guest::protocol::{At, CWD, Event, FailKind, Open, Request, Spawn};

use super::{
    Server,
    channels::{Channel, Task, relay::Relay, response::Response},
    detached,
    files::{Answer, Fail, Replacement, plain},
    hosts::link::Id,
    process::NotStarted,
    worker::job::{Digests, Job},
};
use crate::{
    identity::User,
    sys::{
        self,
        exec::{Failed, Stage},
    },
};

/// Most directory entries that the server lists itself; a worker lists longer ones, so that the server never blocks.
const LIST_AT_ONCE: usize = 1000;

/// A file being written, and the user it is written as.
pub(crate) struct Writing {
    replacement: Option<Replacement>,
    user: Option<Rc<User>>,
    /// Whether it counts towards the disk limit.
    counts: bool,
}

impl Server {
    /// Opens a channel. A channel number that is in use is a fault of the host, and ends the connection.
    pub(super) fn open(&mut self, id: Id, window: u32, open: Open) -> io::Result<()> {
        if id.channel == 0 || self.channels.has(id) {
            return Err(io::Error::other("the channel is in use"));
        }
        self.hosts.use_lease();
        if let Err(fail) = self.try_open(id, window, open) {
            self.hosts.fail(id, fail);
        }
        Ok(())
    }

    fn try_open(&mut self, id: Id, window: u32, open: Open) -> Answer<()> {
        match open {
            Open::Spawn(spawn) => self.spawn(id, window, &spawn),
            Open::Read(at) => {
                let (file, size) = self.access.run(&at, |files| files.open_regular(&at))?;
                self.hosts.push(id, &Event::Started);
                self.channels.send(id, window, Response::File(Rc::new(file), 0, size));
                Ok(())
            }
            Open::Write(at) => self.begin_write(id, &at),
            Open::Stat(at) => {
                let record = self.access.run(&at, |files| files.stat(&at))?;
                self.channels.send_records(id, window, &[record]);
                Ok(())
            }
            Open::List(at) => match self.access.run(&at, |files| files.list(&at, LIST_AT_ONCE))? {
                Some(records) => {
                    self.channels.send_records(id, window, &records);
                    Ok(())
                }
                None => {
                    let user = self.access.user_of(&at)?;
                    self.start_worker(id, window, user, Job::List(at))
                }
            },
            Open::MakeDir(at) => {
                self.access.make_dir(&at)?;
                self.done(id)
            }
            Open::Rename(from, to) => {
                self.access.run(&from, |files| files.rename(&from, &to))?;
                self.done(id)
            }
            Open::Remove(at) => self.start_worker(id, window, self.access.user_of(&at)?, Job::Remove(at)),
            Open::Scan(at, skip, digests) => {
                let digests = if digests { Digests::Sha256 } else { Digests::Skip };
                self.start_worker(id, window, self.access.user_of(&at)?, Job::Scan(at, skip, digests))
            }
            Open::Pack(at, skip) => self.start_worker(id, window, self.access.user_of(&at)?, Job::Pack(at, skip)),
            Open::Unpack(at) => {
                self.access.reset();
                let most = self.bounds.allowance(&at.path, &self.trees, &self.access);
                self.start_worker(id, window, self.access.user_of(&at)?, Job::Unpack(at, most))
            }
            Open::Connect(0) => Err(Fail::of(FailKind::Invalid, "port 0 is not a valid port")),
            Open::Connect(port) => self.connect(id, window, SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            Open::Processes => {
                self.list_processes(id, window);
                Ok(())
            }
            Open::Adopt(process) => self.adopt(id, window, process),
            Open::Signal(process, number) => self.signal_process(id, process, number),
            Open::Stop => {
                self.trees.kill_all();
                self.hosts.stop_after(id.link);
                self.done(id)
            }
        }
    }

    fn done(&mut self, id: Id) -> Answer<()> {
        self.hosts.push(id, &Event::Done);
        Ok(())
    }

    fn spawn(&mut self, id: Id, window: u32, spawn: &Spawn) -> Answer<()> {
        let user = self.access.find(spawn.user.as_deref(), None)?;
        let keep = spawn.keep && self.hosts.may_change();
        if keep {
            self.channels.may_keep()?;
        }
        let tag = self.trees.take_tag();
        let deaths = self.bounds.deaths();
        let (bounds, launcher) = (&self.bounds, &mut self.launcher);
        let started = self.access.run_as(user.as_ref(), || {
            Ok(bounds.prefer(|| launcher.launch(spawn, user.as_deref(), tag, bounds.rlimits())))
        })?;
        self.access.reset();
        let started = match started {
            Ok(started) => started,
            Err(NotStarted::System(error)) => return Err(error.into()),
            Err(NotStarted::Exec(failed)) => return self.not_started(id, spawn, failed),
        };
        let mut relay = Relay::new(id, window);
        let pid = started.pid();
        let about = detached::describe(self.next_process, spawn, keep);
        let mut running = match started.connect(&mut relay, &self.epoll, tag, about) {
            Ok(running) => running,
            Err(error) => {
                // Without streams no host could read from the command or end it.
                self.trees.signal(tag, libc::SIGKILL);
                let _reaped = sys::process::wait_for(pid);
                return Err(error.into());
            }
        };
        if spawn.deadline_ms > 0
            && let Some(deadline) = Instant::now().checked_add(Duration::from_millis(spawn.deadline_ms))
        {
            running.deadline = Some(deadline);
            self.channels.add_deadline(deadline, id);
        }
        running.deaths = deaths;
        self.bounds.watch();
        self.channels.add_child(pid, id);
        if keep {
            relay.remember();
            self.hosts.push(id, &Event::Kept(self.next_process, relay.takes_input()));
        } else {
            self.hosts.push(id, &Event::Started);
        }
        self.next_process += 1;
        self.channels.insert(id, relay, Task::Process(running));
        Ok(())
    }

    /// A program that is missing or not executable gives the exit code of a shell; any other error is a failure of the
    /// request.
    fn not_started(&mut self, id: Id, spawn: &Spawn, failed: Failed) -> Answer<()> {
        let Failed { stage, error } = failed;
        if stage != Stage::Program {
            let message = stage.doing().map_or_else(|| CWD.to_owned(), |doing| format!("cannot {doing}: {error}"));
            return Err(Fail { message, ..error.into() });
        }
        let name = spawn.argv.first().map(|name| String::from_utf8_lossy(name)).unwrap_or_default();
        let (code, why) = match error.raw_os_error() {
            Some(libc::ENOENT) => (127, "command not found".to_owned()),
            _ => (126, plain(&error)),
        };
        let mut text = format!("{name}: {why}\n").into_bytes();
        text.truncate(1024);
        self.hosts.push(id, &Event::Started);
        self.hosts.push(id, &if spawn.tty.is_some() { Event::Data(&text) } else { Event::ErrorData(&text) });
        self.hosts.push(id, &Event::Exit(code, sandbar_guest::protocol::ExitKind::Exited));
        self.hosts.push(id, &Event::Done);
        Ok(())
    }

    fn begin_write(&mut self, id: Id, at: &At) -> Answer<()> {
        let user = self.access.user_of(at)?;
        let files = self.access.files();
        let replacement = self.access.run_as(user.as_ref(), || Replacement::begin(files, at, user.as_deref()))?;
        let writing = Writing { replacement: Some(replacement), user, counts: self.bounds.is_counted(&at.path) };
        self.channels.insert(id, Relay::new(id, 0), Task::Writing(writing));
        Ok(())
    }

    /// Handles a frame for an open channel. A frame for a channel that has just ended was sent before the host knew,
    /// and is dropped.
    pub(super) fn proceed(&mut self, id: Id, request: Request<'_>) -> io::Result<()> {
        let Some(channel) = self.channels.get_mut(id) else { return Ok(()) };
        let Some(link) = self.hosts.get_mut(id.link) else { return Ok(()) };
        match (request, &mut channel.task) {
            (Request::Credit(more), task) => {
                channel.relay.grant(more, &self.epoll);
                let may_continue = matches!(task, Task::Response(_)) || channel.relay.is_behind();
                if may_continue && !self.channels.to_send.contains(&id) {
                    self.channels.to_send.push_back(id);
                }
            }
            // Sent before the host knew of the end.
            (Request::Data(_) | Request::End, Task::Process(running)) if running.is_done() => {}
            (Request::Data(bytes), Task::Writing(_)) => self.write_more(id, bytes),
            (Request::Data(bytes), _) => {
                if bytes.len() > channel.relay.room() {
                    return Err(too_much());
                }
                channel.relay.feed(bytes, &mut link.outbox, &self.epoll);
                self.settle(id);
            }
            (Request::End, Task::Writing(_)) => self.finish_write(id),
            (Request::End, _) => {
                channel.relay.end(&mut link.outbox, &self.epoll);
                self.settle(id);
            }
            (Request::Signal(number @ 1..=64), Task::Process(running)) => {
                let tag = running.tag;
                if i32::from(number) == libc::SIGKILL {
                    // The host killed the command: do not report out-of-memory, even if the kernel killed processes
                    // too.
                    running.deaths = u64::MAX;
                }
                self.trees.signal(tag, i32::from(number));
            }
            (Request::Resize(rows, cols), Task::Process(running)) => running.resize(rows, cols),
            (Request::Close, _) => self.close(id),
            (Request::Leave, _) => self.leave(id),
            (Request::Signal(_) | Request::Resize(..), _) => {}
            (Request::Open(..), _) => return Err(io::Error::other("a channel was opened twice")),
        }
        Ok(())
    }

    fn write_more(&mut self, id: Id, bytes: &[u8]) {
        let Some(Channel { task: Task::Writing(writing), .. }) = self.channels.get_mut(id) else { return };
        if writing.counts
            && let Err(fail) = self.bounds.take_room(bytes.len() as u64, &self.trees, &self.access)
        {
            return self.fail_write(id, fail);
        }
        let Some(Channel { task: Task::Writing(writing), .. }) = self.channels.get_mut(id) else { return };
        let user = writing.user.clone();
        let written = match &mut writing.replacement {
            Some(replacement) => self.access.run_as(user.as_ref(), || replacement.write(bytes)),
            None => Ok(()),
        };
        match written {
            Ok(()) => self.hosts.push(id, &Event::Credit(u32::try_from(bytes.len()).unwrap_or(0))),
            Err(fail) => self.fail_write(id, fail),
        }
    }

    fn finish_write(&mut self, id: Id) {
        let Some(Channel { task: Task::Writing(writing), .. }) = self.channels.get_mut(id) else { return };
        let user = writing.user.clone();
        let finished = match writing.replacement.take() {
            Some(mut replacement) => self.access.run_as(user.as_ref(), || replacement.finish()),
            None => Ok(()),
        };
        match finished {
            Ok(()) => {
                self.channels.remove(id);
                self.hosts.push(id, &Event::Done);
            }
            Err(fail) => self.fail_write(id, fail),
        }
    }

    fn fail_write(&mut self, id: Id, fail: Fail) {
        self.close(id);
        self.hosts.fail(id, fail);
    }

    /// Closes a channel: kills the command, undoes an unfinished write.
    pub(super) fn close(&mut self, id: Id) {
        let Some(channel) = self.channels.get_mut(id) else { return };
        let Some(link) = self.hosts.get_mut(id.link) else { return };
        channel.closed = true;
        channel.relay.discard(&self.epoll);
        match &mut channel.task {
            Task::Process(running) => {
                let tag = running.tag;
                if !running.has_ended() {
                    self.trees.signal(tag, libc::SIGKILL);
                }
                channel.relay.end(&mut link.outbox, &self.epoll);
                self.settle(id);
            }
            Task::Worker(worker) => sys::process::signal(worker.pid, libc::SIGKILL),
            Task::Writing(writing) => {
                let (user, replacement) = (writing.user.clone(), writing.replacement.take());
                let _undone = self.access.run_as(user.as_ref(), || {
                    drop(replacement);
                    Ok(())
                });
                self.channels.remove(id);
            }
            Task::Connecting(_) | Task::Connected { .. } | Task::Response(_) => {
                self.channels.remove(id);
            }
        }
    }
}

pub(super) fn too_much() -> io::Error {
    io::Error::other("the host sent more than it was granted")
}
