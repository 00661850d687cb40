//! Turns a bare child process into a confined server, step by step in a safe order.

use std::{
    io::Read,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use sandbar_guest::protocol::{BootFailure, Hello, Launch, Level, VERSION};

use crate::{
    confine::{
        self, Walls,
        claim::Claims,
        etc,
        landlock::{self, Grant, Role, Rules},
        proc,
        root::{self, DEVICES, Given, PROGRAMS, Source, below},
    },
    door::hub::Hub,
    identity::{AGENT, Agent, Users},
    limits,
    machine::{
        failure::{Setup, Step, refuse},
        group::Hard,
        namespaces,
    },
    serve::{self, Bounds, Looker, Scope, Settings},
    sys::{
        exec::Proof,
        files,
        process::{self, exit_now},
        security::{self, Caps, Token},
    },
};

/// How many users a machine's ids allow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Population {
    One,
    Many,
}

/// What the supervisor passes to PID 1.
pub(crate) struct Inside {
    /// The machine's directory on the host.
    pub(crate) dir: Vec<u8>,
    /// Number of users of the machine.
    pub(crate) users: Population,
    /// Mounts that only root could prepare.
    pub(crate) given: Option<Given>,
    /// The stream to its host; for a machine that outlives its maker, the socket that delivers host connections.
    pub(crate) control: OwnedFd,
    /// Readable once the id maps are written.
    pub(crate) wait: OwnedFd,
    /// Pipe for a setup failure.
    pub(crate) report: OwnedFd,
    /// File in which the kernel counts out-of-memory kills.
    pub(crate) deaths: Option<OwnedFd>,
}

/// Limits of the machine that are known before it is set up.
struct Holding {
    hard: Hard,
    bounds: Bounds,
}

/// Becomes the machine. Never returns.
pub(crate) fn pid1(launch: &Launch, inside: Inside) -> ! {
    let Inside { dir, users, given, control, wait, report, deaths } = inside;
    // A fork inherits every descriptor, also close-on-exec ones: the leash, the state directory. None may stay open.
    let mut keep = vec![control.as_raw_fd(), wait.as_raw_fd(), report.as_raw_fd()];
    keep.extend(given.iter().flat_map(Given::descriptors));
    keep.extend(deaths.iter().map(AsRawFd::as_raw_fd));
    let mut go = [0; 1];
    if process::close_all_but(&mut keep).is_err() || std::fs::File::from(wait).read_exact(&mut go).is_err() {
        exit_now(1);
    }
    let hard = Hard::of(go[0]);
    // Now: once its memory is closed, this process may be unable to open its own files below `/proc` for writing.
    let holding = Holding { hard, bounds: Bounds::new(launch, hard, deaths) };
    // Only root opens the host paths beforehand.
    let is_root = given.is_some();
    let ready = match launch.level {
        Level::Full => full(launch, &dir, (users, given), holding)
            .map_err(|failure| if is_root { failure } else { namespaces::explain(failure) }),
        Level::Landlock => landlock(launch, &dir, holding),
        Level::None => Claims::open(launch).and_then(|_same| unconfined(launch, &dir, holding)),
    };
    match ready {
        Ok(settings) => {
            drop(report);
            match &launch.detached {
                Some(detached) => serve::run_hub(Hub::Supervisor(control), None, detached.lease(), settings),
                None => serve::run(control, settings),
            }
        }
        Err(failure) => {
            let _supervisor_gone = rustix::io::write(&report, &failure.encode());
            exit_now(1)
        }
    }
}

