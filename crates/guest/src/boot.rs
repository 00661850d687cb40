//! From a bare child process to a confined server, in the order that keeps every step safe.

use std::{
    io::Read,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use sandbar_guest::protocol::{Hello, Launch, Level, VERSION};

use crate::{
    confine::{
        self, Walls,
        claim::Claims,
        etc,
        landlock::{Grant, Rules},
        proc,
        root::{self, Given, Source, below},
    },
    failure::{Setup, Step},
    identity::Users,
    serve::{self, Scope, Settings},
    sys::{
        exec::Proof,
        files,
        process::{self, exit_now},
        security::{self, Caps, Token},
    },
};

/// What PID 1 is given by its supervisor.
pub(crate) struct Inside {
    /// The machine's directory on the host.
    pub(crate) dir: Vec<u8>,
    /// Mounts that only root could prepare.
    pub(crate) given: Option<Given>,
    /// The stream to its host, or, where it outlives that, the hub its hosts' streams come out of.
    pub(crate) control: OwnedFd,
    /// Readable once the id maps are written.
    pub(crate) wait: OwnedFd,
    /// Where to say why it cannot go on.
    pub(crate) report: OwnedFd,
}

/// Becomes the machine. Never returns.
pub(crate) fn pid1(launch: &Launch, inside: Inside) -> ! {
    let Inside { dir, given, control, wait, report } = inside;
    // A fork keeps every descriptor, also those that are to close on exec: the leash, the state directory. None may stay.
    let mut keep = vec![control.as_raw_fd(), wait.as_raw_fd(), report.as_raw_fd()];
    keep.extend(given.iter().flat_map(Given::descriptors));
    let mut go = [0; 1];
    if process::close_all_but(&mut keep).is_err() || std::fs::File::from(wait).read_exact(&mut go).is_err() {
        exit_now(1);
    }
    let ready = match launch.level {
        Level::Full => full(launch, &dir, given),
        Level::Landlock => landlock(launch, &dir),
        Level::None => Claims::open(launch).and_then(|_same| unconfined(launch, &dir)),
    };
    match ready {
        Ok(settings) => {
            drop(report);
            match launch.detached {
                Some(_) => serve::run_hub(control, settings),
                None => serve::run(control, settings),
            }
        }
        Err(failure) => {
            let _supervisor_gone = rustix::io::write(&report, &failure.encode());
            exit_now(1)
        }
    }
}

fn full(launch: &Launch, dir: &[u8], given: Option<Given>) -> Setup<Settings> {
    let are_many = given.is_some();
    if are_many {
        process::become_user(0, 0, &[]).step("become the machine's root")?;
    }
    process::die_with_parent().step("bind to the supervisor")?;
    let given = match given {
        Some(given) => given,
        None => Given::open(launch, dir, |place, _| Source::open(place))?,
    };
    rustix::system::sethostname(b"sandbar").step("set the host name")?;
    let rules = root::build(launch, given)?;
    let mut layers: Vec<String> =
        ["user", "mount", "pid", "ipc", "uts", "cgroup"].map(|name| format!("{name} namespace")).into();
    if !launch.host_network {
        loopback().step("bring the loopback interface up")?;
        layers.push("network namespace".to_owned());
    }
    layers.push("private file tree".to_owned());
    let token = Token::random().step("draw random numbers")?;
    let proc = proc::open().step("open /proc")?;
    let users = if are_many { Users::many() } else { Users::One };
    let keep = if are_many { Caps::SWITCH_USERS } else { Caps::NONE };
    layers.extend(confine::drop_powers(keep, &rules, Walls::Namespaces, token)?);
    security::close_memory().step("close the guest's memory")?;
    let hello = Hello {
        version: VERSION,
        layers,
        workspace: b"/workspace".to_vec(),
        home: b"/home/agent".to_vec(),
        users: are_many,
    };
    Ok(Settings {
        users,
        token,
        proof: Proof::Confined,
        limits: limits(launch),
        hello,
        proc,
        scope: Scope::Namespace,
        tmp: None,
        rules: None,
    })
}

fn loopback() -> std::io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    files::loopback_up(socket.as_fd())
}

