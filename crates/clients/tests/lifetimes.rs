//! Deadlines and stops of local machines work although PID 1 does nothing for them, because it is stopped or gets no
//! CPU time.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test")]

use std::{
    fs,
    path::{Path, PathBuf},
    process,
    sync::Arc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use sandbar_clients::UnixLocal;
use sandbar_machine::{
    Command, Exit, ExitReason, Machine, MachineSpec, Output, SandboxClient, conformance::as_ordinary_user,
};

/// Timeout on a busy host. Without the mechanism under test, the wait would never end.
const SOON: Duration = Duration::from_secs(240);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("it ends soon")
}

/// A machine, its supervisor and PID 1, and its state directory.
struct Bench {
    machine: Arc<dyn Machine>,
    supervisor: i32,
    pid1: i32,
    state: tempfile::TempDir,
}

impl Bench {
    async fn new() -> Self {
        let state = tempfile::tempdir().expect("tempdir");
        let client = UnixLocal::new().state_dir(state.path().join("state"));
        let machine = soon(client.create(MachineSpec::default())).await.expect("create");
        // The child of this process that uses this state directory: other tests may run at the same time.
        let place = fs::canonicalize(state.path().join("state")).expect("the state directory");
        let own = i32::try_from(process::id()).expect("a number");
        let supervisor = children(own).into_iter().find(|pid| holds(*pid, &place)).expect("a supervisor");
        let pid1 = *children(supervisor).first().expect("a PID 1");
        Self { machine, supervisor, pid1, state }
    }

    fn stop_pid1(&self) {
        kill_process(Pid::from_raw(self.pid1).expect("a number"), Signal::STOP).expect("it can be stopped");
    }

    async fn leaves_nothing(self) {
        let Self { machine, supervisor, pid1, state } = self;
        drop(machine);
        soon(async {
            let is_left = |pid: i32| Path::new(&format!("/proc/{pid}/root")).exists() && !is_zombie(pid);
            let directory = state.path().join("state");
            let is_kept = || fs::read_dir(&directory).is_ok_and(|mut entries| entries.next().is_some());
            while is_left(supervisor) || is_left(pid1) || is_kept() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
}

fn stat(pid: i32) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace().map(str::to_owned).collect()
}

fn is_zombie(pid: i32) -> bool {
    stat(pid).first().is_none_or(|state| state == "Z")
}

fn children(parent: i32) -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| stat(*pid).get(1).is_some_and(|ppid| *ppid == parent.to_string())).collect()
}

/// Whether a process has something open below a directory. If its descriptors cannot be read, it is assumed to: each
/// test creates only one machine at a time.
fn holds(pid: i32, place: &Path) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return true };
    let links = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    links.into_iter().any(|link: PathBuf| link.starts_with(place))
}

/// How a script with a deadline of a few seconds ends; `meanwhile` is called when it prints its first line.
async fn end_of(machine: &dyn Machine, script: &str, meanwhile: impl FnOnce()) -> Option<Exit> {
    let command = Command::new(["sh", "-c", script]).deadline(Duration::from_secs(4));
    let mut process = soon(machine.spawn(command)).await.expect("spawn");
    let mut meanwhile = Some(meanwhile);
    while let Some(output) = soon(process.output.recv()).await {
        match output.expect("an end, not a failure") {
            Output::Exit(exit) => return Some(exit),
            Output::Stdout(_) => drop(meanwhile.take().map(|meanwhile| meanwhile())),
            Output::Stderr(_) | Output::Omitted(_) => {}
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_holds_although_pid_1_is_stopped() {
    let bench = Bench::new().await;
    let ended = end_of(&*bench.machine, "echo begun; exec sleep 1000", || bench.stop_pid1()).await;
    assert_eq!(ended.map(|exit| (exit.code, exit.reason)), Some((137, ExitReason::Deadline)));
    bench.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_stops_although_pid_1_is_stopped() {
    let bench = Bench::new().await;
    let _runs = soon(bench.machine.spawn(Command::new(["sleep", "1000"]))).await.expect("spawn");
    bench.stop_pid1();
    soon(bench.machine.stop()).await.expect("stop");
    bench.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_that_is_not_read_does_not_cost_a_machine_its_life() {
    let bench = Bench::new().await;
    let command = Command::new(["yes"]).deadline(Duration::from_secs(1));
    let mut process = soon(bench.machine.spawn(command)).await.expect("spawn");
    // Longer than the wait for a guest that does not answer. This guest answers.
    tokio::time::sleep(Duration::from_secs(22)).await;
    let ended = soon(async {
        loop {
            if let Output::Exit(exit) = process.output.recv().await.expect("an exit").expect("the machine lives") {
                return exit;
            }
        }
    });
    assert_eq!(ended.await.reason, ExitReason::Deadline);
    let mut after = soon(bench.machine.spawn(Command::new(["true"]))).await.expect("it lives");
    while let Some(output) = soon(after.output.recv()).await {
        output.expect("it lives");
    }
    soon(bench.machine.stop()).await.expect("stop");
    bench.leaves_nothing().await;
}

/// A control group whose processes share its processors: without it, every session has its own share.
struct CpuGroup(PathBuf);

impl CpuGroup {
    fn new() -> Self {
        let name = format!("sandbar-lifetimes-{}", process::id());
        let root = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].map(Path::new).into_iter().find(|root| root.is_dir());
        let group = root.expect("control groups").join(name);
        fs::create_dir(&group).expect("a control group: this test needs root");
        Self(group)
    }

    fn take(&self, pid: i32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("it can be moved");
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        // Its processes may still be ending.
        for _ in 0..1000 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Busy loops beside a PID 1 that has the lowest scheduling priority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: it keeps all processors busy; `cargo xtask test --all`"]
async fn a_deadline_holds_although_pid_1_gets_no_processor() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (bench, group) = (Bench::new().await, CpuGroup::new());
    [bench.supervisor, bench.pid1].into_iter().for_each(|pid| group.take(pid));
    let idle = || {
        let done = process::Command::new("chrt").args(["--idle", "--pid", "0", &bench.pid1.to_string()]).status();
        assert!(done.expect("chrt").success());
    };
    // The loops end by themselves after the deadline: without enforcement, the command would end late.
    let script = "echo begun; exec 2>/dev/null; timeout 150 sh -c 'i=0; while [ $i -lt 300 ]; do (while :; do :; done) & i=$((i+1)); done; wait'";
    let ended = end_of(&*bench.machine, script, idle).await;
    assert_eq!(ended.map(|exit| exit.reason), Some(ExitReason::Deadline));
    bench.leaves_nothing().await;
    drop(group);
}

#[test]
fn an_ordinary_user_is_obeyed_as_well() {
    // One at a time: this user cannot see which supervisor belongs to which test.
    as_ordinary_user(&["although_pid_1_is_stopped", "is_not_read", "--test-threads=1"]);
}
