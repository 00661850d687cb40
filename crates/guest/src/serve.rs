//! The server inside a machine: one thread, one stream to the host, many channels.

mod files;
mod outbox;
mod process;
mod relay;
mod requests;
mod sending;
mod tree;
mod unpack;
mod work;

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    io,
    os::fd::{AsFd, OwnedFd},
    time::Instant,
};

use rustix::{
    event::{
        Timespec,
        epoll::{self, EventData, EventFlags},
    },
    fs::{Mode, OFlags},
    io::Errno,
    process::{Resource, Rlimit},
};
use sandbar_guest::protocol::{Event, FRAME_HEADER, FrameHeader, Hello, Request};

use self::{
    outbox::Outbox,
    process::Running,
    relay::{Relay, Role},
    requests::{Connecting, Worker, Writing},
    sending::Sending,
    tree::Tags,
};
use crate::{
    identity::Users,
    sys::{
        exec::{Proof, Stack},
        process::{exit_now, forget_code, reap, watch_children},
        security::Token,
    },
};

/// What the server knows about the machine it serves.
pub(crate) struct Settings {
    pub(crate) users: Users,
    pub(crate) token: Token,
    pub(crate) proof: Proof,
    pub(crate) limits: Vec<(u32, u64)>,
    pub(crate) hello: Hello,
    pub(crate) proc: OwnedFd,
    pub(crate) scope: Scope,
    /// The machine's own directory for temporary files, where `/tmp` is the host's.
    pub(crate) tmp: Option<Vec<u8>>,
    /// Landlock rules for commands, where the guest's own are wider.
    pub(crate) rules: Option<OwnedFd>,
}

/// What belongs to the machine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Every process there is: this is PID 1 of its own namespace.
    Namespace,
    /// What the server started, and what that started.
    Descendants,
}

const INPUT: u64 = u64::MAX;
const OUTPUT: u64 = u64::MAX - 4;
const CHILDREN: u64 = u64::MAX - 8;
/// How much is read from a process or file at a time.
const SCRATCH: usize = 128 * 1024;

/// Serves until the stream ends. Never returns: in its own namespace, the end of this process ends the machine.
pub(crate) fn run(control: OwnedFd, settings: Settings) -> ! {
    match rustix::io::fcntl_dupfd_cloexec(&control, 3) {
        Ok(output) => run_split(control, output, settings),
        Err(_) => exit_now(1),
    }
}

/// Serves over two descriptors.
pub(crate) fn run_split(input: OwnedFd, output: OwnedFd, settings: Settings) -> ! {
    let Ok(mut server) = Server::new(input, output, settings) else { exit_now(1) };
    forget_code();
    let ended = server.serve();
    server.kill_everything();
    exit_now(i32::from(ended.is_err()))
}

/// One conversation and what it is about.
struct Channel {
    relay: Relay,
    work: Work,
    /// The host no longer listens.
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
    input: OwnedFd,
    outbox: Outbox,
    output_armed: bool,
    children: OwnedFd,
    inbox: Vec<u8>,
    channels: HashMap<u32, Channel>,
    pids: HashMap<i32, u32>,
    deadlines: BTreeSet<(Instant, u32)>,
    /// Channels with bytes of files to send.
    sending: VecDeque<u32>,
    scratch: Vec<u8>,
    stack: Stack,
    tags: Tags,
    stopping: bool,
}

