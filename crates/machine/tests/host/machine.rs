//! A machine that is a temporary directory and ordinary processes: no walls, and only the methods without a fallback.

use std::{
    collections::HashMap,
    ffi::OsString,
    io,
    net::SocketAddr,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use sandbar_machine::{
    ByteStream, Command, Demand, Endpoint, Exit, Features, Isolation, Machine, MachineError, MachineHandle,
    MachinePath, MachineSpec, Output, Ports, Process, Result, SandboxClient, Signal, Support, Supports, Target,
    Workspace, collect,
    posix::{self, Launch},
};
use tokio::sync::{mpsc, watch};

use super::process::{signal_tree, start};

/// Marks must differ between all machines of this test program.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Nothing is held, so every limit is accepted and reported as not held.
const SUPPORTS: Supports = Supports::new(
    Isolation::None,
    &[
        Support::HostDirectories,
        Support::Ports,
        Support::NetworkOff,
        Support::NetworkHost,
        Support::Memory,
        Support::Cpus,
        Support::Disk,
        Support::Pids,
        Support::OpenFiles,
        Support::TmpSize,
    ],
);

/// Makes [`HostMachine`]s.
#[derive(Debug, Default)]
pub(crate) struct HostClient {
    tools: Option<PathBuf>,
    is_mute: bool,
    is_hosted: bool,
    machines: Mutex<HashMap<u64, Weak<HostMachine>>>,
}

impl HostClient {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn with_tools(tools: &Path) -> Self {
        Self { tools: Some(tools.to_owned()), ..Self::default() }
    }

    /// The same, with commands and files handled as clients of hosted services do: commands are text, files are uploaded.
    pub(crate) fn hosted(self) -> Self {
        Self { is_hosted: true, ..self }
    }

    /// Commands have neither terminals nor input.
    pub(crate) fn without_input() -> Self {
        Self { is_mute: true, ..Self::default() }
    }

    fn find(&self, handle: &MachineHandle) -> Option<Arc<HostMachine>> {
        self.machines.lock().get(&handle.state.as_u64()?)?.upgrade()
    }
}

#[async_trait]
impl SandboxClient for HostClient {
    fn id(&self) -> &'static str {
        "host"
    }

    async fn create(&self, spec: MachineSpec) -> Result<Arc<dyn Machine>> {
        let spec = spec.isolation(Demand::None);
        spec.refuse_unless(&SUPPORTS)?;
        let path = self.tools.as_ref().map_or_else(|| "/usr/bin:/bin".into(), |tools| tools.clone().into_os_string());
        let directory = tempfile::tempdir().unwrap();
        let (home, temporary) = (directory.path().join("home"), directory.path().join("workspace"));
        std::fs::create_dir(&home).unwrap();
        std::fs::create_dir(&temporary).unwrap();
        let workspace = match spec.workspace {
            Workspace::Temporary => temporary,
            Workspace::Host { path, .. } => path,
        };
        let mut env: HashMap<OsString, OsString> =
            [("PAGER", "cat"), ("NO_COLOR", "1"), ("LANG", "C.UTF-8")].map(|(k, v)| (k.into(), v.into())).into();
        env.extend([("PATH".into(), path), ("HOME".into(), home.into())]);
        env.extend(spec.env.into_iter().map(|(name, value)| (name.into(), value.into())));
        let mut features = Features::new(Isolation::None, MachinePath::new(&workspace).unwrap());
        (features.pty, features.stdin) = (!self.is_mute, !self.is_mute);
        let (name, stop) = (NEXT.fetch_add(1, Ordering::Relaxed), watch::Sender::new(false));
        let is_hosted = self.is_hosted;
        let machine = HostMachine { name, features, env, ports: spec.ports, stop, is_hosted, directory };
        let machine = Arc::new(machine);
        self.machines.lock().insert(name, Arc::downgrade(&machine));
        Ok(machine)
    }

    async fn attach(&self, handle: &MachineHandle) -> Result<Option<Arc<dyn Machine>>> {
        Ok(self.find(handle).map(|machine| machine as Arc<dyn Machine>))
    }

    async fn delete(&self, handle: &MachineHandle) -> Result<()> {
        let Some(machine) = self.find(handle) else { return Ok(()) };
        self.machines.lock().remove(&machine.name);
        machine.stop().await
    }
}

