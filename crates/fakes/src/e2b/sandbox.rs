//! One sandbox: its machine, its users, its state and its timeout.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use sandbar_machine::{
    Accounts, Command, Machine, MachineError, MachinePath, MachineSpec, Output, Result, SandboxClient, Target, collect,
};
use tokio::sync::watch;

use super::{clock, processes::Processes};

/// The default user.
pub(super) const USER: &str = "user";
/// The writable trees.
pub(super) const TREES: [&str; 3] = ["/home/user", "/tmp", "/workspace"];
/// Limit of an account file, in bytes.
const LONGEST_ACCOUNTS: usize = 1 << 20;

/// Settings of a sandbox at its creation.
#[derive(Clone, Debug, Default)]
pub(super) struct SandboxConfig {
    pub(super) template: String,
    pub(super) timeout: Duration,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) secure: Security,
    pub(super) traffic: Traffic,
    pub(super) on_timeout: OnTimeout,
    pub(super) on_traffic: OnTraffic,
    pub(super) allow_internet_access: Option<bool>,
}

/// Whether `envd` requires a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Security {
    #[default]
    Open,
    Token,
}

/// Whether the other ports require a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Traffic {
    #[default]
    Public,
    Token,
}

/// What happens when the timeout expires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum OnTimeout {
    #[default]
    Kill,
    Pause(Memory),
}

/// What happens when a paused sandbox gets a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum OnTraffic {
    #[default]
    Refuse,
    Resume,
}

/// Whether processes survive a pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Memory {
    #[default]
    Kept,
    Dropped,
}

/// The state of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Running,
    Paused,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
        }
    }
}

/// A user of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) home: String,
    uid: u32,
}

#[cfg(test)]
impl User {
    pub(super) fn for_tests(name: &str, home: &str) -> Self {
        Self { name: name.to_owned(), home: home.to_owned(), uid: 0 }
    }
}

/// A sandbox.
#[derive(Debug)]
pub(super) struct Sandbox {
    pub(super) id: String,
    pub(super) config: SandboxConfig,
    pub(super) token: Option<String>,
    pub(super) traffic_token: Option<String>,
    pub(super) started: SystemTime,
    pub(super) machine: Arc<dyn Machine>,
    pub(super) processes: Processes,
    users: Vec<User>,
    groups: Vec<(u32, String)>,
    life: Mutex<Life>,
    /// Number of times that the connections of the sandbox were cut.
    cuts: watch::Sender<u64>,
    /// Lock that allows one transition at a time.
    changing: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, Debug)]
struct Life {
    state: State,
    end: SystemTime,
}

impl Sandbox {
    /// Creates the machine and adapts its directories.
    pub(super) async fn create(client: &dyn SandboxClient, config: SandboxConfig) -> Result<Self> {
        // A machine forwards only declared ports, and a request can name any port.
        let spec = MachineSpec::default().ports(1..=u16::MAX).accounts(Accounts::default().user(USER));
        let machine = client.create(spec).await?;
        let users = users(&*machine).await?;
        let groups = groups(&*machine).await?;
        // In E2B, all users can enter the home directory.
        run(&*machine, Command::new(["chmod", "755", "/home/user"]).user(USER)).await?;
        run(&*machine, Command::new(["chmod", "777", "/workspace"])).await?;
        let (started, end) = (SystemTime::now(), SystemTime::now() + config.timeout);
        Ok(Self {
            id: format!("i{}", clock::random_name(19)),
            token: (config.secure == Security::Token).then(|| clock::random_hex(64)),
            traffic_token: (config.traffic == Traffic::Token).then(|| clock::random_hex(64)),
            config,
            started,
            machine,
            processes: Processes::default(),
            users,
            groups,
            life: Mutex::new(Life { state: State::Running, end }),
            cuts: watch::Sender::new(0),
            changing: tokio::sync::Mutex::default(),
        })
    }

    pub(super) fn user(&self, name: &str) -> Option<&User> {
        self.users.iter().find(|user| user.name == name)
    }

    pub(super) fn owner(&self, uid: u32) -> String {
        self.users.iter().find(|user| user.uid == uid).map_or_else(|| uid.to_string(), |user| user.name.clone())
    }

    pub(super) fn group(&self, gid: u32) -> String {
        self.groups.iter().find(|(known, _)| *known == gid).map_or_else(|| gid.to_string(), |(_, name)| name.clone())
    }

