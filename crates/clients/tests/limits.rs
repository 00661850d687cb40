//! Enforcement of the limits of local machines: the control groups that they are in, and that none of these is left
//! behind.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use sandbar_clients::{UnixLocal, cgroups};
use sandbar_machine::{
    Access, Command, Cpus, Demand, Enforcement, Exit, ExitReason, HostMount, Limits, Machine, MachinePath, MachineSpec,
    Output, SandboxClient, Target, Workspace, conformance::as_ordinary_user,
};

const MIB: u64 = 1 << 20;

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("took longer than a minute")
}

/// Standard output and exit of a script.
async fn run(machine: &dyn Machine, script: &str) -> (String, Exit) {
    let mut process = soon(machine.spawn(Command::new(["sh", "-c", script]))).await.expect("spawn");
    let (mut text, mut ended) = (Vec::new(), None);
    while let Some(output) = soon(process.output.recv()).await {
        match output.expect("output") {
            Output::Stdout(bytes) => text.extend_from_slice(&bytes),
            Output::Stderr(_) => {}
            Output::Omitted(_) => {}
            Output::Exit(exit) => ended = Some(exit),
        }
    }
    (String::from_utf8(text).expect("text"), ended.expect("an exit"))
}

fn all_limits() -> Limits {
    let cpus: Cpus = "0.75".parse().expect("cpus");
    Limits::default().memory(256 * MIB).cpus(cpus).disk(64 * MIB).pids(100)
}

async fn make(client: &UnixLocal, limits: Limits, isolation: Demand) -> Arc<dyn Machine> {
    let spec = MachineSpec::default().limits(limits).isolation(isolation);
    soon(client.create(spec)).await.expect("create")
}

/// Every control group on this host with the name of this machine.
fn groups_of(id: &str) -> Vec<PathBuf> {
    fn search(dir: &Path, name: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name() == name {
                    found.push(entry.path());
                }
                search(&entry.path(), name, found);
            }
        }
    }
    let mut found = Vec::new();
    search(Path::new("/sys/fs/cgroup"), &format!("sandbar-{id}"), &mut found);
    found
}

fn id_of(machine: &dyn Machine) -> String {
    machine.handle().state["id"].as_str().expect("an id").to_owned()
}

/// Content of the first of these files that exists in one of the groups.
fn value(groups: &[PathBuf], names: &[&str]) -> Option<String> {
    let mut paths = groups.iter().flat_map(|group| names.iter().map(|name| group.join(name)));
    paths.find_map(|path| fs::read_to_string(path).ok()).map(|text| text.trim().to_owned())
}

fn is_usable(controller: &str) -> bool {
    cgroups().missing(controller).is_none()
}

#[tokio::test]
async fn a_limit_reported_as_hard_is_written_in_a_control_group() {
    let client = UnixLocal::new();
    for isolation in [Demand::Full, Demand::Landlock, Demand::None] {
        let machine = make(&client, all_limits(), isolation).await;
        let (report, groups) = (machine.features().limits, groups_of(&id_of(machine.as_ref())));
        let hard = |controller: &str, otherwise| if is_usable(controller) { Enforcement::Hard } else { otherwise };
        let watched = if isolation == Demand::Landlock { Enforcement::Unavailable } else { Enforcement::Soft };
        assert_eq!(report.memory, hard("memory", watched), "{isolation}");
        assert_eq!(report.cpu, hard("cpu", Enforcement::Unavailable), "{isolation}");
        assert_eq!(report.disk, Enforcement::Soft, "{isolation}");
        let counted = if isolation == Demand::Full { Enforcement::Hard } else { Enforcement::Unavailable };
        assert_eq!(report.pids, hard("pids", counted), "{isolation}");
        let memory = value(&groups, &["memory.max", "memory.limit_in_bytes"]);
        assert_eq!(memory.is_some(), is_usable("memory"), "{groups:?}");
        assert!(memory.is_none_or(|bytes| bytes == (256 * MIB).to_string()));
        let quota = value(&groups, &["cpu.max", "cpu.cfs_quota_us"]);
        assert_eq!(quota.is_some(), is_usable("cpu"), "{groups:?}");
        assert!(quota.is_none_or(|quota| quota.starts_with("75000")));
        let pids = value(&groups, &["pids.max"]);
        assert!(pids.is_none_or(|most| most == "101"));
        for group in &groups {
            let inside = fs::read_to_string(group.join("cgroup.procs")).expect("procs");
            assert!(!inside.trim().is_empty(), "no process is in {}", group.display());
        }
        soon(machine.stop()).await.expect("stop");
        assert_eq!(groups_of(&id_of(machine.as_ref())), [] as [PathBuf; 0]);
    }
}

