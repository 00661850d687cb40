//! Test rig: runs `sandbar` as root or as an ordinary user, with a separate directory for all its files.

use std::{
    ffi::OsStr,
    fs,
    io::Write,
    os::{
        fd::AsFd,
        unix::{fs::PermissionsExt, process::ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    io::ioctl_fionread,
    process::{Pid, Signal, getuid, kill_process},
};
use tempfile::TempDir;

const OTHER: &str = "sandbar-test";

/// How long anything here may take before it counts as hanging: the machine may be busy with something else for long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Sandbar {
    temp: TempDir,
    /// What comes before the program's own arguments.
    prefix: Vec<String>,
    user: u32,
}

/// How a run ended, with its output as text.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Whether an engine with a test image exists (`cargo xtask setup` prepares one); in CI, a missing engine fails the test.
#[allow(clippy::print_stdout, reason = "what is left out is said")]
pub(crate) fn has_engine(image: &str) -> bool {
    let found = Command::new("docker").args(["image", "inspect", image]).output();
    if found.is_ok_and(|found| found.status.success()) {
        return true;
    }
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "no engine with the test images: run `cargo xtask setup`");
    println!("LEFT OUT: no Docker engine with the image {image}; `cargo xtask setup` puts both in place");
    false
}

/// Runs the check as both users.
pub(crate) fn each(check: impl Fn(&Sandbar)) {
    check(&Sandbar::own());
    check(&Sandbar::unprivileged());
}

impl Sandbar {
    /// As the user who runs the tests.
    pub(crate) fn own() -> Self {
        let prefix = vec![env!("CARGO_BIN_EXE_sandbar").to_owned()];
        Self { temp: tempfile::tempdir().expect("tempdir"), prefix, user: getuid().as_raw() }
    }

    /// As an ordinary user, from a copy that it can reach.
    pub(crate) fn unprivileged() -> Self {
        assert!(getuid().is_root(), "this test changes users, which needs root; run `cargo xtask test` as root");
        let passwd = fs::read_to_string("/etc/passwd").expect("passwd");
        let line = passwd.lines().find(|line| line.split(':').next() == Some(OTHER));
        let line = line.expect("the user sandbar-test is missing; `cargo xtask setup` makes it");
        let user = line.split(':').nth(2).and_then(|id| id.parse().ok()).expect("its id");
        let temp = tempfile::tempdir().expect("tempdir");
        let program = temp.path().join("program");
        fs::copy(env!("CARGO_BIN_EXE_sandbar"), &program).expect("copy");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("chmod");
        fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
        std::os::unix::fs::chown(temp.path(), Some(user), Some(user)).expect("chown");
        let program = program.display().to_string();
        let prefix = ["setpriv", "--reuid", OTHER, "--regid", OTHER, "--clear-groups", &program];
        Self { temp, prefix: prefix.map(str::to_owned).to_vec(), user }
    }

    /// As an ordinary user on a host without user namespaces.
    pub(crate) fn without_namespaces() -> Self {
        let mut sandbar = Self::unprivileged();
        let program = sandbar.prefix.pop().expect("the program");
        let forbid =
            "echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --inh-caps -all --ambient-caps -all \"$@\"";
        let words = ["unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c", forbid, "sh", &program];
        sandbar.prefix.extend(words.map(str::to_owned));
        sandbar
    }

    pub(crate) fn dir(&self) -> &Path {
        self.temp.path()
    }

    /// A directory of this user.
    pub(crate) fn make_dir(&self, name: &str) -> PathBuf {
        let path = self.dir().join(name);
        fs::create_dir(&path).expect("create");
        std::os::unix::fs::chown(&path, Some(self.user), Some(self.user)).expect("chown");
        path
    }