    pub(super) fn state(&self) -> State {
        self.life().state
    }

    pub(super) fn end(&self) -> SystemTime {
        self.life().end
    }

    fn life(&self) -> Life {
        *self.life.lock()
    }

    fn set(&self, change: impl FnOnce(&mut Life)) {
        change(&mut self.life.lock());
    }

    /// Sets the timeout, counted from now.
    pub(super) fn set_timeout(&self, timeout: Duration) {
        self.set(|life| life.end = SystemTime::now() + timeout);
    }

    /// Extends the timeout to this long from now; never shortens it.
    pub(super) fn extend(&self, timeout: Duration) {
        self.set(|life| life.end = life.end.max(SystemTime::now() + timeout));
    }

    /// Changes when the sandbox is paused or killed.
    pub(super) fn cut(&self) -> watch::Receiver<u64> {
        self.cuts.subscribe()
    }

    /// Freezes or kills the processes and refuses requests; `false` if it is already paused.
    pub(super) async fn pause(&self, memory: Memory) -> Result<bool> {
        let _one_at_a_time = self.changing.lock().await;
        if self.state() == State::Paused {
            return Ok(false);
        }
        self.set(|life| life.state = State::Paused);
        self.cuts.send_modify(|count| *count += 1);
        let signal = if memory == Memory::Kept { "STOP" } else { "KILL" };
        self.signal_all(signal).await?;
        Ok(true)
    }

    /// Resumes; `false` if it is running.
    pub(super) async fn resume(&self, timeout: Duration) -> Result<bool> {
        let _one_at_a_time = self.changing.lock().await;
        if self.state() == State::Running {
            return Ok(false);
        }
        self.signal_all("CONT").await?;
        self.set(|life| *life = Life { state: State::Running, end: SystemTime::now() + timeout });
        Ok(true)
    }

    /// Stops the machine and removes it.
    pub(super) async fn kill(&self) -> Result<()> {
        let ended = self.machine.stop().await;
        self.cuts.send_modify(|count| *count += 1);
        ended
    }

    /// Sends a signal to every process of every user that ran one.
    async fn signal_all(&self, signal: &str) -> Result<()> {
        for user in self.processes.users() {
            self.signal(&user, signal, "-1").await?;
        }
        Ok(())
    }

    /// Sends a signal to a process, as its owner, and not to its children: `envd` does not signal those either.
    pub(super) async fn signal(&self, user: &str, signal: &str, pid: &str) -> Result<()> {
        // The shell's own `kill`: the program is in a package that hosts may lack.
        // tidy: allow(shell) — a fixed text, whose arguments travel as arguments
        let argv = ["/bin/bash", "-c", "kill -s \"$1\" -- \"$2\"", "bash", signal, pid];
        match run(&*self.machine, Command::new(argv).user(user)).await {
            // A failed `kill` means that the process has ended.
            Ok(_exit_code) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Runs a command and returns its exit code.
pub(super) async fn run(machine: &dyn Machine, command: Command) -> Result<i32> {
    let mut process = machine.spawn(command).await?;
    while let Some(output) = process.output.recv().await {
        if let Output::Exit(exit) = output? {
            return Ok(exit.code);
        }
    }
    Err(MachineError::Gone)
}

async fn users(machine: &dyn Machine) -> Result<Vec<User>> {
    let user = |fields: Vec<&str>| match fields[..] {
        [name, _, uid, _, _, home, ..] => {
            Some(User { name: name.to_owned(), home: home.to_owned(), uid: uid.parse().ok()? })
        }
        _ => None,
    };
    Ok(accounts(machine, "/etc/passwd").await?.lines().filter_map(|line| user(line.split(':').collect())).collect())
}

async fn groups(machine: &dyn Machine) -> Result<Vec<(u32, String)>> {
    let group = |fields: Vec<&str>| match fields[..] {
        [name, _, gid, ..] => Some((gid.parse().ok()?, name.to_owned())),
        _ => None,
    };
    Ok(accounts(machine, "/etc/group").await?.lines().filter_map(|line| group(line.split(':').collect())).collect())
}

async fn accounts(machine: &dyn Machine, path: &str) -> Result<String> {
    let bytes = collect(machine.read(&Target::from(MachinePath::new(path)?)).await?, LONGEST_ACCOUNTS).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