/// Landlock and seccomp on the host's own tree, for places that allow no namespaces.
fn landlock(launch: &Launch, dir: &[u8]) -> Setup<Settings> {
    let mut rules = Rules::new(3);
    for base in ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"] {
        rules.allow(base.as_bytes(), Grant::Read);
    }
    for name in etc::visible() {
        rules.allow(name.as_bytes(), Grant::Read);
    }
    for device in ["null", "zero", "full", "random", "urandom", "tty"] {
        rules.allow(format!("/dev/{device}").as_bytes(), Grant::Device);
    }
    let claims = Claims::open(launch)?;
    let mut settings = unconfined(launch, dir)?;
    for own in ["home", "tmp"] {
        rules.allow(&below(dir, own.as_bytes()), Grant::Write);
    }
    let may = |writable: bool| if writable { Grant::Write } else { Grant::Read };
    match (claims.workspace, &launch.workspace) {
        (Some(place), Some((_, writable))) => rules.allow_held(place, may(*writable)),
        _ => rules.allow(&settings.hello.workspace, Grant::Write),
    }
    for (place, mount) in claims.mounts.into_iter().zip(&launch.mounts) {
        rules.allow_held(place, may(mount.writable));
    }
    // The guest makes terminals, which are among the user's own; commands get theirs handed over, and no other.
    settings.rules = Some(rules.ruleset()?.0);
    rules.allow(b"/dev/pts", Grant::Device);
    rules.allow(b"/dev/ptmx", Grant::Device);
    let walls = if launch.host_network { Walls::SharedOnline } else { Walls::SharedOffline };
    settings.hello.layers = confine::drop_powers(Caps::NONE, &rules, walls, settings.token)?;
    settings.proof = Proof::Confined;
    security::close_memory().step("close the guest's memory")?;
    Ok(settings)
}

fn unconfined(launch: &Launch, dir: &[u8]) -> Setup<Settings> {
    process::die_with_parent().step("bind to the supervisor")?;
    process::adopt_orphans().step("adopt orphans")?;
    let workspace = match &launch.workspace {
        Some((host, _)) => host.path.clone(),
        None => below(dir, b"workspace"),
    };
    Ok(Settings {
        users: Users::One,
        token: Token::random().step("draw random numbers")?,
        proof: Proof::NotAsked,
        limits: limits(launch),
        hello: Hello { version: VERSION, layers: Vec::new(), workspace, home: below(dir, b"home"), users: false },
        proc: proc::open().step("open /proc")?,
        scope: Scope::Descendants,
        tmp: Some(below(dir, b"tmp")),
        rules: None,
    })
}

/// Signals that may wait: they are counted for the host's user across all namespaces, and one machine may not use them up.
pub(crate) const PENDING_SIGNALS: (u32, u64) = (libc::RLIMIT_SIGPENDING, 1024);

/// The limits every command gets: processes, open files, signals that wait, no core dumps.
fn limits(launch: &Launch) -> Vec<(u32, u64)> {
    let mut limits = vec![(libc::RLIMIT_NOFILE, launch.open_files), (libc::RLIMIT_CORE, 0), PENDING_SIGNALS];
    // Counted per user and user namespace: only where the machine has its own does it count the machine's processes.
    if launch.level == Level::Full {
        limits.push((libc::RLIMIT_NPROC, launch.pids));
    }
    limits
}

/// The processes whose parent is this one.
pub(crate) fn children_of(parent: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |pid: &i32| {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
        // The name in parentheses may hold anything; what follows the last one is numbers.
        let Some((_, rest)) = stat.rsplit_once(')') else { return false };
        rest.split_whitespace().nth(1).and_then(|ppid| ppid.parse().ok()) == Some(parent)
    };
    pids.filter(is_child).collect()
}
