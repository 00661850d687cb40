//! The same guest, as PID 1 of a container of an empty image, over one attached stream: the protocol is not a local affair.
//!
//! The image holds nothing at all. What commands need comes from the host's `/usr`, mounted read-only; the guest is
//! uploaded before the start, as it will be into any image.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test")]

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use bollard::{
    Docker, body_full,
    container::LogOutput,
    models::{ContainerCreateBody, HostConfig, HostConfigLogConfig},
    query_parameters::{AttachContainerOptions, RemoveContainerOptions, UploadToContainerOptions},
};
use futures::{StreamExt, TryStreamExt, future::BoxFuture};
use sandbar_clients::{Farewell, GUEST, GuestMachine, GuestSetup};
use sandbar_machine::{
    Isolation, Lifetime, LimitReport, Machine, MachineError, MachineHandle, MachineSpec, Result, SandboxClient,
    conformance::{Group, promises},
};
use tokio_util::io::StreamReader;

const IMAGE: &str = "sandbar-test:empty";

/// Just enough of a client to start a guest in a container.
#[derive(Debug)]
struct Engine {
    docker: Docker,
    live: Mutex<BTreeMap<String, std::sync::Weak<GuestMachine>>>,
}

impl Engine {
    fn connect() -> Self {
        let docker = Docker::connect_with_local_defaults().expect("an engine: `cargo xtask setup` starts one");
        Self { docker, live: Mutex::default() }
    }

    async fn start(&self, spec: &MachineSpec) -> Result<GuestMachine, bollard::errors::Error> {
        let log = HostConfigLogConfig { typ: Some("none".to_owned()), config: None };
        let host = HostConfig {
            binds: Some(vec!["/usr:/usr:ro".to_owned()]),
            network_mode: Some("none".to_owned()),
            log_config: Some(log),
            ..HostConfig::default()
        };
        let body = ContainerCreateBody {
            image: Some(IMAGE.to_owned()),
            entrypoint: Some(vec!["/.sandbar/guest".to_owned(), "serve".to_owned()]),
            cmd: Some(Vec::new()),
            open_stdin: Some(true),
            stdin_once: Some(true),
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            host_config: Some(host),
            ..ContainerCreateBody::default()
        };
        let id = self.docker.create_container(None, body).await?.id;
        let gone = Gone { docker: self.docker.clone(), id: id.clone() };
        let root = UploadToContainerOptions { path: "/".to_owned(), ..UploadToContainerOptions::default() };
        self.docker.upload_to_container(&id, Some(root), body_full(root_archive().into())).await?;
        let attach =
            AttachContainerOptions { stream: true, stdin: true, stdout: true, ..AttachContainerOptions::default() };
        let stream = self.docker.attach_container(&id, Some(attach)).await?;
        self.docker.start_container(&id, None).await?;
        let output = stream.output.map_err(io::Error::other).try_filter_map(|piece| async move {
            Ok(if let LogOutput::StdOut { message } = piece { Some(message) } else { None })
        });
        let setup = GuestSetup {
            handle: MachineHandle { client: "container".to_owned(), state: id.clone().into() },
            isolation: Isolation::Container,
            limits: LimitReport::NONE,
            env: spec.env.clone(),
            ports: spec.ports.clone(),
            output_buffer: spec.limits.output_buffer,
            deadline: spec.limits.time,
        };
        let connected = GuestMachine::connect(StreamReader::new(output.boxed()), stream.input, setup).await;
        Ok(connected.expect("the guest says hello").farewell(gone))
    }
}

/// What the guest needs to find: itself, the places every machine has, and links to the host's programs.
fn root_archive() -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let header = |kind: tar::EntryType, mode: u32, size: usize| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size as u64);
        header
    };
    for (dir, mode) in [(".sandbar", 0o755), ("workspace", 0o755), ("home/agent", 0o755), ("tmp", 0o1777)] {
        let mut header = header(tar::EntryType::Directory, mode, 0);
        archive.append_data(&mut header, dir, io::empty()).expect("a directory");
    }
    let mut guest = header(tar::EntryType::Regular, 0o755, GUEST.len());
    archive.append_data(&mut guest, ".sandbar/guest", GUEST).expect("the guest");
    for (link, target) in [("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64"), ("sbin", "usr/sbin")] {
        let mut header = header(tar::EntryType::Symlink, 0o777, 0);
        archive.append_link(&mut header, link, target).expect("a link");
    }
    archive.into_inner().expect("an archive")
}

/// Removes the container when its machine stops, or is forgotten.
struct Gone {
    docker: Docker,
    id: String,
}

impl Farewell for Gone {
    fn wait(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let force = RemoveContainerOptions { force: true, v: true, ..RemoveContainerOptions::default() };
            match self.docker.remove_container(&self.id, Some(force)).await {
                Ok(()) | Err(bollard::errors::Error::DockerResponseServerError { status_code: 404 | 409, .. }) => {
                    Ok(())
                }
                Err(error) => Err(MachineError::transport("remove the container", error)),
            }
        })
    }
}

#[async_trait]
impl SandboxClient for Engine {
    fn id(&self) -> &'static str {
        "container"
    }

    async fn create(&self, spec: MachineSpec) -> Result<Arc<dyn Machine>> {
        if spec.lifetime == Lifetime::Detached {
            return Err(MachineError::Unsupported("keep machines beyond this process"));
        }
        let machine =
            Arc::new(self.start(&spec).await.map_err(|error| MachineError::transport("start the container", error))?);
        let id = machine.handle().state.as_str().unwrap_or_default().to_owned();
        self.live.lock().expect("unpoisoned").insert(id, Arc::downgrade(&machine));
        Ok(machine)
    }

    async fn attach(&self, handle: &MachineHandle) -> Result<Option<Arc<dyn Machine>>> {
        let id = handle.state.as_str().unwrap_or_default();
        let live = self.live.lock().expect("unpoisoned").get(id).and_then(std::sync::Weak::upgrade);
        Ok(live.filter(|machine| !machine.is_gone()).map(|machine| machine as Arc<dyn Machine>))
    }

    async fn delete(&self, handle: &MachineHandle) -> Result<()> {
        if let Some(machine) = self.attach(handle).await? {
            machine.stop().await?;
        }
        let id = handle.state.as_str().unwrap_or_default().to_owned();
        Gone { docker: self.docker.clone(), id }.wait().await
    }
}

/// Promises that are about more than the protocol, and why each is left to the client that will be made for engines.
const LEFT_OUT: &[(&str, &str)] = &[("features_tell_the_truth", "it demands the local level `full`")];

async fn keep(groups: &[Group]) {
    let client = Engine::connect();
    let mut kept = 0;
    for promise in promises() {
        if groups.contains(&promise.group) && !LEFT_OUT.iter().any(|(name, _)| *name == promise.name) {
            println!("{}", promise.name);
            promise.check(&client).await;
            kept += 1;
        }
    }
    println!("{kept} promises kept");
    assert!(kept > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_run_in_a_container() {
    keep(&[Group::Processes, Group::Terminals]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_and_ports_work_in_a_container() {
    keep(&[Group::Files, Group::Ports]).await;
}
