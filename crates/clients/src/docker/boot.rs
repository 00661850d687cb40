//! How a machine comes up in a container: create, upload, attach, start, and wait for the guest or its reason.

use std::{io, sync::PoisonError};

use bollard::{body_stream, query_parameters::UploadToContainerOptions};
use futures::stream;
use sandbar_guest::protocol::{BootFailure, Launch};
use sandbar_machine::{MachineError, Result};

use super::{
    Docker,
    attach::{self, Words},
    container::Container,
    image::Image,
    upload::{Root, Upload, upload},
    users::Who,
};
use crate::{GuestMachine, GuestSetup};

/// What is known of a machine before its container runs.
pub(super) struct Boot<'a> {
    pub(super) client: &'a Docker,
    pub(super) docker: &'a bollard::Docker,
    pub(super) image: &'a Image,
    pub(super) user: &'a str,
    pub(super) launch: Launch,
}

impl Boot<'_> {
    /// Starts the guest in a container that was made for it.
    pub(super) async fn start(self, container: &mut Container, setup: GuestSetup) -> Result<GuestMachine> {
        let Self { client, docker, image, user, mut launch } = self;
        let accounts = client.accounts(docker, image, &container.name).await?;
        let who = accounts.find(user)?;
        launch.owner = (client.options.read_only && who != Who::ROOT).then_some((who.uid, who.gid));
        let root = if client.options.read_only { Root::ReadOnly } else { Root::Writable(accounts.completed(who)) };
        let Upload { to, pieces } = upload(launch.encode(), who, launch.workspace.is_none(), root);
        let to = UploadToContainerOptions { path: to.to_owned(), ..UploadToContainerOptions::default() };
        let body = body_stream(stream::iter(pieces));
        client.engine.ask("take the guest", docker.upload_to_container(&container.name, Some(to), body)).await?;
        let attached =
            client.engine.within("attach to the container", attach::attach(&client.engine.address, &container.name));
        let attached = attached.await?.map_err(|error| client.engine.failed("attach to the container", error))?;
        container.hold(attached.line);
        client.engine.ask("start the container", docker.start_container(&container.name, None)).await?;
        let connected = GuestMachine::connect(attached.output, attached.input, setup).await;
        connected.map_err(|error| explain(error, &attached.words))
    }
}

/// The guest's own reason where it gave one, else what was seen from here.
fn explain(error: MachineError, words: &Words) -> MachineError {
    let words = words.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(failure) = BootFailure::decode(&words) else {
        let said: String =
            String::from_utf8_lossy(&words).chars().filter(|letter| !letter.is_control()).take(500).collect();
        let source = if said.is_empty() { error.into() } else { said.into() };
        return MachineError::Start { stage: "waiting for the guest".to_owned(), source };
    };
    if !failure.missing.is_empty() {
        let fix = format!("{}, or give up the walls inside with InnerWalls::EngineOnly", failure.fix);
        return MachineError::Isolation { missing: failure.missing, fix };
    }
    MachineError::Start { stage: failure.stage, source: io::Error::from_raw_os_error(failure.errno).into() }
}
