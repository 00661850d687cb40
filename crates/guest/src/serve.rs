//! The server inside a machine: one thread, one stream to each host, many channels. A *host* here is the process at the
//! other end of a stream.

mod backlog;
mod bounds;
mod bulk;
mod connect;
mod descriptors;
mod files;
mod guise;
mod intake;
mod kept;
mod late;
mod link;
mod memory;
mod outbox;
mod process;
mod relay;
mod requests;
mod sending;
mod tree;
mod unpack;
mod usage;
mod work;

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    io,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::{
        Timespec,
        epoll::{self, EventData, EventFlags},
    },
    fs::{Mode, OFlags},
    io::Errno,
};
use sandbar_guest::protocol::{Event, ExitKind, Hello};

pub(crate) use self::{bounds::Bounds, usage::Looker};
use self::{
    connect::Connecting,
    guise::Guise,
    kept::Lease,
    late::Late,
    link::{CHILDREN, HUB, Id, Link, Wake},
    process::Running,
    relay::{Relay, Role},
    requests::{Worker, Writing},
    sending::Sending,
    tree::Tags,
};
use crate::{
    hub::Hub,
    identity::Users,
    sys::{
        exec::{Proof, Stack},
        process::{exit_now, forget_code, reap, watch_children},
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
    run_server(Server::new(settings, None).and_then(|mut server| {
        server.greet(input, output)?;
        Ok(server)
    }))
}

/// Serves every host that connects, until the hub closes, a host asks to stop, or the lease expires. The first
/// host may be given as input and output.
pub(crate) fn run_hub(hub: Hub, first: Option<(OwnedFd, OwnedFd)>, lease: Option<Duration>, settings: Settings) -> ! {
    run_server(Server::new(settings, Some(hub)).and_then(|mut server| {
        server.lease = lease.map(Lease::new);
        first.map_or(Ok(()), |(input, output)| server.greet(input, output))?;
        Ok(server)
    }))
}

fn run_server(server: io::Result<Server>) -> ! {
    let Ok(mut server) = server else { exit_now(1) };
    forget_code();
    let ended = server.serve();
    server.kill_everything();
    exit_now(i32::from(ended.is_err()))
}

/// One channel and its work.
struct Channel {
    relay: Relay,
    work: Work,
    /// The channel is closed: nothing more is sent on it.
    closed: bool,
}

enum Work {
    Process(Running),
    Worker(Worker),
    Connecting(Connecting),
    Connected { half_closed: bool },
    Sending(Sending),
    Writing(Writing),
}

struct Server {
    settings: Settings,
    epoll: OwnedFd,
    children: OwnedFd,
    /// Source of connections, on a machine that outlives its hosts.
    hub: Option<Hub>,
    links: HashMap<u32, Link>,
    next_link: u32,
    next_orphan: u32,
    next_process: u64,
    lease: Option<Lease>,
    channels: HashMap<Id, Channel>,
    pids: HashMap<i32, Id>,
    deadlines: BTreeSet<(Instant, Id)>,
    /// When usage is checked next, while something runs that has limits.
    look_at: Option<Instant>,
    late: Late,
    /// Channels with bytes to send.
    sending: VecDeque<Id>,
    scratch: Vec<u8>,
    stack: Stack,
    guise: Guise,
    tags: Tags,
    /// Connection on which `Stop` was requested.
    stopping: Option<u32>,
    /// How the only connection ended.
    ended: Option<io::Result<()>>,
}

impl Server {
    fn new(settings: Settings, hub: Option<Hub>) -> io::Result<Self> {
        occupy_stdio()?;
        if !settings.limits.is_empty() {
            crate::limits::use_all_descriptors();
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let children = watch_children()?;
        epoll::add(&epoll, &children, EventData::new_u64(CHILDREN), EventFlags::IN)?;
        if let Some(hub) = &hub {
            epoll::add(&epoll, hub, EventData::new_u64(HUB), EventFlags::IN)?;
        }
        Ok(Self {
            tags: Tags::new(Token::random()?.0[0]),
            guise: Guise::default(),
            settings,
            epoll,
            children,
            hub,
            links: HashMap::new(),
            next_link: 0,
            next_orphan: 1,
            next_process: 1,
            lease: None,
            channels: HashMap::new(),
            pids: HashMap::new(),
            deadlines: BTreeSet::new(),
            look_at: None,
            late: Late::default(),
            sending: VecDeque::new(),
            scratch: vec![0; SCRATCH],
            stack: Stack::new(),
            stopping: None,
            ended: None,
        })
    }

    /// Runs until the only host disconnects, the hub closes, or a host asks to stop.
    fn serve(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(64);
        loop {
            self.send_files();
            self.flush();
            if let Some(ended) = self.ended.take() {
                return ended;
            }
            if let Some(asked) = self.stopping
                && self.links.get(&asked).is_none_or(|link| link.outbox.is_empty())
            {
                return Ok(());
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
                    Wake::Children => self.bury(),
                    Wake::Hub => self.admit()?,
                    Wake::Channel(id, role) => self.ready(id, role),
                }
            }
            self.enforce_deadlines();
            self.late.look(self.settings.proc.as_fd());
            if self.lease_end().is_some_and(|end| end <= Instant::now()) {
                return Ok(());
            }
            self.keep_bounds();
        }
    }

    /// Time until the next deadline or the lease's end; zero while files are being sent.
    fn timeout(&self) -> Option<Timespec> {
        if self.sending.iter().any(|id| !self.is_full(id.link)) {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let deadline = self.deadlines.first().map(|(deadline, _)| *deadline);
        let next =
            deadline.into_iter().chain(self.look_at).chain(self.late.wakes_at()).chain(self.lease_end()).min()?;
        let left = next.saturating_duration_since(Instant::now());
        Some(Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) })
    }

    /// Handles a channel's descriptor that is readable or writable.
    fn ready(&mut self, id: Id, role: Role) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        if matches!(channel.work, Work::Connecting(_)) {
            return self.connected(id);
        }
        let Some(link) = self.links.get_mut(&id.link) else { return };
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
    fn bury(&mut self) {
        let mut spent = [0u8; 128 * 4];
        while rustix::io::read(&self.children, &mut spent).is_ok() {}
        // A command may stop a worker that runs as its own user; the host that waits for the worker must not wait
        // forever.
        for channel in self.channels.values() {
            if let Work::Worker(worker) = &channel.work
                && crate::sys::process::was_stopped(worker.pid)
            {
                crate::sys::process::signal(worker.pid, libc::SIGKILL);
            }
        }
        while let Some(ended) = reap() {
            let Some(id) = self.pids.remove(&ended.pid) else { continue };
            let filled = self.left_too_much();
            let Some(channel) = self.channels.get_mut(&id) else { continue };
            match &mut channel.work {
                Work::Process(running) => {
                    let cause = self.settings.bounds.cause(&ended, running.deaths);
                    running.cause = running.cause.or(cause).or(filled.then_some(ExitKind::Disk));
                    running.ended(&ended);
                    self.settings.bounds.changed();
                    if let Some(deadline) = running.deadline.take() {
                        self.deadlines.remove(&(deadline, id));
                    }
                }
                Work::Worker(worker) => {
                    worker.code = Some(ended.code);
                    if worker.fills {
                        self.settings.bounds.changed();
                    }
                }
                _ => {}
            }
            channel.relay.expect_rest();
            let Some(link) = self.links.get_mut(&id.link) else { continue };
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
        let Some(channel) = self.channels.get_mut(&id) else { return };
        let Some(link) = self.links.get_mut(&id.link) else { return };
        let last = match &mut channel.work {
            // The next host that attaches gets all of it.
            Work::Process(_) if channel.relay.is_orphan() => None,
            Work::Process(running) => {
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
            Work::Worker(worker) => worker.outcome(&channel.relay),
            Work::Connected { half_closed } => {
                if channel.relay.is_silent() && !*half_closed {
                    *half_closed = true;
                    link.outbox.push(id.channel, &Event::Exit(0, ExitKind::Exited));
                }
                (*half_closed && !channel.relay.has_sink()).then_some(Event::Done)
            }
            Work::Connecting(_) | Work::Sending(_) | Work::Writing(_) => None,
        };
        if let Some(event) = last {
            if !channel.closed {
                link.outbox.push(id.channel, &event);
            }
            self.channels.remove(&id);
        }
    }

    fn enforce_deadlines(&mut self) {
        let now = Instant::now();
        while let Some((deadline, id)) = self.deadlines.first().copied().filter(|(deadline, _)| *deadline <= now) {
            self.deadlines.remove(&(deadline, id));
            if let Some(Channel { work: Work::Process(running), .. }) = self.channels.get_mut(&id) {
                running.deadline = None;
                running.cause = Some(ExitKind::Deadline);
                let tag = running.tag;
                self.late.add(tree::signal_tree(self.settings.proc.as_fd(), |other| other == tag, libc::SIGKILL));
            }
        }
    }

    fn kill_everything(&self) {
        match self.settings.scope {
            // The kernel kills everything when PID 1 ends; killing here first makes the teardown of a container faster.
            Scope::Namespace if rustix::process::getpid().is_init() => crate::sys::process::signal(-1, libc::SIGKILL),
            _ => self.tags.kill_all(&self.settings.proc),
        }
    }
}

/// Points the standard descriptors to the machine's own `/dev/null`: never the host's, and never free for reuse.
fn occupy_stdio() -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