impl Server {
    fn new(input: OwnedFd, output: OwnedFd, settings: Settings) -> io::Result<Self> {
        occupy_stdio()?;
        for fd in [&input, &output] {
            let flags = rustix::fs::fcntl_getfl(fd)?;
            rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?;
        }
        // As much as the system allows, so that a large file takes fewer turns. A container's stream is a pipe: no matter.
        let _pipes_have_none = rustix::net::sockopt::set_socket_send_buffer_size(&output, 1 << 20);
        if !settings.limits.is_empty() {
            use_all_descriptors();
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let children = watch_children()?;
        epoll::add(&epoll, &input, EventData::new_u64(INPUT), EventFlags::IN)?;
        epoll::add(&epoll, &children, EventData::new_u64(CHILDREN), EventFlags::IN)?;
        let mut outbox = Outbox::new(output);
        outbox.push(0, &Event::Hello(settings.hello.clone()));
        Ok(Self {
            tags: Tags::new(Token::random()?.0[0]),
            settings,
            epoll,
            input,
            outbox,
            output_armed: false,
            children,
            inbox: Vec::new(),
            channels: HashMap::new(),
            pids: HashMap::new(),
            deadlines: BTreeSet::new(),
            sending: VecDeque::new(),
            scratch: vec![0; SCRATCH],
            stack: Stack::new(),
            stopping: false,
        })
    }

    /// Works until the host hangs up or asks to stop.
    fn serve(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(64);
        loop {
            self.send_files()?;
            self.flush()?;
            if self.stopping && self.outbox.is_empty() {
                return Ok(());
            }
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), self.timeout().as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    INPUT => {
                        if !self.receive()? {
                            return Ok(());
                        }
                    }
                    OUTPUT => {}
                    CHILDREN => self.bury()?,
                    key => {
                        if let Some((channel, role)) = Role::of(key) {
                            self.ready(channel, role)?;
                        }
                    }
                }
            }
            self.enforce_deadlines();
        }
    }

    /// How long there is nothing to do: until the next deadline, unless files are being sent.
    fn timeout(&self) -> Option<Timespec> {
        if !self.sending.is_empty() && !self.outbox.is_full() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let (next, _) = self.deadlines.first()?;
        let left = next.saturating_duration_since(Instant::now());
        Some(Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) })
    }

    /// Writes to the host; when it takes nothing more, waits for it to, and when it does, wakes what had to wait.
    fn flush(&mut self) -> io::Result<()> {
        let was_full = self.outbox.is_full();
        let done = self.outbox.flush()?;
        if done == self.output_armed {
            let stream = self.outbox.stream();
            if done {
                epoll::delete(&self.epoll, stream)?;
            } else {
                epoll::add(&self.epoll, stream, EventData::new_u64(OUTPUT), EventFlags::OUT)?;
            }
            self.output_armed = !done;
        }
        if (was_full || done) && !self.outbox.is_full() {
            for channel in self.channels.values_mut().filter(|channel| channel.relay.is_stalled()) {
                channel.relay.rearm(&self.epoll);
            }
        }
        Ok(())
    }

    /// Reads frames from the host and acts on them; `false` when the host hung up.
    fn receive(&mut self) -> io::Result<bool> {
        self.inbox.reserve(SCRATCH);
        match rustix::io::read(&self.input, rustix::buffer::spare_capacity(&mut self.inbox)) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::INTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
        let mut inbox = std::mem::take(&mut self.inbox);
        let mut used = 0;
        while let Some((header, payload)) = next_frame(inbox.get(used..).unwrap_or_default())? {
            self.accept(header, payload)?;
            used += FRAME_HEADER + payload.len();
        }
        inbox.drain(..used);
        if inbox.is_empty() && inbox.capacity() > 4 * SCRATCH {
            inbox = Vec::new();
        }
        self.inbox = inbox;
        Ok(true)
    }

    fn accept(&mut self, header: FrameHeader, payload: &[u8]) -> io::Result<()> {
        let request = Request::decode(header.kind, payload).map_err(io::Error::other)?;
        match request {
            Request::Open(window, open) => self.open(header.channel, window, open),
            other => self.proceed(header.channel, other),
        }
    }

    /// Something can be read from, or written to, one of a channel's descriptors.
    fn ready(&mut self, id: u32, role: Role) -> io::Result<()> {
        let Some(channel) = self.channels.get_mut(&id) else { return Ok(()) };
        if matches!(channel.work, Work::Connecting(_)) {
            return self.connected(id);
        }
        match role {
            Role::Sink => channel.relay.drain(&mut self.outbox, &self.epoll),
            Role::Out | Role::Err => channel.relay.pump(role, &mut self.scratch, &mut self.outbox, &self.epoll)?,
        }
        self.settle(id);
        Ok(())
    }

    /// Takes every child that ended off the kernel's list.
    fn bury(&mut self) -> io::Result<()> {
        let mut spent = [0u8; 128 * 4];
        while rustix::io::read(&self.children, &mut spent).is_ok() {}
        // A command may stop file work that runs as its own user; whoever waits for it must not wait for ever.
        for channel in self.channels.values() {
            if let Work::Worker(worker) = &channel.work
                && crate::sys::process::was_stopped(worker.pid)
            {
                crate::sys::process::signal(worker.pid, libc::SIGKILL);
            }
        }
        while let Some(ended) = reap() {
            let Some(id) = self.pids.remove(&ended.pid) else { continue };
            let Some(channel) = self.channels.get_mut(&id) else { continue };
            match &mut channel.work {
                Work::Process(running) => {
                    running.ended(&ended);
                    if let Some(deadline) = running.deadline.take() {
                        self.deadlines.remove(&(deadline, id));
                    }
                }
                Work::Worker(worker) => worker.code = Some(ended.code),
                _ => {}
            }
            channel.relay.expect_rest();
            for role in [Role::Out, Role::Err] {
                channel.relay.pump(role, &mut self.scratch, &mut self.outbox, &self.epoll)?;
            }
            self.settle(id);
        }
        Ok(())
    }

    /// Tells the host what has become of a channel, and forgets it when nothing more can.
    fn settle(&mut self, id: u32) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        let last = match &mut channel.work {
            Work::Process(running) => {
                if let Some(exit) = running.report(&channel.relay)
                    && !channel.closed
                {
                    self.outbox.push(id, &exit);
                }
                (running.is_reported() && channel.relay.is_silent()).then_some(Event::Done)
            }
            Work::Worker(worker) => worker.outcome(&channel.relay),
            Work::Connected { half_closed } => {
                if channel.relay.is_silent() && !*half_closed {
                    *half_closed = true;
                    self.outbox.push(id, &Event::Exit(0, sandbar_guest::protocol::ExitKind::Exited));
                }
                (*half_closed && !channel.relay.has_sink()).then_some(Event::Done)
            }
            Work::Connecting(_) | Work::Sending(_) | Work::Writing(_) => None,
        };
        if let Some(event) = last {
            if !channel.closed {
                self.outbox.push(id, &event);
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
                running.is_late = true;
                let tag = running.tag;
                tree::signal_tree(self.settings.proc.as_fd(), |other| other == tag, libc::SIGKILL);
            }
        }
    }

    fn kill_everything(&self) {
        match self.settings.scope {
            // The kernel does it when PID 1 ends; doing it here first makes even a container's teardown prompt.
            Scope::Namespace if rustix::process::getpid().is_init() => crate::sys::process::signal(-1, libc::SIGKILL),
            _ => self.tags.kill_all(&self.settings.proc),
        }
    }
}

/// The server holds some for every process and connection; commands have their own limit.
fn use_all_descriptors() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let all = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _as_many_as_there_are = rustix::process::setrlimit(Resource::Nofile, all);
}

/// Standard descriptors are the machine's own `/dev/null`: never the host's, and never free for reuse.
fn occupy_stdio() -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// The first whole frame, if it has all come.
fn next_frame(bytes: &[u8]) -> io::Result<Option<(FrameHeader, &[u8])>> {
    let Some(header) = FrameHeader::decode(bytes).map_err(io::Error::other)? else { return Ok(None) };
    let payload = bytes.get(FRAME_HEADER..FRAME_HEADER + header.length as usize);
    Ok(payload.map(|payload| (header, payload)))
}
