//! A provider whose machines are directories of this host, without isolation.

use std::{collections::BTreeMap, path::Path, process::Stdio, sync::Arc, sync::atomic};

use sandbar::{
    client::registry::{ClientContext, Provider},
    machine::{
        ByteStream, Bytes, Features, MachineHandle, NEUTRAL_ENVIRONMENT, Result, Support, Supports, posix,
        remote::{self, Gone, RemoteCommand},
    },
    prelude::*,
};
use tokio::{io::AsyncRead, io::AsyncReadExt as _, process::Command as Program, sync::mpsc, sync::mpsc::Sender};

const SUPPORTS: Supports = Supports::new(Isolation::None, &[Support::NetworkHost]);

#[derive(Debug)]
pub(crate) struct Toy;

impl Provider for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }
    fn summary(&self) -> &'static str {
        "directories of this host, without isolation"
    }
    fn supports(&self) -> &'static Supports {
        &SUPPORTS
    }
    fn client(&self, _argument: Option<&str>, _context: &ClientContext) -> Result<Arc<dyn SandboxClient>> {
        Ok(Arc::new(Self))
    }
}

#[async_trait]
impl SandboxClient for Toy {
    fn id(&self) -> &'static str {
        "toy"
    }
    async fn create(&self, spec: MachineSpec) -> Result<Arc<dyn Machine>> {
        spec.refuse_unless(&SUPPORTS)?;
        let made = tempfile::tempdir().map_err(|error| MachineError::transport("create the machine", error))?;
        let features = Features::new(Isolation::None, MachinePath::new(made.path())?);
        Ok(Arc::new(ToyMachine { features, env: spec.env, started: 0.into(), gone: Gone::default(), made }))
    }
    async fn attach(&self, _handle: &MachineHandle) -> Result<Option<Arc<dyn Machine>>> {
        Ok(None)
    }
    async fn delete(&self, _handle: &MachineHandle) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct ToyMachine {
    features: Features,
    env: BTreeMap<String, String>,
    started: atomic::AtomicU32,
    gone: Gone,
    made: tempfile::TempDir,
}

#[async_trait]
impl Machine for ToyMachine {
    fn handle(&self) -> MachineHandle {
        MachineHandle { client: "toy".to_owned(), state: self.features.workspace.to_string().into() }
    }
    fn features(&self) -> &Features {
        &self.features
    }
    async fn spawn(&self, command: Command) -> Result<Process> {
        self.gone.check()?;
        self.features.refuse_lacking(&command)?;
        let tree = format!("{}-{}", self.features.workspace, self.started.fetch_add(1, atomic::Ordering::Relaxed));
        let launch = posix::launch(&command, &tree)?;
        let (home, mut program) = (self.made.path(), Program::new("env"));
        program.arg("--").args(launch.argv).current_dir(launch.cwd.as_deref().map_or(home, Path::new));
        program.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home).envs(NEUTRAL_ENVIRONMENT);
        program.envs(&self.env).envs(launch.env).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = program.spawn().map_err(|error| MachineError::transport("start the command", error))?;
        let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else { return Err(MachineError::Gone) };
        let (sender, events) = mpsc::channel(16);
        tokio::spawn(async move {
            tokio::join!(pump(out, Output::Stdout, &sender), pump(err, Output::Stderr, &sender));
            let ended = child.wait().await.map_err(|error| MachineError::transport("follow the command", error));
            let _gone = sender.send(ended.map(|status| Output::Exit(status.into()))).await;
        });
        Ok(remote::process(&command, ToyCommand(tree), remote::received(events), &self.gone))
    }
    async fn read(&self, target: &Target) -> Result<ByteStream> {
        posix::read(self, target).await
    }
    async fn write(&self, target: &Target, data: ByteStream) -> Result<()> {
        let fail = |error| MachineError::from_io("write", &target.path, error);
        let spool = tempfile::NamedTempFile::new().map_err(fail)?.into_temp_path();
        tokio::fs::write(&spool, collect(data, 64 << 20).await?).await.map_err(fail)?;
        posix::place(self, target, &MachinePath::new(&*spool)?).await
    }
    async fn stop(&self) -> Result<()> {
        self.gone.set();
        Ok(())
    }
}

/// A command and its descendants, found by a variable in their environment.
struct ToyCommand(String);

impl RemoteCommand for ToyCommand {
    async fn signal(&self, signal: Signal) -> Result<()> {
        let sent = Program::new("env").args(posix::signal_tree(&self.0, signal).argv).status().await;
        sent.map(|_status| ()).map_err(|error| MachineError::transport("signal the command", error))
    }
}

async fn pump<R: AsyncRead + Unpin>(mut pipe: R, wrap: fn(Bytes) -> Output, to: &Sender<Result<Output>>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        let _gone = to.send(Ok(wrap(Bytes::copy_from_slice(&buffer[..count])))).await;
    }
}
