//! A machine that is a temporary directory and ordinary processes: only the six required methods.

use std::{
    collections::HashMap,
    ffi::OsString,
    io,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use sandbar_machine::{
    ByteStream, Command, Control, Exit, ExitReason, Features, Isolation, LimitReport, Machine, MachineError,
    MachineHandle, MachinePath, MachineSpec, Output, Process, Result, SandboxClient, Signal, Target, Workspace,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::Child,
    sync::mpsc,
};

/// Makes [`HostMachine`]s.
#[derive(Debug, Default)]
pub(crate) struct HostClient {
    tools: Option<PathBuf>,
    machines: Mutex<HashMap<u64, Arc<HostMachine>>>,
    next: AtomicU64,
}

impl HostClient {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn with_tools(tools: &Path) -> Self {
        Self { tools: Some(tools.to_owned()), ..Self::default() }
    }
}

#[async_trait]
impl SandboxClient for HostClient {
    fn id(&self) -> &'static str {
        "host"
    }

    async fn create(&self, spec: MachineSpec) -> Result<Arc<dyn Machine>> {
        if spec.workspace != Workspace::Temporary {
            return Err(MachineError::Unsupported("use a directory of the host"));
        }
        let path = self.tools.as_ref().map_or_else(|| "/usr/bin:/bin".into(), |tools| tools.clone().into_os_string());
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("home");
        std::fs::create_dir_all(&home).unwrap();
        std::fs::create_dir(directory.path().join("workspace")).unwrap();
        let mut env: HashMap<OsString, OsString> =
            [("PAGER", "cat"), ("NO_COLOR", "1"), ("LANG", "C.UTF-8")].map(|(k, v)| (k.into(), v.into())).into();
        env.extend([("PATH".into(), path), ("HOME".into(), home.into())]);
        env.extend(spec.env.into_iter().map(|(name, value)| (name.into(), value.into())));
        let name = self.next.fetch_add(1, Ordering::Relaxed);
        let machine = Arc::new(HostMachine { name, directory, env, stopped: AtomicBool::new(false), stop: stop() });
        self.machines.lock().unwrap().insert(name, machine.clone());
        Ok(machine)
    }

    async fn attach(&self, handle: &MachineHandle) -> Result<Option<Arc<dyn Machine>>> {
        let found = self.machines.lock().unwrap().get(&handle.state.as_u64().unwrap()).cloned();
        Ok(found.map(|machine| machine as Arc<dyn Machine>))
    }

    async fn delete(&self, handle: &MachineHandle) -> Result<()> {
        let found = self.machines.lock().unwrap().remove(&handle.state.as_u64().unwrap());
        match found {
            Some(machine) => machine.stop().await,
            None => Ok(()),
        }
    }
}

fn stop() -> tokio::sync::watch::Sender<bool> {
    tokio::sync::watch::Sender::new(false)
}

#[derive(Debug)]
pub(crate) struct HostMachine {
    name: u64,
    directory: tempfile::TempDir,
    env: HashMap<OsString, OsString>,
    stopped: AtomicBool,
    stop: tokio::sync::watch::Sender<bool>,
}

impl HostMachine {
    fn alive(&self, user: Option<&String>) -> Result<()> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(MachineError::Gone);
        }
        user.map_or(Ok(()), |_| Err(MachineError::Unsupported("run as another user")))
    }

    fn child(&self, command: &Command, cwd: &Path) -> io::Result<Child> {
        let mut child = tokio::process::Command::new(&command.argv[0]);
        child.args(&command.argv[1..]).env_clear().envs(&self.env).envs(command.env.iter().cloned()).current_dir(cwd);
        let stdin = if command.stdin { Stdio::piped() } else { Stdio::null() };
        child.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn()
    }
}

#[async_trait]
impl Machine for HostMachine {
    fn handle(&self) -> MachineHandle {
        MachineHandle { client: "host".to_owned(), state: self.name.into() }
    }

    fn features(&self) -> Features {
        Features {
            isolation: Isolation::None,
            layers: Vec::new(),
            pty: false,
            stdin: true,
            users: false,
            ports: false,
            snapshot: false,
            workspace: MachinePath::new(self.directory.path().join("workspace")).unwrap(),
            limits: LimitReport::NONE,
        }
    }