#[derive(Debug)]
pub(crate) struct HostMachine {
    name: u64,
    features: Features,
    env: HashMap<OsString, OsString>,
    ports: Vec<u16>,
    stop: watch::Sender<bool>,
    is_hosted: bool,
    directory: tempfile::TempDir,
}

impl HostMachine {
    fn alive(&self, user: Option<&String>) -> Result<()> {
        if *self.stop.borrow() {
            return Err(MachineError::Gone);
        }
        user.map_or(Ok(()), |_| Err(MachineError::Unsupported("run as another user")))
    }

    async fn upload(&self, target: &Target, data: ByteStream) -> Result<()> {
        let bytes = collect(data, 64 << 20).await?;
        let spool = self.directory.path().join(format!("spool-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        std::fs::write(&spool, bytes).unwrap();
        let placed = posix::place(self, target, &MachinePath::new(&spool).unwrap()).await;
        assert!(!spool.exists(), "the spool is gone, whatever happened");
        placed
    }

    fn mark(&self) -> String {
        format!("{}.{}.", std::process::id(), self.name)
    }

    fn start(&self, command: &Command, cwd: &Path) -> io::Result<Process> {
        // A terminal's session is made by a tool, as making it here would take unsafe code.
        let leader = command.tty.map_or(vec![], |_| vec!["setsid".into(), "--ctty".into()]);
        let argv: Vec<OsString> = leader.into_iter().chain(command.argv.iter().cloned()).collect();
        let mut prepared = tokio::process::Command::new(&argv[0]);
        prepared.args(&argv[1..]).env_clear().envs(&self.env).envs(command.env.iter().cloned()).current_dir(cwd);
        let mark = format!("{}{}.", self.mark(), NEXT.fetch_add(1, Ordering::Relaxed));
        start(command, prepared, mark, self.stop.subscribe())
    }
}

impl Drop for HostMachine {
    fn drop(&mut self) {
        signal_tree(&self.mark(), Signal::Kill);
    }
}

#[async_trait]
impl Machine for HostMachine {
    fn handle(&self) -> MachineHandle {
        MachineHandle { client: "host".to_owned(), state: self.name.into() }
    }

    fn features(&self) -> &Features {
        &self.features
    }

    fn ports(&self) -> Option<&dyn Ports> {
        Some(self)
    }

    async fn spawn(&self, command: Command) -> Result<Process> {
        self.alive(command.user.as_ref())?;
        if (command.stdin || command.tty.is_some()) && !self.features.stdin {
            return Err(MachineError::Unsupported("give a command input"));
        }
        if command.argv.is_empty() || command.argv.iter().any(|argument| argument.as_bytes().contains(&0)) {
            return Err(MachineError::invalid("the command", "has no program or a NUL"));
        }
        let cwd = command.cwd.clone().unwrap_or_else(|| self.features.workspace.clone());
        let found = std::fs::metadata(cwd.as_os_str()).map_err(|error| MachineError::from_io("enter", &cwd, error))?;
        if !found.is_dir() {
            return Err(MachineError::from_io("enter", &cwd, io::ErrorKind::NotADirectory.into()));
        }
        if self.is_hosted {
            let command = Command { cwd: Some(cwd), ..command };
            let Launch { argv, env, cwd } = posix::launch(&command, "tree")?;
            let argv = argv.into_iter().map(Into::into).collect();
            let env = env.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
            let text = Command { argv, env, joined: false, ..command };
            let cwd = cwd.unwrap_or_else(|| "/".to_owned());
            return Ok(self.start(&text, Path::new(&cwd)).unwrap());
        }
        self.start(&command, Path::new(cwd.as_os_str())).or_else(|error| Ok(stillborn(&command, &error)))
    }

    async fn read(&self, target: &Target) -> Result<ByteStream> {
        self.alive(target.user.as_ref())?;
        if self.is_hosted {
            return posix::read(self, target).await;
        }
        let fail = |error| MachineError::from_io("read", &target.path, error);
        beneath(target, Path::new(target.path.as_os_str()))?;
        let metadata = std::fs::metadata(target.path.as_os_str()).map_err(fail)?;
        if !metadata.is_file() {
            return Err(fail(io::ErrorKind::IsADirectory.into()));
        }
        // Read at once: this machine's files are small.
        let bytes = std::fs::read(target.path.as_os_str()).map_err(fail)?;
        Ok(Box::pin(stream::iter([Ok(Bytes::from(bytes))])))
    }

    async fn write(&self, target: &Target, mut data: ByteStream) -> Result<()> {
        self.alive(target.user.as_ref())?;
        if self.is_hosted {
            return self.upload(target, data).await;
        }
        if let Some(expected) = target.expected
            && !expected.is(posix::stat(self, target).await?.as_ref())
        {
            return Err(MachineError::Changed(target.path.clone()));
        }
        let fail = |error| MachineError::from_io("write", &target.path, error);
        let path = Path::new(target.path.as_os_str());
        let parent = path.parent().unwrap();
        beneath(target, parent)?;
        std::fs::create_dir_all(parent).map_err(fail)?;
        beneath(target, parent)?;
        let found = std::fs::symlink_metadata(path).ok();
        match found.as_ref().map(std::fs::Metadata::file_type) {
            Some(kind) if kind.is_symlink() => return Err(fail(io::ErrorKind::PermissionDenied.into())),
            Some(kind) if !kind.is_file() => return Err(fail(io::ErrorKind::IsADirectory.into())),
            _ => {}
        }
        let mut temporary = tempfile::NamedTempFile::new_in(parent).map_err(fail)?;
        while let Some(piece) = data.next().await {
            io::Write::write_all(&mut temporary, &piece?).map_err(fail)?;
        }
        let kept = found.map(|metadata| metadata.permissions().mode());
        let mode = target.mode.or(kept).unwrap_or(0o644) & 0o777;
        std::fs::set_permissions(temporary.path(), std::fs::Permissions::from_mode(mode)).map_err(fail)?;
        temporary.persist(path).map_err(|error| fail(error.error))?;
        Ok(())
    }

    async fn stop(&self) -> Result<()> {
        self.stop.send_replace(true);
        signal_tree(&self.mark(), Signal::Kill);
        Ok(())
    }
}

#[async_trait]
impl Ports for HostMachine {
    async fn open(&self, port: u16) -> Result<Endpoint> {
        if !self.ports.contains(&port) {
            return Err(MachineError::invalid(format!("port {port}"), "was not declared"));
        }
        // The network is the host's own.
        Endpoint::at(SocketAddr::from(([127, 0, 0, 1], port)))
    }
}

/// A process that never was, because its program could not be started.
fn stillborn(command: &Command, error: &io::Error) -> Process {
    let (output, receiver) = mpsc::channel(2);
    let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    let said = format!("{}: {error}\n", command.argv[0].display());
    output.try_send(Ok(Output::Stderr(said.into()))).unwrap();
    output.try_send(Ok(Output::Exit(Exit::code(code)))).unwrap();
    Process { id: None, stdin: None, control: mpsc::channel(1).0, output: receiver }
}

/// The nearest directory that exists must really be inside.
fn beneath(target: &Target, path: &Path) -> Result<()> {
    let Some(root) = &target.beneath else { return Ok(()) };
    let leaves = || MachineError::Denied { path: target.path.clone(), reason: "it leads out".to_owned() };
    let real = path.ancestors().find_map(|above| above.canonicalize().ok()).ok_or_else(leaves)?;
    let root = Path::new(root.as_os_str()).canonicalize().map_err(|_missing| leaves())?;
    if real.starts_with(root) { Ok(()) } else { Err(leaves()) }
}