fn full(launch: &Launch, dir: &[u8], (users, given): (Population, Option<Given>), holding: Holding) -> Setup<Settings> {
    process::hide_groups_above().step("make a namespace of control groups")?;
    let given = match given {
        Some(given) => given,
        // As the user that named the paths.
        None => Given::open(launch, dir, |place, _| Source::open(place))?,
    };
    let are_many = users == Population::Many;
    if are_many {
        process::become_user(0, 0, &[]).step("become the machine's root")?;
    }
    process::die_with_parent().step("bind to the supervisor")?;
    rustix::system::sethostname(b"sandbar").step("set the host name")?;
    let (rules, sockets) = root::build(launch, given)?;
    let mut layers: Vec<String> =
        ["user", "mount", "pid", "ipc", "uts", "cgroup"].map(|name| format!("{name} namespace")).into();
    if !launch.host_network {
        loopback().step("bring the loopback interface up")?;
        layers.push("network namespace".to_owned());
    }
    layers.push("private file tree".to_owned());
    layers.extend(sockets.map(str::to_owned));
    let token = Token::random().step("draw random numbers")?;
    let proc = proc::open().step("open /proc")?;
    let users = if are_many { Users::many(Agent(AGENT, AGENT)) } else { Users::One };
    let looker = if are_many { Looker::Owners } else { Looker::Own };
    let places: [&[u8]; 3] = [b"/home/agent", b"/home", b"/workspace"];
    let bounds = holding.bounds.disk(launch, token, looker, &places);
    let keep = if are_many { Caps::SWITCH_USERS } else { Caps::NONE };
    let walls = match launch.host_network && !landlock::scopes_sockets() {
        true => Walls::HostNetwork,
        false => Walls::Namespaces,
    };
    layers.extend(confine::drop_powers(keep, &rules, walls, token)?);
    if walls == Walls::HostNetwork {
        layers.push("no unix sockets (this landlock does not keep those of the host away)".to_owned());
    }
    security::close_memory().step("close the guest's memory")?;
    let hello = Hello {
        version: VERSION,
        layers,
        workspace: b"/workspace".to_vec(),
        home: b"/home/agent".to_vec(),
        users: are_many,
        held: bounds.held(holding.hard),
    };
    first_count(
        launch,
        Settings {
            users,
            token,
            proof: Proof::Confined,
            limits: limits::of_commands(launch, Some(launch.pids)),
            hello,
            proc,
            scope: Scope::Namespace,
            tmp: None,
            rules: None,
            bounds,
        },
    )
}

/// Refuses a host directory that already exceeds the disk limit.
pub(crate) fn first_count(launch: &Launch, mut settings: Settings) -> Setup<Settings> {
    if launch.workspace.is_some()
        && let Err(why) = settings.bounds.first_count()
    {
        let stage = format!("hold the workspace to its size: {why}");
        return Err(BootFailure { errno: libc::ENOSPC, ..refuse(stage, "", "") });
    }
    Ok(settings)
}

fn loopback() -> std::io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    files::loopback_up(socket.as_fd())
}

/// Landlock and seccomp on the host's own tree, for hosts that allow no namespaces.
fn landlock(launch: &Launch, dir: &[u8], holding: Holding) -> Setup<Settings> {
    let mut rules = Rules::new(Role::OnlyWall);
    for base in PROGRAMS {
        rules.allow(format!("/{base}").as_bytes(), Grant::Read);
    }
    for name in etc::visible() {
        rules.allow(name.as_bytes(), Grant::Read);
    }
    for device in DEVICES {
        rules.allow(format!("/dev/{device}").as_bytes(), Grant::Device);
    }
    let claims = Claims::open(launch)?;
    let hard = holding.hard;
    let mut settings = unconfined(launch, dir, holding)?;
    // Landlock denies reading the memory usage of other processes.
    settings.bounds = settings.bounds.without_memory();
    settings.hello.held = settings.bounds.held(hard);
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
    // The guest opens terminals, which are the user's own; a command gets only its own terminal, as a descriptor.
    settings.rules = Some(rules.ruleset()?.0);
    rules.allow(b"/dev/pts", Grant::Device);
    rules.allow(b"/dev/ptmx", Grant::Device);
    let walls = if launch.host_network { Walls::SharedOnline } else { Walls::SharedOffline };
    settings.hello.layers = confine::drop_powers(Caps::NONE, &rules, walls, settings.token)?;
    settings.proof = Proof::Confined;
    security::close_memory().step("close the guest's memory")?;
    Ok(settings)
}

fn unconfined(launch: &Launch, dir: &[u8], holding: Holding) -> Setup<Settings> {
    process::die_with_parent().step("bind to the supervisor")?;
    process::adopt_orphans().step("adopt orphans")?;
    let workspace = match &launch.workspace {
        Some((host, _)) => host.path.clone(),
        None => below(dir, b"workspace"),
    };
    let token = Token::random().step("draw random numbers")?;
    let (home, tmp) = (below(dir, b"home"), below(dir, b"tmp"));
    let places = [home.as_slice(), &tmp, &workspace];
    let bounds = holding.bounds.disk(launch, token, Looker::Own, &places);
    let held = bounds.held(holding.hard);
    let settings = Settings {
        users: Users::One,
        token,
        proof: Proof::NotAsked,
        limits: limits::of_commands(launch, None),
        hello: Hello {
            version: VERSION,
            layers: Vec::new(),
            workspace: workspace.clone(),
            home: home.clone(),
            users: false,
            held,
        },
        proc: proc::open().step("open /proc")?,
        scope: Scope::Descendants,
        tmp: Some(tmp.clone()),
        rules: None,
        bounds,
    };
    first_count(launch, settings)
}