    /// The program behind another one that starts it in its own place.
    pub(crate) fn behind<S: AsRef<OsStr>>(&self, launcher: &[&str], args: &[S]) -> Command {
        let mut words = launcher.iter().copied().chain(self.prefix.iter().map(String::as_str));
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).args(args).current_dir(self.dir());
        command.env("TMPDIR", self.dir()).env("XDG_STATE_HOME", self.dir().join("state"));
        // The environment of the test process must not matter.
        command.env("HOME", self.dir()).env("XDG_CONFIG_HOME", self.dir().join("config")).env("LC_ALL", "C.UTF-8");
        for variable in ["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_DEFAULT_MODEL", "NO_COLOR", "E2B_API_KEY"] {
            command.env_remove(variable);
        }
        for variable in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
            command.env_remove(variable).env_remove(variable.to_uppercase());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        self.behind(&[], args)
    }

    /// Another program as the same user, outside of any sandbox.
    #[allow(dead_code, reason = "not every test program needs it")]
    pub(crate) fn host(&self, dir: &Path, program: &[&str]) -> Run {
        let become_user = self.prefix[..self.prefix.len() - 1].iter().map(String::as_str);
        let mut words = become_user.chain(program.iter().copied());
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).current_dir(dir).env("HOME", self.dir()).env("XDG_CONFIG_HOME", self.dir().join("config"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command.spawn().expect("spawn"))
    }

    /// Runs it to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Run {
        finish(self.command(args).spawn().expect("spawn"))
    }

    /// Runs it to its end with something to read.
    pub(crate) fn feed<S: AsRef<OsStr>>(&self, args: &[S], input: &'static [u8]) -> Output {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().expect("spawn");
        let mut stdin = child.stdin.take().expect("stdin");
        let feeder = thread::spawn(move || stdin.write_all(input));
        let output = collect(child);
        let _reader_gone = feeder.join().expect("feeder");
        output
    }

    /// What machines and sessions left in their state directories.
    pub(crate) fn left(&self) -> Vec<String> {
        let passing = format!("sandbar-{}", self.user);
        let places = [passing.as_str(), "state/sandbar/machines", "state/sandbar/sessions"];
        let entries = places.iter().filter_map(|place| fs::read_dir(self.dir().join(place)).ok()).flatten();
        entries.map(|entry| entry.expect("entry").file_name().display().to_string()).collect()
    }

    /// A file of this user.
    pub(crate) fn make_file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.dir().join(name);
        fs::write(&path, content).expect("write");
        std::os::unix::fs::chown(&path, Some(self.user), Some(self.user)).expect("chown");
        path
    }

    /// Nothing is left, neither files nor processes, at once or soon.
    pub(crate) fn leaves_nothing(&self, marker: &str) {
        until("nothing is left", PATIENCE, || self.left().is_empty() && marked(marker).is_empty());
    }
}

pub(crate) fn sh(script: &str) -> [&str; 5] {
    ["exec", "--", "sh", "-c", script]
}

/// Waits for a child with a time limit, and collects its output.
pub(crate) fn collect(child: Child) -> Output {
    let pid = Pid::from_child(&child);
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(child.wait_with_output()));
    match told.recv_timeout(PATIENCE) {
        Ok(output) => output.expect("wait"),
        Err(_) => {
            let _gone_meanwhile = kill_process(pid, Signal::KILL);
            let said = told.recv_timeout(PATIENCE).expect("killed").expect("wait");
            panic!("it hangs; so far it said {said:?}");
        }
    }
}

pub(crate) fn finish(child: Child) -> Run {
    let output = collect(child);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    // A process that a signal ended has no code; shells make one up.
    let code = output.status.code().or_else(|| output.status.signal().map(|signal| 128 + signal)).expect("an end");
    Run { code, stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

/// A sleep with a unique duration: other tests look at the processes of this host too.
pub(crate) fn nap(number: u32) -> String {
    format!("sleep {number}{}", naps())
}

/// What all of those have in their arguments.
pub(crate) fn naps() -> String {
    format!(".{:07}", std::process::id())
}

/// Sends a signal until the child ends: two that come before it looks are one to it.
pub(crate) fn insist(child: &mut Child, signal: Signal) {
    let mut sent = None;
    until("it ends", PATIENCE, || {
        if sent.is_none_or(|sent: Instant| sent.elapsed() > Duration::from_secs(2)) {
            let _ended_meanwhile = kill_process(Pid::from_child(child), signal);
            sent = Some(Instant::now());
        }
        child.try_wait().expect("wait").is_some()
    });
}

/// Undoes what the caller of the tests may have set: a shell's background jobs ignore Ctrl-C.
pub(crate) const FRESH: [&str; 2] = ["env", "--default-signal=INT,TERM,HUP,QUIT"];

/// Takes the output of a child, without reading it, once it is full.
pub(crate) fn unread(child: &mut Child) -> ChildStdout {
    let stdout = child.stdout.take().expect("stdout");
    fills(&stdout);
    stdout
}

/// Waits until a pipe holds as much as it can: how much that is depends on the sizes of the writes.
pub(crate) fn fills(pipe: impl AsFd) {
    let mut before = 0;
    until("the output is full", PATIENCE, || {
        let now = ioctl_fionread(&pipe).expect("a pipe");
        thread::sleep(Duration::from_millis(300));
        now > 0 && std::mem::replace(&mut before, now) == now
    });
}

/// Waits for the end of a child whose output is still not read.
#[track_caller]
pub(crate) fn ends_by_itself(mut child: Child) -> i32 {
    until("it ends", PATIENCE, || child.try_wait().expect("wait").is_some());
    finish(child).code
}

/// Processes of this host with these words among their arguments.
pub(crate) fn marked(marker: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").expect("proc").filter_map(Result::ok).map(|entry| entry.path());
    let lines = processes.filter_map(|path| fs::read(path.join("cmdline")).ok());
    let words = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    words.filter(|line| line.contains(marker)).collect()
}

/// Polls a condition with a time limit.
pub(crate) fn until(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + within;
    while !holds() {
        assert!(Instant::now() < deadline, "still not so after {within:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
