//! The server inside a machine: one thread, one stream to each host, many channels. A *host* here is the process at the
//! other end of a stream.

mod bounds;
mod channels;
mod detached;
mod files;
mod hosts;
mod process;
mod process_trees;
mod requests;
mod worker;

use std::{
    io,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{
    event::{
        Timespec,
        epoll::{self, EventData, EventFlags},
    },
    io::Errno,
};
use sandbar_guest::protocol::{Event, ExitKind, Hello};

pub(crate) use self::bounds::{Bounds, usage::Looker};
use self::{
    channels::{Channels, Task, relay::Role},
    files::access::FileAccess,
    hosts::{
        Hosts,
        link::{CHILDREN, HUB, Id, Wake},
    },
    process::Launcher,
    process_trees::ProcessTrees,
};
use crate::{
    door::hub::Hub,
    handles::occupy_stdio,
    identity::Users,
    sys::{
        exec::{Proof, Stack},
        process::{exit_now, forget_code, reap, signal, was_stopped, watch_children},
        security::Token,
    },
};

/// Properties of the machine that the server runs in.
pub(crate) struct Settings {
    pub(crate) users: Users,
    pub(crate) token: Token,
    pub(crate) proof: Proof,
    pub(crate) limits: Vec<(u32, u64)>,
    pub(crate) hello: Hello,
    pub(crate) proc: OwnedFd,
    pub(crate) scope: Scope,
    /// The machine's own directory for temporary files, if `/tmp` is the host's.
    pub(crate) tmp: Option<Vec<u8>>,
    /// Landlock rules for commands, if they are stricter than the guest's own.
    pub(crate) rules: Option<OwnedFd>,
    /// Limits that the guest enforces.
    pub(crate) bounds: Bounds,
}

/// Which processes belong to the machine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Every process of the PID namespace: this is its PID 1.
    Namespace,
    /// The descendants of the server.
    Descendants,
}

/// Bytes read from a process or file at a time.
const SCRATCH: usize = 128 * 1024;

/// Serves until the stream ends. Never returns: in a PID namespace, the end of this process ends the machine.
pub(crate) fn run(control: OwnedFd, settings: Settings) -> ! {
    match rustix::io::fcntl_dupfd_cloexec(&control, 3) {
        Ok(output) => run_split(control, output, settings),
        Err(_) => exit_now(1),
    }
}

/// Serves over two descriptors.
pub(crate) fn run_split(input: OwnedFd, output: OwnedFd, settings: Settings) -> ! {
    run_server(Server::new(settings, None, None), Some((input, output)))
}

/// Serves every host that connects, until the hub closes, a host asks to stop, or the lease expires. The first
/// host may be given as input and output.
pub(crate) fn run_hub(hub: Hub, first: Option<(OwnedFd, OwnedFd)>, lease: Option<Duration>, settings: Settings) -> ! {
    run_server(Server::new(settings, Some(hub), lease), first)
}

fn run_server(server: io::Result<Server>, first: Option<(OwnedFd, OwnedFd)>) -> ! {
    let Ok(mut server) = server else { exit_now(1) };
    if let Some((input, output)) = first
        && server.hosts.greet(input, output, &server.epoll).is_err()
    {
        exit_now(1);
    }
    forget_code();
    let ended = server.serve();
    server.trees.kill_all();
    exit_now(i32::from(ended.is_err()))
}

/// The server. Each part owns what it is responsible for; the methods here connect the parts.
struct Server {
    epoll: OwnedFd,
    children: OwnedFd,
    hosts: Hosts,
    channels: Channels,
    trees: ProcessTrees,
    bounds: Bounds,
    access: FileAccess,
    launcher: Launcher,
    next_process: u64,
    scratch: Vec<u8>,
}

