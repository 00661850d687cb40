//! Things of the host's that must not be reached: files, sockets, ports, processes, shared memory, a terminal.

#![allow(unsafe_code, reason = "one descriptor from a raw call, and a session for a new process")]

use std::{
    fs, io,
    net::{Ipv4Addr, Ipv6Addr, TcpListener},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixDatagram, UnixListener},
            process::CommandExt,
        },
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use sandbar_redteam::{
    identity,
    sys::{self, addr, at, call, text},
};

use crate::escape::rig::{Mode, Rig, token};

/// All canaries, alive as long as this is.
pub(crate) struct Canaries {
    words: Vec<(&'static str, String)>,
    secret: (PathBuf, String),
    process: Child,
    terminal: OwnedFd,
    queue: String,
    shm: PathBuf,
    ipc: [i64; 3],
    share: String,
    _open: Vec<OwnedFd>,
}

impl Canaries {
    pub(crate) fn place(rig: &Rig) -> Self {
        let (dir, marker, secret) = (rig.dir("canaries"), token(), token());
        let secret_file = dir.join(format!("secret-{marker}"));
        fs::write(&secret_file, &secret).expect("a secret");
        fs::set_permissions(&secret_file, fs::Permissions::from_mode(0o600)).expect("a private secret");
        let mut process = Command::new("/bin/sleep");
        process.arg0(format!("canary-{marker}")).arg("1000").stdin(Stdio::null()).stdout(Stdio::null());
        let process = in_own_session(&mut process).spawn().expect("a canary process");
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
        let listener6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).expect("an IPv6 port");
        let name = format!("redteam-{marker}");
        let abstract_socket = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name"));
        let stream = UnixListener::bind(dir.join("stream")).expect("a path socket");
        let datagram = UnixDatagram::bind(dir.join("datagram")).expect("a datagram socket");
        let shm = PathBuf::from(format!("/dev/shm/redteam-{marker}"));
        fs::write(&shm, &secret).expect("a file in /dev/shm");
        let (terminal, pts) = terminal();
        let key = i64::from(u32::from_str_radix(&marker[..7], 16).expect("hexadecimal"));
        let queue = format!("redteam-{marker}");
        let mut words = vec![
            ("secret", secret_file.display().to_string()),
            ("home", std::env::var("HOME").expect("a home")),
            ("token", marker.clone()),
            ("marker", format!("canary-{marker}")),
            ("variable", rig.variable.clone()),
            ("hostpid", process.id().to_string()),
            ("port", listener.local_addr().expect("an address").port().to_string()),
            ("port6", listener6.local_addr().expect("an address").port().to_string()),
            ("abstract", name),
            ("socket", dir.join("stream").display().to_string()),
            ("dgram", dir.join("datagram").display().to_string()),
            ("ipckey", key.to_string()),
            ("queue", queue.clone()),
            ("shm", shm.display().to_string()),
            ("pts", pts),
            ("boot-id", fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("it is there").trim().to_owned()),
        ];
        let own = [("home-id", words[1].1.as_str()), ("shadow-id", "/etc/shadow"), ("usr-id", "/usr")];
        let own = own.into_iter().chain([("passwd-id", "/etc/passwd"), ("root-id", "/")]);
        words.extend(own.map(|(key, path)| (key, identity(path).expect("it is there"))).collect::<Vec<_>>());
        words.extend(address().map(|address| ("address", address)));
        let ipc = ipc(key, &queue);
        words.extend(["shmid", "msgid", "semid"].into_iter().zip(ipc.map(|id| id.to_string())));
        let mut open: Vec<OwnedFd> = vec![listener.into(), listener6.into(), stream.into(), datagram.into()];
        open.push(abstract_socket.expect("an abstract socket").into());
        open.push(fs::File::open(&secret_file).expect("the secret").into());
        open.push(fs::File::open("/").expect("the root").into());
        // Leaked on purpose: a harness's other libraries do this all the time.
        for fd in &open {
            call(libc::SYS_fcntl, [fd.as_raw_fd() as u64, libc::F_SETFD as u64, 0]).expect("leak it");
        }
        Self {
            words,
            secret: (secret_file, secret),
            process,
            terminal,
            queue,
            shm,
            ipc,
            share: own_share(),
            _open: open,
        }
    }

    /// The words for an attack; `dir` is where it may write.
    pub(crate) fn words(&self, extra: &[(&str, String)]) -> Vec<String> {
        let own = self.words.iter().map(|(key, value)| format!("{key}={value}"));
        own.chain(extra.iter().map(|(key, value)| format!("{key}={value}"))).collect()
    }

    /// A POSIX queue that an attack may remove, made anew if one did.
    pub(crate) fn spare_queue(&self) -> String {
        let name = spare(&self.queue);
        posix_queue(&name);
        name
    }

    pub(crate) fn hostpid(&self) -> String {
        self.process.id().to_string()
    }

