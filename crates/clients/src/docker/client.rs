//! The Docker client: makes machines and knows the ones that live.

use std::{
    collections::{BTreeMap, HashMap},
    os::unix::fs::MetadataExt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use async_trait::async_trait;
use bollard::models::SystemInfo;
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
    detached::{Keeper, Place, check_bound},
    image::Image,
    labels,
    plan::{self, Wish},
    users::{Accounts, Choice},
};
use crate::{
    GuestMachine, GuestSetup,
    detached::{Listening, remembered},
    draw::{draw, hex},
    guest::check_variable,
    launch::launch as judge,
};

const ID: &str = "docker";
/// What containers can be given. The host's network is the engine's bridge: an engine shares no more of it.
const SUPPORTS: Supports = Supports::new(
    Isolation::Container,
    &[
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
    ],
);
/// What containers are called, before their number.
const PREFIX: &str = "sandbar-";

/// What clones of a client have together.
#[derive(Default)]
pub(super) struct Shared {
    live: Mutex<HashMap<String, Weak<GuestMachine>>>,
    docker: OnceCell<(bollard::Docker, SystemInfo)>,
    accounts: Mutex<HashMap<String, Arc<Accounts>>>,
    /// The image that was built, if one was to be.
    pub(super) built: OnceCell<String>,
}

impl Docker {
    /// The way to the engine, and what it says about itself; asked once.
    async fn reach(&self) -> Result<&(bollard::Docker, SystemInfo)> {
        let asked = self.shared.docker.get_or_try_init(|| async {
            let docker = self.engine.connect()?;
            let info = self.engine.ask("describe itself", docker.info()).await?;
            Ok((docker, info))
        });
        asked.await
    }