    async fn spawn(&self, command: Command) -> Result<Process> {
        self.alive(command.user.as_ref())?;
        if command.tty.is_some() {
            return Err(MachineError::Unsupported("give a command a terminal"));
        }
        if command.argv.is_empty() || command.argv.iter().any(|argument| argument.as_bytes().contains(&0)) {
            return Err(MachineError::invalid("the command", "has no program or a NUL"));
        }
        let cwd = command.cwd.clone().unwrap_or_else(|| self.features().workspace);
        let found = std::fs::metadata(cwd.as_os_str()).map_err(|error| MachineError::from_io("enter", &cwd, error))?;
        if !found.is_dir() {
            return Err(MachineError::from_io("enter", &cwd, io::ErrorKind::NotADirectory.into()));
        }
        let (output, receiver) = mpsc::channel(16);
        let (control, requests) = mpsc::channel(16);
        match self.child(&command, Path::new(cwd.as_os_str())) {
            Ok(mut child) => {
                let stdin = child.stdin.take().map(feed);
                tokio::spawn(attend(child, command, requests, output, self.stop.subscribe()));
                Ok(Process { stdin, control, output: receiver })
            }
            Err(error) => {
                let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
                let said = format!("{}: {error}\n", command.argv[0].display());
                output.try_send(Ok(Output::Stderr(said.into()))).unwrap();
                output.try_send(Ok(Output::Exit(Exit::code(code)))).unwrap();
                Ok(Process { stdin: None, control, output: receiver })
            }
        }
    }

    async fn read(&self, target: &Target) -> Result<ByteStream> {
        self.alive(target.user.as_ref())?;
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
        self.stopped.store(true, Ordering::Relaxed);
        self.stop.send_replace(true);
        Ok(())
    }
}

/// The nearest directory that exists must really be inside.
fn beneath(target: &Target, path: &Path) -> Result<()> {
    let Some(root) = &target.beneath else { return Ok(()) };
    let leaves = || MachineError::Denied { path: target.path.clone(), reason: "it leads out".to_owned() };
    let real = path.ancestors().find_map(|above| above.canonicalize().ok()).ok_or_else(leaves)?;
    let root = Path::new(root.as_os_str()).canonicalize().map_err(|_missing| leaves())?;
    if real.starts_with(root) { Ok(()) } else { Err(leaves()) }
}

fn feed(mut stdin: tokio::process::ChildStdin) -> mpsc::Sender<Bytes> {
    let (sender, mut receiver) = mpsc::channel::<Bytes>(4);
    tokio::spawn(async move {
        while let Some(piece) = receiver.recv().await {
            if stdin.write_all(&piece).await.is_err() {
                return;
            }
        }
    });
    sender
}

type Outputs = mpsc::Sender<Result<Output>>;

async fn pump(mut from: impl AsyncRead + Unpin, to: Outputs, wrap: fn(Bytes) -> Output) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if to.send(Ok(wrap(Bytes::copy_from_slice(&buffer[..read])))).await.is_err() {
            return;
        }
    }
}

fn signal_group(pid: u32, signal: Signal) {
    let number = format!("-{}", signal.number());
    let _dead_already = std::process::Command::new("kill").args([&number, "--", &format!("-{pid}")]).output();
}

async fn stopped(stop: &mut tokio::sync::watch::Receiver<bool>) {
    let _dropped_is_stopped = stop.wait_for(|stop| *stop).await;
}

async fn attend(
    mut child: Child,
    command: Command,
    mut control: mpsc::Receiver<Control>,
    output: Outputs,
    mut stop: tokio::sync::watch::Receiver<bool>,
) {
    let pid = child.id().unwrap();
    let out = tokio::spawn(pump(child.stdout.take().unwrap(), output.clone(), Output::Stdout));
    let err = tokio::spawn(pump(child.stderr.take().unwrap(), output.clone(), Output::Stderr));
    let deadline = tokio::time::sleep(command.deadline.unwrap_or(std::time::Duration::from_secs(1 << 20)));
    tokio::pin!(deadline);
    let mut late = false;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status.unwrap(),
            () = &mut deadline, if !late => { late = true; signal_group(pid, Signal::Kill); }
            () = stopped(&mut stop) => { signal_group(pid, Signal::Kill); break child.wait().await.unwrap() }
            request = control.recv() => match request {
                Some(Control::Signal(signal)) => signal_group(pid, signal),
                Some(Control::Resize(_)) => {}
                None => { signal_group(pid, Signal::Kill); break child.wait().await.unwrap() }
            },
        }
    };
    // What the command itself wrote is in the pipes already; children may hold them open for as long as they like.
    let quiet = std::time::Duration::from_millis(500);
    let _still_open = tokio::time::timeout(quiet, async { (out.await, err.await) }).await;
    let _caller_gone = output.send(Ok(Output::Exit(exit(status, late)))).await;
}

fn exit(status: ExitStatus, late: bool) -> Exit {
    let reason = match (late, status.signal()) {
        (true, _) => ExitReason::Deadline,
        (false, Some(_)) => ExitReason::Signaled,
        (false, None) => ExitReason::Exited,
    };
    Exit { code: status.code().or(status.signal().map(|number| 128 + number)).unwrap(), reason }
}
