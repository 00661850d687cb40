//! A command: how it is started, and its state until it has ended and all its output has been sent.

use std::{
    ffi::CString,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    time::Instant,
};

use rustix::{
    fs::OFlags,
    pipe::{PipeFlags, pipe_with},
    pty::OpenptFlags,
    termios::Winsize,
};
use sandbar_guest::protocol::{Event, ExitKind, ProcessRecord, Spawn};

use super::channels::relay::{Relay, Role, SourceKind, sink::SinkEnd};
use crate::{
    identity::User,
    limits::as_allowed,
    sys::{
        exec::{Failed, Plan, Proof, Stack, Terminal, start},
        process::{Ended, terminal_peer},
        security::Token,
    },
};

/// A command that was started.
pub(crate) struct Running {
    pub(crate) pid: i32,
    pub(crate) tag: u64,
    pub(crate) deadline: Option<Instant>,
    /// Why its process tree was killed, if it was.
    pub(crate) cause: Option<ExitKind>,
    /// Number of out-of-memory kills when it started.
    pub(crate) deaths: u64,
    /// Description for hosts.
    pub(crate) about: ProcessRecord,
    pub(crate) ended_at: Option<Instant>,
    terminal: Option<OwnedFd>,
    exit: Option<(i32, ExitKind)>,
    reported: bool,
    done: bool,
}

impl Running {
    pub(crate) fn ended(&mut self, ended: &Ended) {
        let own = if ended.signaled { ExitKind::Signaled } else { ExitKind::Exited };
        let kind = self.cause.unwrap_or(own);
        self.exit = Some((ended.code, kind));
        self.ended_at = Some(Instant::now());
    }

    pub(crate) fn exit(&self) -> Option<(i32, ExitKind)> {
        self.exit
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.exit.is_some()
    }

    /// The exit event, once, when all output has been passed on.
    pub(crate) fn report(&mut self, relay: &Relay) -> Option<Event<'static>> {
        let (code, kind) = self.exit.filter(|_| !self.reported && relay.is_dry())?;
        self.reported = true;
        Some(Event::Exit(code, kind))
    }

    /// The `Done` event, once, when nothing more can follow. For a surviving command the host confirms it.
    pub(crate) fn finish(&mut self, relay: &Relay) -> Option<Event<'static>> {
        let first = self.reported && relay.is_silent() && !self.done;
        self.done |= first;
        first.then_some(Event::Done)
    }

    /// Forgets what was reported: the host that received it is gone.
    pub(crate) fn untold(&mut self) {
        (self.reported, self.done) = (false, false);
    }

    /// Whether everything was reported, and may not have been received.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    pub(crate) fn resize(&self, rows: u16, cols: u16) {
        if let Some(terminal) = &self.terminal {
            let _ended_meanwhile = rustix::termios::tcsetwinsize(terminal, size(rows, cols));
        }
    }
}

fn size(ws_row: u16, ws_col: u16) -> Winsize {
    Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 }
}

/// The guest's and the command's ends of a command's standard streams.
struct Streams {
    ours: Ours,
    theirs: [Option<OwnedFd>; 3],
}

enum Ours {
    Pipes { stdin: Option<OwnedFd>, stdout: OwnedFd, stderr: Option<OwnedFd> },
    Terminal(OwnedFd),
}

fn pipes(spawn: &Spawn) -> io::Result<Streams> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC);
    let (their_in, our_in) =
        if spawn.stdin { pipe().map(|(read, write)| (Some(read), Some(write)))? } else { (None, None) };
    let (stdout, their_out) = pipe()?;
    let (stderr, their_err) = if spawn.joined {
        (None, rustix::io::fcntl_dupfd_cloexec(&their_out, 3)?)
    } else {
        pipe().map(|(read, write)| (Some(read), write))?
    };
    let ours = Ours::Pipes { stdin: our_in, stdout, stderr };
    Ok(Streams { ours, theirs: [their_in, Some(their_out), Some(their_err)] })
}

fn terminal(rows: u16, cols: u16) -> io::Result<Streams> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags)?;
    rustix::pty::unlockpt(&master)?;
    rustix::termios::tcsetwinsize(&master, size(rows, cols))?;
    let peer = terminal_peer(master.as_fd())?;
    let dup = || rustix::io::fcntl_dupfd_cloexec(&peer, 3);
    Ok(Streams { theirs: [Some(dup()?), Some(dup()?), Some(dup()?)], ours: Ours::Terminal(master) })
}

/// Why a command did not start.
pub(crate) enum NotStarted {
    System(io::Error),
    Exec(Failed),
}

/// Starts commands.
pub(super) struct Launcher {
    pub(super) token: Token,
    pub(super) proof: Proof,
    /// Resource limits of every command.
    pub(super) limits: Vec<(u32, u64)>,
    /// Home directory of the default user.
    pub(super) home: Vec<u8>,
    /// The machine's own directory for temporary files, if `/tmp` is the host's.
    pub(super) tmp: Option<Vec<u8>>,
    /// Landlock rules for commands, if they are stricter than the guest's own.
    pub(super) rules: Option<OwnedFd>,
    pub(super) stack: Stack,
}

