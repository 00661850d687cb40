//! A second engine, which these tests may stop, kill and fill: with its own socket and its own directory.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bollard::{
    API_DEFAULT_VERSION, body_full,
    models::{ContainerSummary, ContainerSummaryStateEnum},
    query_parameters::{
        ImportImageOptions, ListContainersOptions, ListVolumesOptions, RemoveContainerOptions, RemoveVolumeOptions,
    },
};
use futures::TryStreamExt;
use rustix::process::{Pid, Signal, kill_process};
use sandbar_clients::{
    Docker,
    docker::{Engine, Pull},
};
use tokio::time::sleep;

use crate::bench::{self, BUSYBOX, soon};

/// An engine of these tests, with the smallest image that has a shell.
pub(crate) struct Second {
    place: PathBuf,
    process: Option<Child>,
}

impl Second {
    /// Starts the engine. `None`, with a printed line, if this user may not start one. `room` limits the size of its
    /// directory.
    pub(crate) async fn start(room: Option<&str>) -> Option<Self> {
        if !bench::has_engine().await {
            return None;
        }
        if !rustix::process::getuid().is_root() {
            println!("LEFT OUT: only root can start a second engine");
            return None;
        }
        let place = tempfile::Builder::new().prefix("sandbar-engine-").tempdir().expect("a directory").keep();
        let mut second = Self { place, process: None };
        if let Some(room) = room {
            fs::create_dir(second.place.join("data")).expect("a directory");
            let size = format!("size={room}");
            let mounted = Command::new("mount")
                .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
                .arg(second.place.join("data"))
                .status();
            assert!(mounted.is_ok_and(|status| status.success()), "a small disk");
        }
        second.run().await;
        let image = soon(bench::engine().export_image(BUSYBOX).try_collect::<Vec<_>>()).await.expect("the image");
        let loaded = second.reach().import_image(ImportImageOptions::default(), body_full(image.concat().into()), None);
        soon(loaded.try_collect::<Vec<_>>()).await.expect("the image goes in");
        Some(second)
    }

    /// Starts the engine, or restarts it, and waits until it answers.
    pub(crate) async fn run(&mut self) {
        // Leftovers of a killed engine would block the next one.
        kill_all_with(&self.place.join("exec/containerd/containerd.toml"));
        let _never_run = fs::remove_file(self.place.join("exec/containerd/containerd.pid"));
        let at = |name: &str| self.place.join(name).display().to_string();
        let log = fs::File::options().append(true).create(true).open(at("log")).expect("a log");
        let name = self.place.file_name().expect("a name").to_string_lossy().into_owned();
        // In its own network namespace: an engine without a bridge removes the bridge that it finds, which is the other
        // engine's.
        let process = Command::new("unshare")
            .args(["--net", "dockerd"])
            .args(["--data-root", &at("data"), "--exec-root", &at("exec"), "--pidfile", &at("pid")])
            .args(["--host", &self.address(), "--bridge", "none", "--shutdown-timeout", "3"])
            .args(["--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"])
            // If it uses the host's containerd, it is separated from the other engine.
            .args(["--containerd-namespace", &name, "--containerd-plugins-namespace", &format!("{name}-plugins")])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log"))
            .stderr(log)
            .spawn()
            .expect("dockerd");
        self.process = Some(process);
        soon(async {
            while !self.answers().await {
                let ended =
                    self.process.as_mut().is_some_and(|process| process.try_wait().is_ok_and(|end| end.is_some()));
                assert!(!ended, "{}", fs::read_to_string(self.place.join("log")).unwrap_or_default());
                sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    }

    /// Ends the engine with this signal.
    pub(crate) fn end(&mut self, signal: Signal) {
        let Some(mut process) = self.process.take() else { return };
        let sent = Pid::from_child(&process);
        let _it_may_have_ended = kill_process(sent, signal);
        let begun = Instant::now();
        while process.try_wait().expect("its end").is_none() {
            if begun.elapsed() > Duration::from_secs(45) {
                process.kill().expect("kill -9");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn address(&self) -> String {
        format!("unix://{}", self.place.join("sock").display())
    }

    async fn answers(&self) -> bool {
        match bollard::Docker::connect_with_unix(&self.address(), 30, API_DEFAULT_VERSION) {
            Ok(docker) => docker.ping().await.is_ok(),
            Err(_) => false,
        }
    }

    /// A client of the engine's API.
    pub(crate) fn reach(&self) -> bollard::Docker {
        bollard::Docker::connect_with_unix(&self.address(), 30, API_DEFAULT_VERSION).expect("an address")
    }

    /// A sandbar client of the engine.
    pub(crate) fn client(&self, patience: Duration) -> Docker {
        let engine = Engine::at(&self.address()).expect("an address").patience(patience);
        Docker::image(BUSYBOX).pull(Pull::Never).engine(engine)
    }

    /// Waits until the engine has no container, and no volume except those of machines that are gone. An engine that
    /// ends under a machine does not remove the machine's volume, and one that ends while it removes a container leaves
    /// that container dead and does not try again. Those are removed, as `gc` would do by their labels.
    pub(crate) async fn nothing_left(&self) {
        let begun = Instant::now();
        loop {
            let docker = self.reach();
            let all = ListContainersOptions { all: true, ..ListContainersOptions::default() };
            let containers = docker.list_containers(Some(all)).await.expect("containers");
            for dead in containers.iter().filter(|one| is_dead(one)).filter_map(|one| one.id.as_ref()) {
                println!("a dead container is left, with its labels: {dead}");
                let forced = RemoveContainerOptions { force: true, v: true, ..RemoveContainerOptions::default() };
                let _tried_again = docker.remove_container(dead, Some(forced)).await;
            }
            let volumes = docker.list_volumes(None::<ListVolumesOptions>).await.expect("volumes");
            let volumes = volumes.volumes.unwrap_or_default();
            if containers.is_empty() && volumes.iter().all(|volume| volume.labels.contains_key("sandbar.session")) {
                for volume in volumes {
                    println!("a volume is left, with its labels: {}", volume.name);
                    docker.remove_volume(&volume.name, None::<RemoveVolumeOptions>).await.expect("it is not in use");
                }
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "left: {containers:?} {volumes:?}");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Whether the engine gave up removing this container, and the container belongs to a machine.
fn is_dead(container: &ContainerSummary) -> bool {
    let labels = container.labels.as_ref();
    container.state == Some(ContainerSummaryStateEnum::DEAD)
        && labels.is_some_and(|labels| labels.contains_key("sandbar.session"))
}

impl Drop for Second {
    fn drop(&mut self) {
        self.end(Signal::TERM);
        // The helpers of a killed engine continue to run.
        kill_all_with(&self.place);
        unmount_below(&self.place);
        let _best_effort = fs::remove_dir_all(&self.place);
    }
}

/// Kills every process with this path in its command line.
fn kill_all_with(path: &Path) {
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| String::from_utf8_lossy(&words).contains(&*path.to_string_lossy())) {
            let _gone = kill_process(pid, Signal::KILL);
        }
    }
}

fn unmount_below(place: &Path) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let below = mounts.lines().filter_map(|line| line.split(' ').nth(4)).filter(|at| Path::new(at).starts_with(place));
    for mount in below.collect::<Vec<_>>().into_iter().rev() {
        let _best_effort = Command::new("umount").args(["--lazy", mount]).status();
    }
}