    /// The engine, as machines that live by themselves know it.
    async fn keeper(&self) -> Result<Keeper<'_>> {
        let (docker, info) = self.reach().await?;
        Ok(Keeper { engine: &self.engine, docker, id: info.id.as_deref().unwrap_or_default() })
    }

    /// Refuses what no container could keep.
    fn check(&self, spec: &MachineSpec) -> Result<()> {
        spec.refuse_unless(&SUPPORTS)?;
        spec.accounts.check()?;
        let has_walls = self.options.walls == InnerWalls::Required;
        if spec.lifetime != Lifetime::WithOwner && !has_walls {
            let missing = "the walls inside, without which commands could take over the door of a machine that stays";
            let fix = "leave InnerWalls::Required as it is, or let the machine end with its maker";
            return Err(MachineError::Isolation { missing: missing.to_owned(), fix: fix.to_owned() });
        }
        match (spec.accounts.more_than_one(), &self.options.user) {
            (Some(_), Some(user)) => spec.accounts.check_alone(
                "a guest that starts as root and commands that run as whom they are told to",
                &format!("leave out the user {user:?} of the container, or remove users and groups"),
            ),
            (Some(_), None) if !has_walls => {
                spec.accounts.check_alone("the walls inside", "leave InnerWalls::Required as it is")
            }
            _ => Ok(()),
        }
    }

    /// What the guest is told: judged here, and looked at again by the guest.
    fn launch(&self, spec: &MachineSpec, info: &SystemInfo) -> Result<Launch> {
        let shows = matches!(spec.workspace, Workspace::Host { .. }) || !spec.mounts.is_empty();
        if shows && self.engine.socket().is_none() {
            let reason = "the engine is reached over the network and may be on another host; copy the files in instead";
            return Err(MachineError::invalid("directories of this host", reason));
        }
        let mut launch = judge(spec, Level::Full)?;
        launch.level = match self.options.walls {
            InnerWalls::Required => Level::Full,
            InnerWalls::EngineOnly => Level::None,
        };
        // What the engine holds is not for the guest to watch.
        launch.cpus = None;
        launch.memory = match info.memory_limit {
            Some(true) => None,
            _ => Some(spec.limits.memory.unwrap_or(self.options.memory)),
        };
        let own_kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        if info.kernel_version.as_ref() != Some(&own_kernel) {
            // An engine in a virtual machine shows the same files under other numbers.
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
        if let Some(known) = lock(&self.shared.accounts).get(&image.id) {
            return Ok(known.clone());
        }
        let read = Arc::new(Accounts::read(&self.engine, docker, container).await?);
        lock(&self.shared.accounts).insert(image.id.clone(), read.clone());
        Ok(read)
    }

    /// What the host side keeps of a specification.
    fn setup(&self, spec: MachineSpec, image: &Image, info: &SystemInfo, state: Value) -> Result<GuestSetup> {
        let mut env = BTreeMap::new();
        for (name, value) in image.env.iter().filter_map(|variable| variable.split_once('=')) {
            // Its user is another one, and so is the home.
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

    /// How strongly this engine holds each limit; the guest adds what it watches itself.
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

    /// The container a handle names.
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
        lock(&self.shared.live).get(name).and_then(Weak::upgrade).filter(|machine| !machine.is_gone())
    }

    fn remember(&self, name: String, machine: &Arc<GuestMachine>) {
        let mut live = lock(&self.shared.live);
        live.retain(|_, machine| machine.strong_count() > 0);
        live.insert(name, Arc::downgrade(machine));
    }

    async fn make(&self, spec: MachineSpec, record: &Recorder<'_>) -> Result<Arc<dyn Machine>> {
        self.check(&spec)?;
        let (docker, info) = self.reach().await?;
        let mut launch = self.launch(&spec, info)?;
        let image = self.find_image(docker).await?;
        let session = hex(&draw::<8>().map_err(|error| self.engine.failed("name a container", error))?);
        let name = format!("{PREFIX}{session}");
        launch.id = session.clone().into_bytes();
        let place = match spec.lifetime {
            Lifetime::WithOwner => None,
            _ => Some(Place::new(self.keeper().await?, &name)?),
        };
        let owner = launch.workspace.as_ref().and_then(|(host, _)| {
            let place: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(&host.path);
            std::fs::symlink_metadata(place).ok().map(|found| (found.uid(), found.gid()))
        });
        let choice = Choice::new(self.options.user.as_deref(), owner, &image.user);
        let wish = Wish {
            engine: &self.engine,
            options: &self.options,
            spec: &spec,
            launch: &launch,
            image: &image,
            user: &choice,
            labels: labels::owned(
                &session,
                place.as_ref().map(|place| place.seal.as_str()),
                self.options.register.as_deref(),
            ),
        };
        let body = plan::body(wish)?;
        let state = place.as_ref().map_or_else(|| Ok(json!({ "container": name })), Place::state)?;
        let lifetime = spec.lifetime;
        let setup = self.setup(spec, &image, info, state)?;
        if place.is_some() {
            // An engine keeps a container that was made and never started, also when this process is killed.
            record(&setup.handle)?;
        }
        if let Some(place) = &place {
            launch.detached = Some(remembered(place.nonce()?, &setup, Listening::Possible, lifetime)?);
        }
        let platform = self.options.platform.as_deref();
        let mut container = Container::make(&self.engine, docker, name.clone(), platform, body).await?;
        let boot = Boot { client: self, docker, image: &image, user: choice.text(), launch };
        let machine = match boot.start(&mut container, setup, record).await {
            Ok(machine) if place.is_some() => return Ok(Arc::new(machine.farewell(container.let_go()))),
            Ok(machine) => Arc::new(machine.farewell(container)),
            Err(error) => {
                // Waited for, so that whoever hears of the failure finds nothing; if it fails as well, that is the lesser.
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
        let found = match Place::of(&handle.state)? {
            Some(place) => place.attach(self.keeper().await?, handle).await?.map(Arc::new),
            None => self.held(name),
        };
        Ok(found.map(|machine| machine as Arc<dyn Machine>))
    }

    async fn delete(&self, handle: &MachineHandle) -> Result<()> {
        let name = self.named(handle)?;
        if let Some(place) = Place::of(&handle.state)? {
            return place.delete(self.keeper().await?).await;
        }
        if let Some(machine) = self.held(name) {
            return machine.stop().await;
        }
        let keeper = self.keeper().await?;
        check_bound(keeper, name).await?;
        container::remove(keeper.engine, keeper.docker, name).await
    }
}

/// Whether a name is one that was given here: a handle may come from anywhere, and what it names is removed.
fn is_ours(name: &str) -> bool {
    let hexadecimal = |number: &str| number.len() == 16 && number.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.strip_prefix(PREFIX).is_some_and(hexadecimal)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
