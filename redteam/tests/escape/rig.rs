//! What every suite stands on: a process of its own in the right identity, a kit of programs, short words for machines.

use std::{
    fs,
    future::Future,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    pin::Pin,
    process::{Command as HostCommand, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use parking_lot::Mutex;
use sandbar_clients::{
    Docker, UnixLocal,
    docker::{Engine, Pull},
};
use sandbar_machine::{
    Access, Command, Exit, HostMount, Machine, MachinePath, MachineSpec, Output, Process, SandboxClient, Workspace,
};
use sandbar_redteam::sys;
use tokio::time::{sleep, timeout};

use crate::escape::{
    engine::{OlderEngine, RUNTIME},
    processors::CpuGroup,
};

/// The unprivileged user that `cargo xtask setup` makes.
const USER: &str = "sandbar-test";
/// The second host user: owns the set-user-id program and looks for what attacks left.
pub(crate) const SECOND_USER: u32 = 65534;
/// Longest time that any operation may take on a busy host.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Image of the machines in containers; `cargo xtask setup` builds it.
pub(crate) const IMAGE: &str = "sandbar-test:bookworm";
/// Owner of the mounted directories where commands in a container run as an ordinary user.
const AGENT: u32 = 1000;

/// The machine that is attacked, and the user that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A local machine of root's.
    Root,
    /// A local machine of an ordinary user's.
    User,
    /// A container whose commands run as an ordinary user.
    Docker,
    /// A container whose commands run as root, which is the host's root but for its powers.
    DockerRoot,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::User => "user",
            Self::Docker => "docker",
            Self::DockerRoot => "docker-root",
        }
    }

    pub(crate) fn in_container(self) -> bool {
        matches!(self, Self::Docker | Self::DockerRoot)
    }

    /// The user that shows that an attack works without a sandbox.
    pub(crate) fn outside(self) -> &'static str {
        if self == Self::User { "user" } else { "root" }
    }
}

/// The machines and programs of one suite.
pub(crate) struct Rig {
    pub(crate) mode: Mode,
    /// Directory of programs that every user may run.
    pub(crate) kit: PathBuf,
    /// A private directory of this suite.
    pub(crate) scratch: tempfile::TempDir,
    pub(crate) client: Arc<dyn SandboxClient>,
    /// In this process's environment, and nowhere else.
    pub(crate) variable: String,
}

pub(crate) type Suite = for<'a> fn(&'a Rig) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// One suite at a time: they count processes and mounts.
static TURN: Mutex<()> = Mutex::new(());

/// What is different about the host that a suite finds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Host {
    /// The version of Landlock that the kernel claims.
    pub(crate) landlock: Option<u32>,
    /// Everything of the suite is in one cpu control group: otherwise each session may have a share of its own.
    pub(crate) one_cpu_group: bool,
}

/// Runs a suite in a process of its own, as root or as the ordinary user.
pub(crate) fn in_mode(mode: Mode, test: &str, suite: Suite) {
    on_host(Host::default(), mode, test, suite);
}

/// The same on another host.
pub(crate) fn on_host(host: Host, mode: Mode, test: &str, suite: Suite) {
    if let Ok(kit) = std::env::var("REDTEAM_KIT") {
        return run_here(mode, kit.into(), suite);
    }
    if mode.in_container() && !has_engine() {
        return;
    }
    let _turn = TURN.lock();
    assert_eq!(sys::call(libc::SYS_geteuid, []), Ok(0), "the red team starts as root: it needs both modes");
    let kit = Kit::make();
    let engine = host.landlock.filter(|_| mode.in_container());
    let engine = engine.map(|version| OlderEngine::start(&kit.0.path().join("probe"), version));
    let group = host.one_cpu_group.then(CpuGroup::new);
    let mut command = kit.command(mode, host.landlock);
    command.envs(engine.as_ref().map(|engine| ("REDTEAM_ENGINE", engine.address())));
    command.envs(group.as_ref().map(|group| ("REDTEAM_GROUP", group.name())));
    command.args(["--exact", test, "--nocapture", "--test-threads=1", "--include-ignored"]);
    let mut child = command.spawn().expect("the suite starts; is setpriv installed?");
    if let Some(group) = &group {
        group.take(child.id());
    }
    let status = child.wait().expect("the suite ends");
    assert!(status.success(), "{test} failed: see above");
}

