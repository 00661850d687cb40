//! Which isolation levels this host supports, found by creating machines, and what to change if one does not work.

use std::time::{Duration, Instant};

use sandbar_guest::landlock_versions;
use sandbar_machine::{Command, Demand, Machine, MachineError, MachineSpec, Output, Result, SandboxClient};
use serde::Serialize;

use crate::{CgroupState, UnixLocal, cgroups};

/// Number of commands that are timed on each machine.
const RUNS: usize = 50;

/// How long the guest may take to read the kernel's Landlock version.
const ANSWER: Duration = Duration::from_secs(30);

/// The kernel settings that decide whether a user may create namespaces.
const SWITCHES: [Switch; 3] = [
    Switch {
        name: "user.max_user_namespaces",
        file: "/proc/sys/user/max_user_namespaces",
        allows: |value| value != "0",
        fix: "sudo sysctl -w user.max_user_namespaces=10000",
    },
    Switch {
        name: "kernel.unprivileged_userns_clone",
        file: "/proc/sys/kernel/unprivileged_userns_clone",
        allows: |value| value == "1",
        fix: "sudo sysctl -w kernel.unprivileged_userns_clone=1",
    },
    Switch {
        name: "kernel.apparmor_restrict_unprivileged_userns",
        file: "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        allows: |value| value == "0",
        fix: "sudo sandbar doctor --fix (an AppArmor profile with `userns,` for the program), or \
              sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    },
];

struct Switch {
    name: &'static str,
    file: &'static str,
    allows: fn(&str) -> bool,
    fix: &'static str,
}

/// The result of [`probe`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Name and release of the kernel.
    pub kernel: String,
    /// The kernel settings that exist on this host.
    pub settings: Vec<Setting>,
    /// The kernel's Landlock support.
    pub landlock: LandlockReport,
    /// Every isolation level, strongest first.
    pub levels: Vec<LevelReport>,
    /// The host's control groups.
    pub cgroups: CgroupState,
}

/// One kernel setting of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Name of the setting, as in `sysctl`.
    pub name: String,
    /// Value of the setting.
    pub value: String,
    /// What to do if the value prevents isolation.
    pub fix: Option<String>,
}

/// The kernel's Landlock version, and its effect on each kind of machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LandlockReport {
    /// The version; `None` if the kernel has no Landlock, or was booted without it.
    pub version: Option<u32>,
    /// Effect on local machines of the level `full`.
    pub full: String,
    /// Effect on containers.
    pub containers: String,
    /// Effect on local machines of the level `landlock`.
    pub landlock: String,
}

impl LandlockReport {
    /// The report for this version.
    #[must_use]
    pub fn of(version: Option<u32>) -> Self {
        let meaning = landlock_versions::meaning(version);
        let [full, containers, landlock] =
            [meaning.full, meaning.containers, meaning.landlock].map(std::borrow::ToOwned::to_owned);
        Self { version, full, containers, landlock }
    }
}

/// Whether an isolation level works, and what it costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LevelReport {
    /// The level.
    pub level: Demand,
    /// Whether a machine of this level could be created and used.
    pub works: bool,
    /// The layers that enforce the level.
    pub layers: Vec<String>,
    /// What is missing if the level does not work.
    pub missing: Option<String>,
    /// What to do about it.
    pub fix: Option<String>,
    /// Microseconds to create the machine.
    pub create_us: Option<u64>,
    /// Median of the microseconds that `true` took in fifty runs.
    pub exec_us: Option<u64>,
}

impl Report {
    /// The strongest level that works.
    #[must_use]
    pub fn best(&self) -> Option<Demand> {
        self.levels.iter().find(|report| report.works).map(|report| report.level)
    }
}

/// Reads the host's settings and creates a machine of every level.
pub async fn probe(client: &UnixLocal) -> Report {
    let mut levels = Vec::new();
    for level in [Demand::Full, Demand::Landlock, Demand::None] {
        levels.push(try_level(client, level).await);
    }
    let settings = SWITCHES.iter().filter_map(setting).collect();
    let landlock = LandlockReport::of(landlock().await);
    Report { kernel: kernel(), settings, landlock, levels, cgroups: cgroups() }
}

/// The kernel's Landlock version, read by the guest program; `None` if the program cannot be started.
#[cfg(target_os = "linux")]
async fn landlock() -> Option<u32> {
    use std::os::fd::AsRawFd as _;
    let program = crate::guest_binary::sealed().ok()?;
    let mut ask = tokio::process::Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    ask.arg("landlock").env_clear().kill_on_drop(true);
    let status = tokio::time::timeout(ANSWER, ask.status()).await.ok()?.ok()?;
    status.code().and_then(|version| u32::try_from(version).ok()).filter(|version| *version > 0)
}

#[cfg(not(target_os = "linux"))]
async fn landlock() -> Option<u32> {
    None
}

fn setting(switch: &Switch) -> Option<Setting> {
    let value = std::fs::read_to_string(switch.file).ok()?.trim().to_owned();
    let fix = (!(switch.allows)(&value)).then(|| switch.fix.to_owned());
    Some(Setting { name: switch.name.to_owned(), value, fix })
}

#[cfg(target_os = "linux")]
fn kernel() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy())
}

#[cfg(not(target_os = "linux"))]
fn kernel() -> String {
    std::env::consts::OS.to_owned()
}

async fn try_level(client: &UnixLocal, level: Demand) -> LevelReport {
    let mut report = LevelReport {
        level,
        works: false,
        layers: Vec::new(),
        missing: None,
        fix: None,
        create_us: None,
        exec_us: None,
    };
    if let Err(error) = measure(client, &mut report).await {
        let (missing, fix) = match error {
            MachineError::Isolation { missing, fix } => (missing, Some(fix)),
            other => (with_cause(&other), None),
        };
        report.missing = Some(missing);
        report.fix = fix;
        report.works = false;
    }
    report
}

fn with_cause(error: &MachineError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

async fn measure(client: &UnixLocal, report: &mut LevelReport) -> Result<()> {
    let begun = Instant::now();
    let machine = client.create(MachineSpec::default().isolation(report.level)).await?;
    report.create_us = Some(micros(begun.elapsed()));
    report.layers = machine.features().layers.clone();
    let mut runs = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let begun = Instant::now();
        run_true(machine.as_ref()).await?;
        runs.push(begun.elapsed());
    }
    runs.sort_unstable();
    report.exec_us = runs.get(RUNS / 2).copied().map(micros);
    report.works = true;
    machine.stop().await
}

async fn run_true(machine: &dyn Machine) -> Result<()> {
    let mut process = machine.spawn(Command::new(["true"])).await?;
    while let Some(output) = process.output.recv().await {
        match output? {
            Output::Exit(exit) if exit.success() => return Ok(()),
            Output::Exit(exit) => {
                return Err(MachineError::invalid("`true`", format!("ended with {}", exit.code)));
            }
            Output::Stdout(_) | Output::Stderr(_) | Output::Omitted(_) => {}
        }
    }
    Err(MachineError::Gone)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