#[tokio::test]
async fn a_machine_without_limits_has_no_groups_and_says_that_nothing_is_held() {
    let machine = make(&UnixLocal::new(), Limits::default(), Demand::Full).await;
    let report = machine.features().limits;
    let none = Enforcement::Unavailable;
    assert_eq!((report.memory, report.cpu, report.disk), (none, none, none));
    assert_eq!(groups_of(&id_of(machine.as_ref())), [] as [PathBuf; 0]);
    soon(machine.stop()).await.expect("stop");
}

#[tokio::test]
async fn the_machine_sees_nothing_of_its_groups_and_cannot_change_them() {
    let machine = make(&UnixLocal::new(), all_limits(), Demand::Full).await;
    let (seen, _) = run(machine.as_ref(), "cat /proc/self/cgroup").await;
    assert!(!seen.is_empty() && seen.lines().all(|line| line.ends_with(":/")), "{seen}");
    let (seen, exit) = run(machine.as_ref(), "ls /sys/fs/cgroup; grep cgroup /proc/mounts").await;
    assert!(seen.is_empty() && !exit.success(), "{seen}");
    soon(machine.stop()).await.expect("stop");
}

/// The supervisor of a machine, found by its lock on the machine's directory: the parent of PID 1.
fn supervisor_of(state: &Path, id: &str) -> Option<i32> {
    let place = fs::canonicalize(state.join(id)).ok()?;
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let holds = fs::read_dir(entry.path().join("fd")).ok()?.flatten();
        let mut holds = holds.filter_map(|fd| fs::read_link(fd.path()).ok());
        holds.any(|open| open == place).then_some(pid)
    })
}

#[tokio::test]
async fn groups_are_swept_when_the_supervisor_was_killed() {
    let temp = tempfile::tempdir().expect("tempdir");
    let state = temp.path().join("state");
    let client = UnixLocal::new().state_dir(&state);
    let machine = make(&client, all_limits(), Demand::Full).await;
    let id = id_of(machine.as_ref());
    let held = groups_of(&id).len();
    assert_eq!(held > 0, ["memory", "cpu", "pids"].into_iter().any(is_usable));
    // An ordinary user may not inspect a supervisor, which is not dumpable.
    let Some(pid) = supervisor_of(&state, &id) else {
        assert!(!rustix::process::geteuid().is_root(), "its supervisor is not found");
        return;
    };
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kill");
    assert_eq!(groups_of(&id).len(), held, "no process was left to remove them");
    drop(machine);
    // The next machine's supervisor sweeps; the last process of the dead machine may still be ending.
    soon(async {
        while !groups_of(&id).is_empty() || state.join(&id).exists() {
            let next = UnixLocal::new().state_dir(&state);
            let other = make(&next, Limits::default(), Demand::Full).await;
            other.stop().await.expect("stop");
        }
    })
    .await;
}