impl Launcher {
    /// Starts a command.
    pub(super) fn launch(
        &mut self,
        spawn: &Spawn,
        user: Option<&User>,
        tag: u64,
        rlimit: Option<(u32, u64)>,
    ) -> Result<Started, NotStarted> {
        let streams = match spawn.tty {
            Some((rows, cols)) => terminal(rows, cols),
            None => pipes(spawn),
        };
        let streams = streams.map_err(NotStarted::System)?;
        let strings = |list: &[Vec<u8>]| -> io::Result<Vec<CString>> {
            list.iter().map(|item| Ok(CString::new(item.clone())?)).collect()
        };
        let mut env = strings(&spawn.env).map_err(NotStarted::System)?;
        if let Some(tmp) = &self.tmp
            && !spawn.env.iter().any(|variable| variable.starts_with(b"TMPDIR="))
        {
            env.extend(CString::new([b"TMPDIR=", tmp.as_slice()].concat()));
        }
        // The host leaves out the variables that only the account files can provide.
        let home = user.map_or(self.home.as_slice(), |user| user.home.as_bytes());
        let name = user.map_or("agent", |user| user.name.as_str()).as_bytes();
        for (variable, value) in [(b"HOME=".as_slice(), home), (b"USER=", name), (b"LOGNAME=", name)] {
            if !spawn.env.iter().any(|given| given.starts_with(variable)) {
                env.extend(CString::new([variable, value].concat()));
            }
        }
        let mut limits = self.limits.clone();
        limits.extend(rlimit.into_iter().chain(spawn.rlimits.iter().copied()).map(as_allowed));
        let plan = Plan {
            programs: &programs(spawn).map_err(NotStarted::System)?,
            argv: &strings(&spawn.argv).map_err(NotStarted::System)?,
            env: &env,
            cwd: &CString::new(spawn.cwd.clone()).map_err(|error| NotStarted::System(error.into()))?,
            stdio: streams.theirs.each_ref().map(|fd| fd.as_ref().map_or(0, AsRawFd::as_raw_fd)),
            terminal: if spawn.tty.is_some() { Terminal::Controlling } else { Terminal::No },
            identity: user.map(|user| (user.uid, user.gid, user.groups.as_slice())),
            limits: &limits,
            tag,
            token: self.token,
            proof: self.proof,
            rules: self.rules.as_ref().map(AsRawFd::as_raw_fd),
        };
        let pid = start(&plan, &mut self.stack).map_err(NotStarted::Exec)?;
        Ok(Started { pid, ours: streams.ours })
    }
}

/// A process that runs, with streams that are not connected yet.
pub(crate) struct Started {
    pid: i32,
    ours: Ours,
}

impl Started {
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Connects the streams.
    pub(crate) fn connect(
        self,
        relay: &mut Relay,
        epoll: &OwnedFd,
        tag: u64,
        about: ProcessRecord,
    ) -> io::Result<Running> {
        let mut kept = None;
        match self.ours {
            Ours::Pipes { stdin, stdout, stderr } => {
                for fd in stdin.iter().chain([&stdout]).chain(&stderr) {
                    rustix::io::ioctl_fionbio(fd, true)?;
                }
                relay.source(Role::Out, stdout, SourceKind::Pipe, epoll);
                if let Some(stderr) = stderr {
                    relay.source(Role::Err, stderr, SourceKind::Pipe, epoll);
                }
                if let Some(stdin) = stdin {
                    relay.sink(stdin, SinkEnd::Close);
                }
            }
            Ours::Terminal(master) => {
                rustix::io::ioctl_fionbio(&master, true)?;
                relay.sink(rustix::io::fcntl_dupfd_cloexec(&master, 3)?, SinkEnd::Terminal);
                kept = Some(rustix::io::fcntl_dupfd_cloexec(&master, 3)?);
                relay.source(Role::Out, master, SourceKind::Stream, epoll);
            }
        }
        Ok(Running {
            pid: self.pid,
            tag,
            deadline: None,
            cause: None,
            deaths: 0,
            about,
            ended_at: None,
            terminal: kept,
            exit: None,
            reported: false,
            done: false,
        })
    }
}

/// Candidate paths of the program, as execvp(3) would search.
fn programs(spawn: &Spawn) -> io::Result<Vec<CString>> {
    let name = spawn.argv.first().map(Vec::as_slice).unwrap_or_default();
    if name.is_empty() {
        return Ok(Vec::new());
    }
    if name.contains(&b'/') {
        return Ok(vec![CString::new(name)?]);
    }
    let path = spawn.env.iter().find_map(|variable| variable.strip_prefix(b"PATH=")).unwrap_or(b"/usr/bin:/bin");
    path.split(|byte| *byte == b':')
        .map(|dir| if dir.is_empty() { b".".as_slice() } else { dir })
        .map(|dir| Ok(CString::new([dir, b"/", name].concat())?))
        .collect()
}

/// Makes a pipe whose reading end never blocks the server.
pub(crate) fn pipe_from_child() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&read, OFlags::NONBLOCK)?;
    Ok((read, write))
}
