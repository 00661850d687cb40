//! An engine of the tests' own whose containers find an older Landlock: its runtime is the usual one, started by the probe.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use sandbar_redteam::sys::kill;

use crate::escape::rig::{IMAGE, SOON};

/// The runtime's name.
pub(crate) const RUNTIME: &str = "older";

/// With its own socket and directory; both are gone when it is dropped.
pub(crate) struct OlderEngine {
    place: PathBuf,
    process: Child,
}

impl OlderEngine {
    /// Starts it, and copies the image that containers are made of.
    pub(crate) fn start(probe: &Path, version: u32) -> Self {
        let place = tempfile::Builder::new().prefix("redteam-engine-").tempdir_in("/tmp").expect("a directory").keep();
        let at = |name: &str| place.join(name).display().to_string();
        let (config, version) = (at("config"), version.to_string());
        let words = format!(r#"["--landlock", "{version}", "runc"]"#);
        let runtime = format!(r#"{{"path": "{}", "runtimeArgs": {words}}}"#, probe.display());
        fs::write(&config, format!(r#"{{"runtimes": {{"{RUNTIME}": {runtime}}}}}"#)).expect("its configuration");
        let log = fs::File::create(at("log")).expect("a log");
        let name = place.file_name().expect("a name").to_string_lossy().into_owned();
        // In a network of its own: an engine without a bridge removes the one it finds, which is the other engine's.
        let process = Command::new("unshare")
            .args(["--net", "dockerd", "--config-file", &config])
            .args(["--data-root", &at("data"), "--exec-root", &at("exec"), "--pidfile", &at("pid")])
            .args(["--host", &format!("unix://{}", at("sock")), "--bridge", "none", "--shutdown-timeout", "3"])
            .args(["--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"])
            // Where it finds a containerd of the host's, it keeps apart from the other engine.
            .args(["--containerd-namespace", &name, "--containerd-plugins-namespace", &format!("{name}-plugins")])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log"))
            .stderr(log)
            .spawn()
            .expect("dockerd");
        let mut engine = Self { place, process };
        engine.wait_until_ready();
        engine.load();
        engine
    }

    pub(crate) fn address(&self) -> String {
        format!("unix://{}", self.place.join("sock").display())
    }

    fn docker(&self) -> Command {
        let mut command = Command::new("docker");
        command.args(["--host", &self.address()]);
        command
    }

    fn wait_until_ready(&mut self) {
        let start = Instant::now();
        while !self.docker().arg("version").output().is_ok_and(|output| output.status.success()) {
            let ended = self.process.try_wait().expect("its state").is_some();
            let said = || fs::read_to_string(self.place.join("log")).unwrap_or_default();
            assert!(!ended && start.elapsed() < SOON, "{}", said());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn load(&self) {
        let mut saving =
            Command::new("docker").args(["save", IMAGE]).stdout(Stdio::piped()).spawn().expect("the image");
        let image = saving.stdout.take().expect("its output");
        let loaded = self.docker().arg("load").stdin(image).stdout(Stdio::null()).status().expect("docker load");
        assert!(saving.wait().expect("it ends").success() && loaded.success(), "the image goes in");
    }
}

impl Drop for OlderEngine {
    fn drop(&mut self) {
        let _it_may_have_ended = kill(self.process.id().cast_signed(), libc::SIGTERM);
        let start = Instant::now();
        while self.process.try_wait().is_ok_and(|end| end.is_none()) {
            if start.elapsed() > SOON {
                let _killed = self.process.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        for pid in having(&self.place.display().to_string()) {
            let _gone = kill(pid, libc::SIGKILL);
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let below = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        for mount in below.filter(|at| Path::new(at).starts_with(&self.place)).collect::<Vec<_>>().into_iter().rev() {
            let _best_effort = Command::new("umount").args(["--lazy", mount]).status();
        }
        let _best_effort = fs::remove_dir_all(&self.place);
    }
}

/// The living processes that have a text among their arguments.
pub(crate) fn having(text: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let has = |entry: &fs::DirEntry| {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(text)
    };
    let pids = entries.filter(has).filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != std::process::id().cast_signed()).collect()
}