    /// What was harmed, if anything.
    pub(crate) fn harm(&mut self) -> Vec<String> {
        let mut harm = Vec::new();
        if fs::read_to_string(&self.secret.0).ok().as_ref() != Some(&self.secret.1) {
            harm.push("the secret file was changed".to_owned());
        }
        if self.process.try_wait().is_ok_and(|ended| ended.is_some()) {
            harm.push("the canary process ended".to_owned());
        }
        let mut about = [0u64; 32];
        let is_there = [
            call(libc::SYS_shmctl, [self.ipc[0] as u64, libc::IPC_STAT as u64, sys::addr_mut(&mut about)]),
            call(libc::SYS_msgctl, [self.ipc[1] as u64, libc::IPC_STAT as u64, sys::addr_mut(&mut about)]),
            call(libc::SYS_semctl, [self.ipc[2] as u64, 0, libc::IPC_STAT as u64, sys::addr_mut(&mut about)]),
        ];
        if is_there.iter().any(Result::is_err) {
            harm.push(format!("shared memory, queue and semaphore: {is_there:?}"));
        }
        let mut byte = [0u8; 1];
        if call(libc::SYS_read, [self.terminal.as_raw_fd() as u64, sys::addr_mut(&mut byte), 1]).is_ok() {
            harm.push("something was written to the terminal".to_owned());
        }
        let share = own_share();
        if share != self.share {
            harm.push(format!("the share of processors of the tests' session went from {} to {share}", self.share));
        }
        harm
    }
}

impl Drop for Canaries {
    fn drop(&mut self) {
        let _gone = self.process.kill().and_then(|()| self.process.wait());
        let _gone = fs::remove_file(&self.shm);
        for queue in [text(&self.queue), text(&spare(&self.queue))] {
            let _gone = call(libc::SYS_mq_unlink, [at(&queue)]);
        }
        let _gone = call(libc::SYS_shmctl, [self.ipc[0] as u64, libc::IPC_RMID as u64, 0]);
        let _gone = call(libc::SYS_msgctl, [self.ipc[1] as u64, libc::IPC_RMID as u64, 0]);
        let _gone = call(libc::SYS_semctl, [self.ipc[2] as u64, 0, libc::IPC_RMID as u64, 0]);
    }
}

/// Gives the process a session of its own. The kernel divides the processors among sessions, so that an attack on the share
/// of a session would slow down the tests, and everything beside them, until the host is restarted.
pub(crate) fn in_own_session(command: &mut Command) -> &mut Command {
    let enter = || call(libc::SYS_setsid, []).map(|_| ()).map_err(io::Error::from_raw_os_error);
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(enter) }
}

/// What the kernel says about this session's share, where it divides by sessions.
fn own_share() -> String {
    fs::read_to_string("/proc/self/autogroup").unwrap_or_default().trim().to_owned()
}

fn spare(queue: &str) -> String {
    format!("{queue}-spare")
}

fn posix_queue(name: &str) {
    let name = text(name);
    let attributes = [0i64, 1, 8, 0, 0, 0, 0, 0];
    let flags = (libc::O_CREAT | libc::O_RDWR | libc::O_CLOEXEC) as u64;
    let queue = call(libc::SYS_mq_open, [at(&name), flags, 0o600, addr(&attributes)]).expect("a message queue");
    sys::close(queue as i32);
}

fn ipc(key: i64, queue: &str) -> [i64; 3] {
    let make = (libc::IPC_CREAT | 0o600) as u64;
    posix_queue(queue);
    let messages = call(libc::SYS_msgget, [key as u64, make]).expect("a message queue");
    let secret = [1u64, 42];
    call(libc::SYS_msgsnd, [messages as u64, addr(&secret), 8, 0]).expect("a message in it");
    [
        call(libc::SYS_shmget, [key as u64, 4096, make]).expect("shared memory"),
        messages,
        call(libc::SYS_semget, [key as u64, 1, make]).expect("a semaphore"),
    ]
}

/// A terminal of the harness's, in raw mode so that nothing is echoed.
fn terminal() -> (OwnedFd, String) {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let master = sys::open("/dev/ptmx", flags, 0).expect("a terminal");
    let (unlock, mut number) = (0i32, 0i32);
    call(libc::SYS_ioctl, [master as u64, libc::TIOCSPTLCK, addr(&unlock)]).expect("unlock it");
    call(libc::SYS_ioctl, [master as u64, libc::TIOCGPTN, sys::addr_mut(&mut number)]).expect("its number");
    // SAFETY: `sys::open` just returned this descriptor, and nothing else uses it.
    (unsafe { OwnedFd::from_raw_fd(master) }, format!("/dev/pts/{number}"))
}

/// An address of this host that is not loopback.
fn address() -> Option<String> {
    // Connecting a datagram socket sends nothing; it only asks which address would be used.
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(198, 51, 100, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}

/// A process of this user that an attack may kill or stop.
pub(crate) struct Victim(Child);

impl Victim {
    pub(crate) fn new(mode: Mode) -> Self {
        let child = Command::new("/bin/sleep")
            .arg("600")
            .env("VICTIM", mode.name())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        Self(child.expect("a victim"))
    }

    pub(crate) fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _gone = self.0.kill().and_then(|()| self.0.wait());
    }
}