impl Server {
    fn new(settings: Settings, hub: Option<Hub>, lease: Option<Duration>) -> io::Result<Self> {
        occupy_stdio()?;
        let Settings { users, token, proof, limits, hello, proc, scope, tmp, rules, bounds } = settings;
        if !limits.is_empty() {
            crate::limits::use_all_descriptors();
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let children = watch_children()?;
        epoll::add(&epoll, &children, EventData::new_u64(CHILDREN), EventFlags::IN)?;
        if let Some(hub) = &hub {
            epoll::add(&epoll, hub, EventData::new_u64(HUB), EventFlags::IN)?;
        }
        Ok(Self {
            epoll,
            children,
            channels: Channels::default(),
            trees: ProcessTrees::new(proc, scope)?,
            bounds,
            access: FileAccess::new(users, token),
            launcher: Launcher { token, proof, limits, home: hello.home.clone(), tmp, rules, stack: Stack::new() },
            hosts: Hosts::new(hub, lease, hello),
            next_process: 1,
            scratch: vec![0; SCRATCH],
        })
    }

    /// Runs until the only host disconnects, the hub closes, or a host asks to stop.
    fn serve(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(64);
        loop {
            self.send_files();
            self.flush();
            if let Some(ended) = self.hosts.end() {
                return ended;
            }
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), self.timeout().as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match Wake::of(event.data.u64()) {
                    Wake::Input(link) => self.receive(link),
                    Wake::Output => {}
                    Wake::Children => self.reap(),
                    Wake::Hub => self.hosts.admit(&self.epoll)?,
                    Wake::Channel(id, role) => self.ready(id, role),
                }
            }
            self.enforce_deadlines();
            self.trees.resume_forks();
            if self.hosts.lease_end().is_some_and(|end| end <= Instant::now()) {
                return Ok(());
            }
            self.bounds.enforce(&mut self.trees, &mut self.channels);
        }
    }

    /// Time until the next deadline or the lease's end; zero while files are being sent.
    fn timeout(&self) -> Option<Timespec> {
        if self.channels.to_send.iter().any(|id| !self.hosts.is_full(id.link)) {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let wakes =
            [self.channels.next_deadline(), self.bounds.wakes_at(), self.trees.wakes_at(), self.hosts.lease_end()];
        let next = wakes.into_iter().flatten().min()?;
        let left = next.saturating_duration_since(Instant::now());
        Some(Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) })
    }

    /// Handles a channel's descriptor that is readable or writable.
    fn ready(&mut self, id: Id, role: Role) {
        let Some(channel) = self.channels.get_mut(id) else { return };
        if matches!(channel.task, Task::Connecting(_)) {
            return self.connected(id);
        }
        let Some(link) = self.hosts.get_mut(id.link) else { return };
        match role {
            Role::Sink => channel.relay.drain(&mut link.outbox, &self.epoll),
            Role::Err if channel.relay.read_meter(&mut link.outbox) => {}
            Role::Out | Role::Err => {
                if let Err(error) = channel.relay.pump(role, &mut self.scratch, &mut link.outbox, &self.epoll) {
                    return self.lose_deaf(id.link, error);
                }
            }
        }
        self.settle(id);
    }

    /// Reaps every child that ended.
    fn reap(&mut self) {
        let mut spent = [0u8; 128 * 4];
        while rustix::io::read(&self.children, &mut spent).is_ok() {}
        // A command may stop a worker that runs as its own user; the host that waits for the worker must not wait
        // forever.
        for worker in self.channels.workers().filter(|worker| was_stopped(*worker)) {
            signal(worker, libc::SIGKILL);
        }
        while let Some(ended) = reap() {
            let Some(id) = self.channels.remove_child(ended.pid) else { continue };
            let filled = self.bounds.left_too_much(&self.trees);
            let Some(channel) = self.channels.get_mut(id) else { continue };
            match &mut channel.task {
                Task::Process(running) => {
                    let cause = self.bounds.cause(&ended, running.deaths);
                    running.cause = running.cause.or(cause).or(filled.then_some(ExitKind::Disk));
                    running.ended(&ended);
                    self.bounds.changed();
                }
                Task::Worker(worker) => {
                    worker.code = Some(ended.code);
                    if worker.fills {
                        self.bounds.changed();
                    }
                }
                _ => {}
            }
            channel.relay.expect_rest();
            let Some(link) = self.hosts.get_mut(id.link) else { continue };
            let pumped = [Role::Out, Role::Err]
                .into_iter()
                .try_for_each(|role| channel.relay.pump(role, &mut self.scratch, &mut link.outbox, &self.epoll));
            match pumped {
                Ok(()) => self.settle(id),
                Err(error) => self.lose(id.link, Err(error)),
            }
            self.forget_oldest();
        }
    }

    /// Reports the state of a channel to its host, and removes the channel when it is finished.
    fn settle(&mut self, id: Id) {
        let Some(channel) = self.channels.get_mut(id) else { return };
        let Some(link) = self.hosts.get_mut(id.link) else { return };
        let last = match &mut channel.task {
            // The next host that attaches gets all of it.
            Task::Process(_) if channel.relay.is_orphan() => None,
            Task::Process(running) => {
                if let Some(exit) = running.report(&channel.relay)
                    && !channel.closed
                {
                    link.outbox.push(id.channel, &exit);
                }
                let done = running.finish(&channel.relay);
                match done {
                    Some(event) if running.about.kept && !channel.closed => {
                        channel.relay.close_sink(&self.epoll);
                        link.outbox.push(id.channel, &event);
                        None
                    }
                    // The host has confirmed an end that was reported before.
                    None if running.is_done() && channel.closed => Some(Event::Done),
                    done => done,
                }
            }
            Task::Worker(worker) => worker.outcome(&channel.relay),
            Task::Connected { half_closed } => {
                if channel.relay.is_silent() && !*half_closed {
                    *half_closed = true;
                    link.outbox.push(id.channel, &Event::Exit(0, ExitKind::Exited));
                }
                (*half_closed && !channel.relay.has_sink()).then_some(Event::Done)
            }
            Task::Connecting(_) | Task::Response(_) | Task::Writing(_) => None,
        };
        if let Some(event) = last {
            if !channel.closed {
                link.outbox.push(id.channel, &event);
            }
            self.channels.remove(id);
        }
    }

    fn enforce_deadlines(&mut self) {
        while let Some(tag) = self.channels.expire_one() {
            self.trees.signal(tag, libc::SIGKILL);
        }
    }
}