/// Whether containers can be made here; where `CI` is `true` they must.
fn has_engine() -> bool {
    let asked = HostCommand::new("docker").args(["image", "inspect", IMAGE]).output();
    let answers = asked.is_ok_and(|output| output.status.success());
    assert!(answers || std::env::var("CI").as_deref() != Ok("true"), "no engine with {IMAGE}: run `cargo xtask setup`");
    if !answers {
        println!("LEFT OUT: no Docker engine with the image {IMAGE}; `cargo xtask setup` puts both in place");
    }
    answers
}

/// Programs copied to where every user can reach them, removed again at the end.
struct Kit(tempfile::TempDir);

impl Kit {
    fn make() -> Self {
        let dir = tempfile::Builder::new().prefix("redteam-kit-").tempdir_in("/tmp").expect("a directory in /tmp");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("a directory for all");
        let install = |from: &Path, name: &str, mode: u32| {
            let to = dir.path().join(name);
            fs::copy(from, &to).expect("the program is copied");
            if mode & 0o4000 != 0 {
                std::os::unix::fs::chown(&to, Some(SECOND_USER), Some(SECOND_USER)).expect("it is given away");
            }
            fs::set_permissions(&to, fs::Permissions::from_mode(mode)).expect("every user may run it");
        };
        let probe = Path::new(env!("CARGO_BIN_EXE_probe"));
        install(probe, "probe", 0o755);
        install(probe, "set-id-probe", 0o4755);
        install(&std::env::current_exe().expect("this program"), "escape", 0o755);
        Self(dir)
    }

    fn command(&self, mode: Mode, landlock: Option<u32>) -> HostCommand {
        let program = self.0.path().join("escape");
        let (uid, home) = match mode {
            Mode::Root | Mode::Docker | Mode::DockerRoot => ("0".to_owned(), "/root".to_owned()),
            Mode::User => (id_of(USER), format!("/home/{USER}")),
        };
        let mut command = HostCommand::new(self.0.path().join("probe"));
        match landlock {
            // As root, before anything else: it takes a privilege that the program below need not have. In a container it
            // is the engine's runtime that claims it.
            Some(version) if !mode.in_container() => command.args(["--landlock", &version.to_string(), "setpriv"]),
            _ => {
                command = HostCommand::new("setpriv");
                &mut command
            }
        };
        command.arg(format!("--reuid={uid}")).arg(format!("--regid={uid}")).arg("--clear-groups").arg(program);
        command.env_clear().current_dir("/").stdin(Stdio::null());
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", home).env("RUST_BACKTRACE", "1");
        command.envs(std::env::var("REDTEAM_STEPS").map(|steps| ("REDTEAM_STEPS", steps)));
        command.envs(landlock.map(|version| ("REDTEAM_LANDLOCK", version.to_string())));
        command.env("REDTEAM_KIT", self.0.path()).env("REDTEAM_VARIABLE", token());
        command
    }
}

fn id_of(user: &str) -> String {
    let passwd = fs::read_to_string("/etc/passwd").expect("the users of this host");
    let line = passwd.lines().find(|line| line.split(':').next() == Some(user));
    let line = line.unwrap_or_else(|| panic!("the user {user} is missing; run `cargo xtask setup`"));
    line.split(':').nth(2).expect("a user has a number").to_owned()
}

/// The version of Landlock that the kernel claims to this suite, if it is not its own.
pub(crate) fn claimed_landlock() -> Option<u32> {
    std::env::var("REDTEAM_LANDLOCK").ok().map(|text| text.parse().expect("a version"))
}

/// The engine that a suite was given, or the host's.
pub(crate) fn docker() -> Docker {
    let docker = Docker::image(IMAGE).pull(Pull::Never);
    match std::env::var("REDTEAM_ENGINE") {
        Ok(address) => docker.engine(Engine::at(&address).expect("an address")).runtime(RUNTIME),
        Err(_) => docker,
    }
}

