//! The Docker client: creates machines and finds those that live.

use std::{
    collections::{BTreeMap, HashMap},
    os::unix::fs::MetadataExt,
    sync::{Arc, Weak},
};

use async_trait::async_trait;
use bollard::models::SystemInfo;
use parking_lot::Mutex;
use sandbar_guest::protocol::{Launch, Level};
use sandbar_machine::{
    Enforcement, Isolation, Lifetime, LimitReport, Limits, Machine, MachineError, MachineHandle, MachineSpec, Recorder,
    Result, SandboxClient, Support, Supports, Workspace,
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::{
    Docker, InnerWalls,
    boot::Boot,
    container::{self, Container},
    detached::{DetachedHandle, EngineRef, check_bound},
    image::Image,
    labels,
    plan::{self, PlanInput},
    users::{Accounts, UserChoice},
};
use crate::{
    GuestMachine, GuestSetup,
    detached::{Listening, detached_launch},
    guest::check_variable,
    launch::launch as check_launch,
    random::{hex, random_bytes},
};

pub(super) const ID: &str = "docker";
/// What containers support. The host's network becomes the engine's bridge, because an engine cannot share more of it.
pub(super) const SUPPORTS: Supports = Supports::new(
    Isolation::Container,
    &[
        Support::Time,
        Support::HostDirectories,
        Support::Users,
        Support::Ports,
        Support::Detached,
        Support::NetworkOff,
        Support::NetworkOpen,
        Support::NetworkHost,
        Support::Memory,
        Support::Cpus,
        Support::Disk,
        Support::Pids,
        Support::OpenFiles,
        Support::TmpSize,
    ],
);
/// Prefix of the names of containers.
const PREFIX: &str = "sandbar-";

/// What the clones of a client share.
#[derive(Default)]
pub(super) struct Shared {
    live: Mutex<HashMap<String, Weak<GuestMachine>>>,
    docker: OnceCell<(bollard::Docker, SystemInfo)>,
    accounts: Mutex<HashMap<String, Arc<Accounts>>>,
    /// Id of the image that was built.
    pub(super) built: OnceCell<String>,
}

impl Docker {
    /// The connection to the engine and its description; both are requested once.
    async fn reach(&self) -> Result<&(bollard::Docker, SystemInfo)> {
        let asked = self.shared.docker.get_or_try_init(|| async {
            let docker = self.engine.connect()?;
            let info = self.engine.ask("describe itself", docker.info()).await?;
            Ok((docker, info))
        });
        asked.await
    }

    /// The engine in the form that detached machines need.
    async fn engine_ref(&self) -> Result<EngineRef<'_>> {
        let (docker, info) = self.reach().await?;
        Ok(EngineRef { engine: &self.engine, docker, id: info.id.as_deref().unwrap_or_default() })
    }

    /// Refuses a specification that no container could fulfil.
    fn check(&self, spec: &MachineSpec) -> Result<()> {
        spec.refuse_unless(&SUPPORTS)?;
        spec.accounts.check()?;
        let has_walls = self.options.walls == InnerWalls::Required;
        if spec.lifetime != Lifetime::WithOwner && !has_walls {
            let missing = "the walls inside, without which commands could take over the door of a detached machine";
            let fix = "leave InnerWalls::Required as it is, or let the machine end with its maker";
            return Err(MachineError::Isolation { missing: missing.to_owned(), fix: fix.to_owned() });
        }
        match (spec.accounts.more_than_one(), &self.options.user) {
            (Some(_), Some(user)) => spec.accounts.check_alone(
                "a guest that starts as root, to run each command as its own user",
                &format!("leave out the user {user:?} of the container, or remove users and groups"),
            ),
            (Some(_), None) if !has_walls => {
                spec.accounts.check_alone("the walls inside", "leave InnerWalls::Required as it is")
            }
            _ => Ok(()),
        }
    }

    /// The guest's launch message. The paths are checked here, and again by the guest.
    fn launch(&self, spec: &MachineSpec, info: &SystemInfo) -> Result<Launch> {
        let shows = matches!(spec.workspace, Workspace::Host { .. }) || !spec.mounts.is_empty();
        if shows && self.engine.socket().is_none() {
            let reason = "the engine is reached over the network and may be on another host; copy the files in instead";
            return Err(MachineError::invalid("directories of this host", reason));
        }
        let mut launch = check_launch(spec, Level::Full)?;
        launch.level = match self.options.walls {
            InnerWalls::Required => Level::Full,
            InnerWalls::EngineOnly => Level::None,
        };
        // The guest need not watch limits that the engine enforces.
        launch.cpus = None;
        launch.memory = match info.memory_limit {
            Some(true) => None,
            _ => Some(spec.limits.memory.unwrap_or(self.options.memory)),
        };
        let own_kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        if info.kernel_version.as_ref() != Some(&own_kernel) {
            // An engine in a virtual machine shows the same files with other inode numbers.
            let workspace = launch.workspace.iter_mut().map(|(host, _)| host);
            for host in workspace.chain(launch.mounts.iter_mut().map(|mount| &mut mount.host)) {
                (host.device, host.inode) = (0, 0);
            }
        }
        Ok(launch)
    }

    pub(super) async fn accounts(
        &self,
        docker: &bollard::Docker,
        image: &Image,
        container: &str,
    ) -> Result<Arc<Accounts>> {
        if let Some(known) = self.shared.accounts.lock().get(&image.id) {
            return Ok(known.clone());
        }
        let read = Arc::new(Accounts::read(&self.engine, docker, container).await?);
        self.shared.accounts.lock().insert(image.id.clone(), read.clone());
        Ok(read)
    }

    /// The part of a specification that the host side needs.
    fn setup(&self, spec: MachineSpec, image: &Image, info: &SystemInfo, state: Value) -> Result<GuestSetup> {
        let mut env = BTreeMap::new();
        for (name, value) in image.env.iter().filter_map(|variable| variable.split_once('=')) {
            // The machine's user, and so its home, differs from the image's.
            if name != "HOME" && check_variable(name.as_ref(), value.as_ref()).is_ok() {
                env.insert(name.to_owned(), value.to_owned());
            }
        }
        for (name, value) in &self.options.env {
            check_variable(name.as_ref(), value.as_ref())?;
        }
        env.extend(self.options.env.clone());
        env.extend(spec.env);
        if self.options.ports.contains(&0) {
            return Err(MachineError::invalid("port 0", "is not a port; use 1 to 65535"));
        }
        let mut ports = spec.ports;
        ports.extend(&self.options.ports);
        ports.sort_unstable();
        ports.dedup();
        Ok(GuestSetup {
            handle: MachineHandle { client: ID.to_owned(), state },
            isolation: Isolation::Container,
            limits: self.report(info, &spec.limits),
            env,
            ports,
            output_buffer: spec.limits.output_buffer,
            deadline: spec.limits.time,
        })
    }

    /// How strongly this engine enforces each limit; the guest adds what it watches itself.
    fn report(&self, info: &SystemInfo, limits: &Limits) -> LimitReport {
        let held = |can: Option<bool>| if can == Some(true) { Enforcement::Hard } else { Enforcement::Unavailable };
        let mut report = LimitReport::NONE;
        report.pids = held(info.pids_limit);
        report.memory = held(info.memory_limit);
        report.cpu = held(info.cpu_cfs_quota.map(|can| can && (limits.cpus.is_some() || self.options.cpus.is_some())));
        for hard in [&mut report.open_files, &mut report.core, &mut report.tmp, &mut report.time] {
            *hard = Enforcement::Hard;
        }
        report
    }

    /// Name of the container in a handle.
    fn named<'a>(&self, handle: &'a MachineHandle) -> Result<&'a str> {
        let bad = |reason: &str| Err(MachineError::invalid("handle", reason));
        if handle.client != ID {
            return bad(&format!("belongs to the client {:?}, not to {ID:?}", handle.client));
        }
        let name = handle.state.get("container").and_then(|name| name.as_str());
        match name.filter(|name| is_ours(name)) {
            Some(name) => Ok(name),
            None => bad("is not one of a Docker machine"),
        }
    }

    fn held(&self, name: &str) -> Option<Arc<GuestMachine>> {
        self.shared.live.lock().get(name).and_then(Weak::upgrade).filter(|machine| !machine.is_gone())
    }

    fn remember(&self, name: String, machine: &Arc<GuestMachine>) {
        let mut live = self.shared.live.lock();
        live.retain(|_, machine| machine.strong_count() > 0);
        live.insert(name, Arc::downgrade(machine));
    }

    async fn make(&self, spec: MachineSpec, record: &Recorder<'_>) -> Result<Arc<dyn Machine>> {
        self.check(&spec)?;
        let (docker, info) = self.reach().await?;
        let mut launch = self.launch(&spec, info)?;
        let image = self.find_image(docker).await?;
        let session = hex(&random_bytes::<8>().map_err(|error| self.engine.failed("name a container", error))?);
        let name = format!("{PREFIX}{session}");
        launch.id = session.clone().into_bytes();
        let detached = match spec.lifetime {
            Lifetime::WithOwner => None,
            _ => Some(DetachedHandle::new(self.engine_ref().await?, &name)?),
        };
        let owner = launch.workspace.as_ref().and_then(|(host, _)| {
            let path: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(&host.path);
            std::fs::symlink_metadata(path).ok().map(|found| (found.uid(), found.gid()))
        });
        let choice = UserChoice::new(self.options.user.as_deref(), owner, &image.user);
        let input = PlanInput {
            engine: &self.engine,
            options: &self.options,
            spec: &spec,
            launch: &launch,
            image: &image,
            user: &choice,
            labels: labels::owned(
                &session,
                detached.as_ref().map(|detached| detached.seal.as_str()),
                self.options.register.as_deref(),
            ),
        };
        let body = plan::body(input)?;
        let state = detached.as_ref().map_or_else(|| Ok(json!({ "container": name })), DetachedHandle::state)?;
        let lifetime = spec.lifetime;
        let setup = self.setup(spec, &image, info, state)?;
        if detached.is_some() {
            // The engine retains a container that was created and never started, also if this process is killed.
            record(&setup.handle)?;
        }
        if let Some(detached) = &detached {
            launch.detached = Some(detached_launch(detached.nonce()?, &setup, Listening::Possible, lifetime)?);
        }
        let platform = self.options.platform.as_deref();
        let mut container = Container::make(&self.engine, docker, name.clone(), platform, body).await?;
        let boot = Boot { client: self, docker, image: &image, user: choice.text(), launch };
        let machine = match boot.start(&mut container, setup, record).await {
            Ok(machine) if detached.is_some() => return Ok(Arc::new(machine.teardown(container.let_go()))),
            Ok(machine) => Arc::new(machine.teardown(container)),
            Err(error) => {
                // Waits for the removal, so that nothing remains when the caller sees the error. The first error is the
                // more important one.
                let _lesser = container.remove().await;
                return Err(error);
            }
        };
        self.remember(name, &machine);
        Ok(machine)
    }
}