#[tokio::test]
async fn a_dropped_machine_leaves_no_group() {
    let machine = make(&UnixLocal::new(), all_limits(), Demand::Full).await;
    let id = id_of(machine.as_ref());
    drop(machine);
    soon(async {
        while !groups_of(&id).is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_workspace_that_is_too_large_already_is_refused() {
    let host = tempfile::tempdir().expect("tempdir");
    fs::write(host.path().join("large"), vec![1; 3 << 20]).expect("write");
    let with = |disk: u64| {
        MachineSpec::default()
            .workspace(Workspace::Host { path: host.path().to_owned(), access: Access::ReadWrite })
            .limits(Limits::default().disk(disk))
    };
    let error = soon(UnixLocal::new().create(with(2 * MIB))).await.map(drop).expect_err("refused");
    assert!(error.to_string().contains("the workspace already has"), "{error}");
    let machine = soon(UnixLocal::new().create(with(16 * MIB))).await.expect("create");
    assert!(run(machine.as_ref(), "cat large >more").await.1.success());
    // The file of the first command is counted by then, and not attributed to the second one. A command that is missed
    // once exceeds the limit again.
    let more = "i=0; while [ $i -lt 100 ]; do sleep 0.5; head -c 1000000 large >more$i; i=$((i+1)); done";
    let script = format!("sleep 2; cat large large large large large >much; cat much >again; {more}");
    let (_, exit) = run(machine.as_ref(), &script).await;
    assert_eq!(exit.reason, ExitReason::Disk);
    soon(machine.stop()).await.expect("stop");
}

#[tokio::test]
async fn files_in_closed_directories_and_in_the_home_count() {
    let limits = || Limits::default().disk(8 * MIB);
    let fill = "i=0; while [ $i -lt 40 ]; do head -c 1000000 /dev/zero >f$i; i=$((i+1)); done";
    for script in [
        format!("mkdir -p a/b && cd a/b && {fill}; cd ../..; chmod 0 a/b a; sleep 50"),
        format!("cd && {fill}; sleep 50"),
        format!("umask 077; mkdir own && cd own && {fill}; sleep 50"),
    ] {
        let machine = make(&UnixLocal::new(), limits(), Demand::Full).await;
        let (_, exit) = run(machine.as_ref(), &script).await;
        assert_eq!(exit.reason, ExitReason::Disk, "{script}");
        soon(machine.stop()).await.expect("stop");
    }
}

#[tokio::test]
async fn background_processes_of_a_command_are_watched_too() {
    let machine = make(&UnixLocal::new(), Limits::default().disk(8 * MIB), Demand::Full).await;
    // The loop never ends by itself, however late the guest checks, and becomes slower.
    let script = "( i=0; while :; do sleep 0.05; [ $i -lt 60 ] || sleep 0.5; head -c 1000000 /dev/zero >f$i; \
                  i=$((i+1)); echo x >>beat; done ) >/dev/null 2>&1 </dev/null &";
    assert!(run(machine.as_ref(), script).await.1.success());
    let beat = Target::from(MachinePath::new("/workspace/beat").expect("path"));
    let size = async || soon(machine.stat(&beat)).await.expect("stat").map_or(0, |entry| entry.size);
    soon(async {
        loop {
            let before = size().await;
            tokio::time::sleep(Duration::from_secs(3)).await;
            if before > 0 && size().await == before {
                return;
            }
        }
    })
    .await;
    soon(machine.stop()).await.expect("stop");
}

/// Runs a Python script on its own machine with this limit of memory in MiB.
async fn python_in(mebibytes: u64, script: &str) -> (String, Exit) {
    let limits = Limits::default().memory(mebibytes * MIB);
    let machine = make(&UnixLocal::new(), limits, Demand::Full).await;
    assert!(machine.features().limits.memory != Enforcement::Unavailable);
    let ran = run(machine.as_ref(), &format!("exec python3 - <<'END'\n{script}\nEND\n")).await;
    soon(machine.stop()).await.expect("stop");
    ran
}

#[tokio::test]
async fn too_much_memory_that_is_not_mapped_ends_its_command() {
    let fill = "import os, time, threading, ctypes\n\
                def fill(count):\n  \
                  for f in [os.memfd_create('x') for _ in range(count)]:\n    \
                    for _ in range(7): os.write(f, b'x' * (1 << 20))\n";
    // The kernel shows neither memory nor descriptors of a thread that has ended, even if its process still runs.
    let leave = "threading.Thread(target=lambda: (time.sleep(1), grow(), time.sleep(50))).start()\n\
                 ctypes.CDLL(None).pthread_exit(None)";
    for script in [
        format!("{fill}fill(30); time.sleep(50)"),
        format!("{fill}fill(1)\nif os.fork() == 0: fill(30); time.sleep(50)\nos.wait(); time.sleep(50)"),
        format!("{fill}def grow(): fill(30)\n{leave}"),
        format!("{fill}def grow():\n  global x; x = bytearray(b'x') * (200 << 20)\n{leave}"),
    ] {
        let (_, exit) = python_in(64, &script).await;
        assert_eq!(exit.reason, ExitReason::Memory, "{script}");
    }
}

#[tokio::test]
async fn memory_that_is_mapped_from_an_open_file_counts_once() {
    let script = "import mmap, os, time\n\
                  f = os.memfd_create('x'); os.ftruncate(f, 100 << 20); m = mmap.mmap(f, 100 << 20)\n\
                  for at in range(0, 100 << 20, 4096): m[at] = 1\n\
                  child = os.fork()\n\
                  for at in range(0, 100 << 20, 4096): m[at] += 1\n\
                  time.sleep(2)\n\
                  if child: os.waitpid(child, 0); print('done')";
    let (said, exit) = python_in(150, script).await;
    assert_eq!((said.as_str(), exit.success()), ("done\n", true), "{exit:?}");
}

#[tokio::test]
async fn memory_that_only_shows_a_file_on_disk_does_not_count() {
    let script = "import mmap, time\n\
                  with open('large', 'wb') as f:\n  \
                    for _ in range(200): f.write(b'x' * (1 << 20))\n\
                  f = open('large', 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)\n\
                  print(sum(m[at] for at in range(0, len(m), 4096)) // ord('x')); time.sleep(2); print('done')";
    let (said, exit) = python_in(100, script).await;
    assert_eq!((said.as_str(), exit.success()), ("51200\ndone\n", true), "{exit:?}");
}

#[tokio::test]
async fn what_was_deleted_elsewhere_is_not_on_this_disk() {
    let host = tempfile::tempdir().expect("a directory");
    let file = host.path().join("large");
    fs::write(&file, vec![b'x'; 30 << 20]).expect("write");
    let limits = Limits::default().disk(8 * MIB);
    let shown = HostMount {
        host: host.path().to_owned(),
        inside: MachinePath::new("/out").expect("path"),
        access: Access::ReadWrite,
        identity: None,
    };
    let spec = MachineSpec::default().limits(limits).mounts([shown]);
    let machine = soon(UnixLocal::new().create(spec)).await.expect("create");
    let script = "exec 3</out/large 4>/out/a 5>/out/b; rm /out/a /out/b /out/large; \
                  head -c 7000000 /dev/zero >&4; head -c 7000000 /dev/zero >&5; sleep 3; echo well";
    let (said, exit) = run(machine.as_ref(), script).await;
    assert_eq!((said.as_str(), exit.success()), ("well\n", true), "{exit:?}");
    soon(machine.stop()).await.expect("stop");
}

#[tokio::test]
async fn memory_that_moves_out_of_a_file_counts_once() {
    // The guest does not inspect that many descriptors every time.
    let script = "import os, time\n\
                  for _ in range(3000): os.dup(0)\n\
                  for _ in range(10):\n  \
                    f = os.memfd_create('x')\n  \
                    for _ in range(100): os.write(f, b'x' * (1 << 20))\n  \
                    time.sleep(0.2); os.close(f); x = bytearray(b'x') * (100 << 20); time.sleep(0.1); del x\n\
                  print('done')";
    let (said, exit) = python_in(150, script).await;
    assert_eq!((said.as_str(), exit.success()), ("done\n", true), "{exit:?}");
}

/// Not a test by itself: the one below runs it with a lower limit of open files than a machine asks for.
#[tokio::test]
async fn open_files_are_as_many_as_the_host_allows() {
    let most = fs::read_to_string("/proc/self/limits").expect("limits");
    let most = most.lines().find_map(|line| line.strip_prefix("Max open files")).expect("open files");
    let most: u64 = most.split_whitespace().nth(1).and_then(|hard| hard.parse().ok()).unwrap_or(u64::MAX);
    for isolation in [Demand::Full, Demand::Landlock, Demand::None] {
        let machine = make(&UnixLocal::new(), Limits::default(), isolation).await;
        let (said, exit) = run(machine.as_ref(), "ulimit -Hn").await;
        assert!(exit.success(), "{isolation}: {exit:?}");
        assert_eq!(said.trim(), most.min(Limits::default().open_files).to_string(), "{isolation}");
        soon(machine.stop()).await.expect("stop");
    }
}

#[test]
fn a_host_with_few_open_files_runs_commands_all_the_same() {
    let again = std::process::Command::new("prlimit")
        .args(["--nofile=512:512", "--"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "open_files_are_as_many_as_the_host_allows"])
        .output()
        .expect("prlimit runs");
    let said = String::from_utf8_lossy(&again.stdout);
    assert!(again.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&again.stderr));
}

#[test]
fn an_ordinary_user_is_held_as_well() {
    as_ordinary_user(&["what_", "a_", "the_", "groups_", "memory_", "open_"]);
}