fn run_here(mode: Mode, kit: PathBuf, suite: Suite) {
    CpuGroup::wait_until_taken();
    // Whatever a killed harness leaves behind becomes a child of this process, and is found.
    sys::call(libc::SYS_prctl, [libc::PR_SET_CHILD_SUBREAPER as u64, 1, 0, 0, 0]).expect("adopt orphans");
    let scratch = tempfile::Builder::new().prefix("redteam-").tempdir_in("/tmp").expect("a directory in /tmp");
    let client: Arc<dyn SandboxClient> = if mode.in_container() {
        Arc::new(docker().label("sandbar.test", "redteam"))
    } else {
        Arc::new(UnixLocal::new().state_dir(scratch.path().join("state")))
    };
    let variable = std::env::var("REDTEAM_VARIABLE").expect("the canary variable");
    let rig = Rig { mode, kit, scratch, client, variable };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(suite(&rig));
}

/// Sixteen random letters.
pub(crate) fn token() -> String {
    let random = fs::File::open("/dev/urandom").and_then(|mut file| {
        let mut bytes = [0; 8];
        std::io::Read::read_exact(&mut file, &mut bytes).map(|()| u64::from_ne_bytes(bytes))
    });
    format!("{:016x}", random.expect("random numbers"))
}

impl Rig {
    /// The suite's own directories.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let dir = self.scratch.path().join(name);
        fs::create_dir_all(&dir).expect("a directory");
        if self.mode == Mode::Docker {
            std::os::unix::fs::chown(&dir, Some(AGENT), Some(AGENT)).expect("it is given away");
        }
        dir
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.scratch.path().join("state")
    }

    /// A machine with the kit at `/probe` and this host directory as its workspace.
    pub(crate) fn spec(&self, workspace: &Path) -> MachineSpec {
        MachineSpec::default()
            .workspace(Workspace::Host { path: workspace.to_owned(), access: Access::ReadWrite })
            .mounts([HostMount {
                host: self.kit.clone(),
                inside: MachinePath::new("/probe").expect("a path"),
                access: Access::ReadOnly,
                identity: None,
            }])
    }

    pub(crate) async fn create(&self, spec: MachineSpec) -> Arc<dyn Machine> {
        timeout(SOON, self.client.create(spec)).await.expect("create in time").expect("a machine")
    }

    pub(crate) fn probe(&self) -> PathBuf {
        self.kit.join("probe")
    }
}

/// Looks again and again whether something is so; `false` when it has not become so within a minute.
pub(crate) async fn until(mut is_so: impl AsyncFnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if is_so().await {
            return true;
        }
        if start.elapsed() > SOON {
            return false;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// Repeats an attempt that depends on timing, without a pause; `false` after a minute without success.
pub(crate) fn works_once(mut tried: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < SOON {
        if tried() {
            return true;
        }
    }
    false
}

/// What a command printed and how it ended.
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) exit: Option<Exit>,
}

/// Runs a command to its end.
pub(crate) async fn run(machine: &dyn Machine, command: Command) -> Ran {
    let process = timeout(SOON, machine.spawn(command)).await.expect("spawn in time").expect("the command starts");
    timeout(SOON, finish(process)).await.expect("the command ends")
}

/// Collects what a process prints until it falls silent or the machine is gone.
pub(crate) async fn finish(mut process: Process) -> Ran {
    let (mut stdout, mut exit) = (BytesMut::new(), None);
    while let Some(Ok(output)) = process.output.recv().await {
        match output {
            Output::Stdout(bytes) | Output::Stderr(bytes) => stdout.extend_from_slice(&bytes),
            Output::Exit(ended) => {
                exit = Some(ended);
                break;
            }
            Output::Omitted(_) => {}
        }
    }
    Ran { stdout: String::from_utf8_lossy(&stdout).into_owned(), exit }
}

/// The probe inside a machine.
pub(crate) fn inside(name: &str, args: impl IntoIterator<Item = String>) -> Command {
    Command::new(["/probe/probe".to_owned(), name.to_owned()].into_iter().chain(args))
}