#[async_trait]
impl SandboxClient for Docker {
    fn id(&self) -> &'static str {
        ID
    }

    async fn create(&self, spec: MachineSpec) -> Result<Arc<dyn Machine>> {
        self.make(spec, &|_handle| Ok(())).await
    }

    async fn create_recorded(&self, spec: MachineSpec, record: &Recorder<'_>) -> Result<Arc<dyn Machine>> {
        self.make(spec, record).await
    }

    async fn attach(&self, handle: &MachineHandle) -> Result<Option<Arc<dyn Machine>>> {
        let name = self.named(handle)?;
        let found = match DetachedHandle::of(&handle.state)? {
            Some(detached) => detached.attach(self.engine_ref().await?, handle).await?.map(Arc::new),
            None => self.held(name),
        };
        Ok(found.map(|machine| machine as Arc<dyn Machine>))
    }

    async fn delete(&self, handle: &MachineHandle) -> Result<()> {
        let name = self.named(handle)?;
        if let Some(detached) = DetachedHandle::of(&handle.state)? {
            return detached.delete(self.engine_ref().await?).await;
        }
        if let Some(machine) = self.held(name) {
            return machine.stop().await;
        }
        let engine_ref = self.engine_ref().await?;
        check_bound(engine_ref, name).await?;
        container::remove(engine_ref.engine, engine_ref.docker, name).await
    }
}

/// Whether a name has the form of this client's containers: a handle may come from anywhere, and its container is
/// removed.
fn is_ours(name: &str) -> bool {
    let hexadecimal = |number: &str| number.len() == 16 && number.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.strip_prefix(PREFIX).is_some_and(hexadecimal)
}
