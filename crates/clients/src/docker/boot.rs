//! Boot of a machine in a container: create, upload, attach, start, then wait for the guest or for its error.

use std::io;

use bollard::{body_stream, query_parameters::UploadToContainerOptions};
use futures::{future::try_join_all, stream};
use sandbar_guest::protocol::{BootFailure, LET_GO, Launch};
use sandbar_machine::{MachineError, Recorder, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    Docker,
    attach::{self, Attached, Stderr},
    container::Container,
    image::Image,
    upload::{Root, Upload, Workspace, uploads},
    users::{UserIds, is_root},
};
use crate::{GuestMachine, GuestSetup};

/// What is known about a machine before its container runs.
pub(super) struct Boot<'a> {
    pub(super) client: &'a Docker,
    pub(super) docker: &'a bollard::Docker,
    pub(super) image: &'a Image,
    pub(super) user: &'a str,
    pub(super) launch: Launch,
}

impl Boot<'_> {
    /// Starts the guest in its container. A machine that outlives this process is detached once it is recorded.
    pub(super) async fn start(
        mut self,
        container: &mut Container,
        setup: GuestSetup,
        record: &Recorder<'_>,
    ) -> Result<GuestMachine> {
        self.fill(&container.name).await?;
        let Self { client, docker, launch, .. } = self;
        let engine = &client.engine;
        let attached = engine.within("attach to the container", attach::attach(&engine.address, &container.name));
        let attached = attached.await?.map_err(|error| engine.failed("attach to the container", error))?;
        let Attached { mut input, mut output, stderr, line } = attached;
        container.hold(line);
        engine.ask("start the container", docker.start_container(&container.name, None)).await?;
        let message = launch.encode_framed().map_err(|error| engine.failed("take the machine's description", error))?;
        let told = async {
            // A guest that is already gone has sent its error, or nothing; both are handled below.
            input.write_all(&message).await?;
            input.flush().await?;
            if launch.detached.is_some() {
                output.read_exact(&mut [0]).await?;
            }
            io::Result::Ok(())
        };
        let mut told = engine.within("start the guest", told).await?;
        if told.is_ok() {
            record(&setup.handle)?;
            if launch.detached.is_some() {
                let let_go = async {
                    input.write_all(&[LET_GO]).await?;
                    input.flush().await
                };
                told = engine.within("start the guest", let_go).await?;
            }
        }
        if let Err(error) = told {
            let _rest = engine.within("say why", output.read_to_end(&mut Vec::new())).await;
            return Err(explain(MachineError::transport("start it", error), &stderr));
        }
        let connected = GuestMachine::connect(output, input, setup).await;
        connected.map_err(|error| explain(error, &stderr))
    }

    /// Copies everything into the container that must exist before it runs.
    async fn fill(&mut self, container: &str) -> Result<()> {
        let Self { client, docker, image, user, launch } = self;
        let accounts = client.accounts(docker, image, container).await?;
        let who = accounts.find(user)?;
        if who.uid == 0 && client.options.user.is_none() && !is_root(user) {
            let reason = "is root by another name; name the user that commands shall run as";
            return Err(MachineError::invalid(format!("the image's user {user:?}"), reason));
        }
        let merged = accounts.merged(who, &launch.accounts)?;
        let root = if client.options.read_only { Root::ReadOnly } else { Root::Writable };
        launch.owner =
            (merged.are_many || root == Root::ReadOnly && who != UserIds::ROOT).then_some((who.uid, who.gid));
        let workspace = if launch.workspace.is_none() { Workspace::Own } else { Workspace::Hosts };
        let sent = uploads(root, who, workspace, &merged).into_iter().map(|Upload { to, pieces }| {
            let to = UploadToContainerOptions { path: to.to_owned(), ..UploadToContainerOptions::default() };
            let body = body_stream(stream::iter(pieces));
            client.engine.ask("take the guest", docker.upload_to_container(container, Some(to), body))
        });
        try_join_all(sent).await.map(drop)
    }
}

/// The guest's own error if it sent one, otherwise the error that was seen here.
fn explain(error: MachineError, stderr: &Stderr) -> MachineError {
    let stderr = stderr.lock();
    let Ok(failure) = BootFailure::decode(&stderr) else {
        let text: String =
            String::from_utf8_lossy(&stderr).chars().filter(|letter| !letter.is_control()).take(500).collect();
        let source = if text.is_empty() { error.into() } else { text.into() };
        return MachineError::Start { stage: "waiting for the guest".to_owned(), source };
    };
    if !failure.missing.is_empty() {
        let fix = format!("{}, or give up the walls inside with InnerWalls::EngineOnly", failure.fix);
        return MachineError::Isolation { missing: failure.missing, fix };
    }
    MachineError::Start { stage: failure.stage, source: io::Error::from_raw_os_error(failure.errno).into() }
}
