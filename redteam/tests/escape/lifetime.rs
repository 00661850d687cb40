//! Groups D and K: nothing outlives its deadline, its machine or its harness, however it tries.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    time::{Duration, Instant},
};

use futures::future::join_all;
use sandbar_clients::UnixLocal;
use sandbar_machine::{Command, ExitReason, Machine, MachinePath, MachineSpec, SandboxClient, ScanOptions, Target};
use sandbar_redteam::sys::{call, kill};
use tokio::time::{sleep, timeout};

use crate::escape::{
    rig::{Rig, SOON, finish, inside, run as run_inside, until},
    tally::Tally,
};

/// The promise is 1 s; a host that holds processes up may take this long. What it took is printed.
const GONE: Duration = SOON;

pub(crate) async fn run(rig: &Rig) {
    let mut tally = Tally::new(rig.mode);
    deadlines(rig, &mut tally).await;
    hopping(rig, &mut tally).await;
    stopping(rig, &mut tally).await;
    if rig.mode.in_container() {
        return tally.finish("lifetime");
    }
    killed_from_outside(rig, &mut tally).await;
    stale_directories(rig, &mut tally).await;
    many(rig, &mut tally).await;
    tally.finish("lifetime");
}

/// Every living process that descends from this one.
pub(crate) fn descendants() -> Vec<(i32, String)> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((head, rest)) = stat.rsplit_once(") ") else { continue };
        let mut fields = rest.split(' ');
        let (state, parent) =
            (fields.next().unwrap_or_default(), fields.next().and_then(|ppid| ppid.parse::<i32>().ok()));
        let name = head.split_once('(').map_or("", |(_, name)| name).to_owned();
        all.push((pid, parent.unwrap_or(0), state == "Z", name));
    }
    let mut family = BTreeSet::from([std::process::id() as i32]);
    loop {
        let before = family.len();
        family.extend(
            all.iter().filter(|(_, parent, ..)| family.contains(parent)).map(|(pid, ..)| *pid).collect::<Vec<_>>(),
        );
        if family.len() == before {
            break;
        }
    }
    let me = std::process::id() as i32;
    all.into_iter()
        .filter(|(pid, _, dead, _)| family.contains(pid) && *pid != me && !dead)
        .map(|(pid, _, _, name)| (pid, name))
        .collect()
}

/// Waits until no process descends from this one and nothing is in the state directory; what is left, otherwise.
pub(crate) async fn until_clean(state: &Path) -> Result<Duration, String> {
    let start = Instant::now();
    loop {
        let processes = descendants();
        let dirs = fs::read_dir(state).map_or(0, |entries| entries.flatten().count());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mounts = mounts.lines().filter(|line| line.contains(&state.display().to_string())).count();
        if processes.is_empty() && dirs == 0 && mounts == 0 {
            return Ok(start.elapsed());
        }
        if start.elapsed() > GONE {
            return Err(format!("{processes:?}, {dirs} directories and {mounts} mounts left after {GONE:?}"));
        }
        sleep(Duration::from_millis(2)).await;
    }
}

async fn counts(machine: &dyn Machine) -> usize {
    let ran = run_inside(machine, Command::new(["sh", "-c", "set -- /proc/[0-9]*; echo $#"])).await;
    ran.stdout.trim().parse().unwrap_or(usize::MAX)
}

/// How often each chain is tried.
const HOPS: usize = 10;

/// Whether a daemon on the host outlives the process that started it.
pub(crate) fn a_daemon_survives(rig: &Rig) -> bool {
    let started = std::process::Command::new(rig.probe()).arg("daemon").output().is_ok();
    let daemons: Vec<i32> = descendants().into_iter().filter(|(_, name)| name == "probe").map(|(pid, _)| pid).collect();
    for daemon in &daemons {
        let _own_child = kill(*daemon, libc::SIGKILL);
    }
    std::thread::sleep(Duration::from_millis(20));
    reap_orphans();
    started && !daemons.is_empty()
}

async fn deadlines(rig: &Rig, tally: &mut Tally) {
    tally.control("D29", a_daemon_survives(rig), "on the host a daemon outlives the process that started it");
    let machine = rig.create(rig.spec(&rig.dir("workspace"))).await;
    for (name, storm) in [("D30.ignore-every-signal", "stubborn"), ("D29.daemonise", "daemon")] {
        let command = inside(storm, ["stay=yes".to_owned()]).deadline(Duration::from_millis(500));
        let start = Instant::now();
        let ran = run_inside(machine.as_ref(), command).await;
        let late = ran.exit.is_some_and(|exit| exit.reason == ExitReason::Deadline);
        let took = start.elapsed();
        let alone = quiet(machine.as_ref()).await;
        tally.expect(name, late && alone, format!("{:?} after {took:?}, nothing is left: {alone}", ran.exit));
    }
    machine.stop().await.expect("stop");
}

/// Whether only the guest and the shell that counts are left: what is killed takes a moment to be gone.
async fn quiet(machine: &dyn Machine) -> bool {
    until(async || counts(machine).await <= 2).await
}

/// Chains of short-lived processes must not slip between the guest's looks.
async fn hopping(rig: &Rig, tally: &mut Tally) {
    for chains in [1, 2, 8, 64] {
        let (mut survivors, mut on_time, mut seen) = (0, true, String::new());
        let hops = if rig.mode.in_container() { HOPS / 5 } else { HOPS };
        for _ in 0..hops {
            let machine = rig.create(rig.spec(&rig.dir("workspace"))).await;
            let command = inside("hop", [format!("chains={chains}")]).deadline(Duration::from_millis(200));
            let ran = run_inside(machine.as_ref(), command).await;
            on_time &= ran.exit.is_some_and(|exit| exit.reason == ExitReason::Deadline);
            if !quiet(machine.as_ref()).await {
                survivors += 1;
                let states = "for p in /proc/[0-9]*; do cut -d' ' -f1-4 $p/stat; done";
                seen =
                    run_inside(machine.as_ref(), Command::new(["sh", "-c", states])).await.stdout.replace('\n', "; ");
            }
            machine.stop().await.expect("stop");
        }
        let detail = format!("survived {survivors} of {hops} deadlines {seen}");
        tally.expect(&format!("D29.hop-between-processes-{chains}"), on_time && survivors == 0, detail);
    }
}

/// A command that stops every process it can must stop neither the guest nor its own end.
async fn stopping(rig: &Rig, tally: &mut Tally) {
    let workspace = rig.dir("workspace");
    let machine = rig.create(rig.spec(&workspace)).await;
    // Far longer than any wait of this test, so that the storm never ends by itself.
    let words = || ["ms=600000".to_owned()];
    let storm = inside("stop-all", words()).deadline(Duration::from_millis(1500));
    let start = Instant::now();
    let storm = machine.spawn(storm).await.expect("the storm starts");
    let mut spawned = Vec::new();
    while start.elapsed() < Duration::from_millis(1200) {
        let one = timeout(Duration::from_millis(300), machine.spawn(Command::new(["true"]))).await;
        spawned.push(one);
    }
    let ended = timeout(SOON, finish(storm)).await;
    let on_time = ended.as_ref().is_ok_and(|ran| ran.exit.is_some_and(|exit| exit.reason == ExitReason::Deadline));
    tally.expect(
        "D26.stop-commands-before-they-start",
        on_time,
        format!("{} spawned, ended after {:?}: {}", spawned.len(), start.elapsed(), on_time),
    );
    drop(spawned);
    let stopped = timeout(SOON, machine.stop()).await;
    tally.expect("D26.machine-can-be-stopped", matches!(stopped, Ok(Ok(()))), format!("{stopped:?}"));

    let machine = rig.create(rig.spec(&workspace)).await;
    run_inside(
        machine.as_ref(),
        Command::new(["sh", "-c", "for i in $(seq 300); do mkdir -p t/$i; echo x > t/$i/f; done"]),
    )
    .await;
    let storm = machine.spawn(inside("stop-all", words())).await.expect("the storm starts");
    sleep(Duration::from_millis(50)).await;
    let target = Target::from(MachinePath::workspace());
    let answer = timeout(SOON, machine.scan(&target, &ScanOptions::default())).await;
    tally.expect(
        "D26.stop-file-work",
        answer.is_ok(),
        format!("{:?}", answer.map(|all| all.map(|all| all.entries.len()))),
    );
    drop(storm);
    let stopped = timeout(SOON, machine.stop()).await;
    tally.expect("D26.machine-can-be-stopped-again", matches!(stopped, Ok(Ok(()))), format!("{stopped:?}"));
}

/// A process of the host kills a part of the machine.
async fn killed_from_outside(rig: &Rig, tally: &mut Tally) {
    for (name, which) in [("K78.supervisor-killed", 0), ("K78.pid1-killed", 1)] {
        let state = rig.scratch.path().join(format!("state-{which}"));
        // No process of an earlier machine may be mistaken for one of this machine.
        until_clean(&state).await.expect("nothing before");
        let machine =
            UnixLocal::new().state_dir(&state).create(rig.spec(&rig.dir("workspace"))).await.expect("a machine");
        let daemon = run_inside(machine.as_ref(), inside("daemon", [])).await;
        let family = descendants();
        // The supervisor was started first; the guest is its child.
        let guests: Vec<i32> = family.iter().filter(|(_, name)| name != "probe").map(|(pid, _)| *pid).collect();
        let victim = guests.get(which).copied().unwrap_or(0);
        let killed = victim > 1 && kill(victim, libc::SIGKILL).is_ok();
        let refused = timeout(SOON, machine.spawn(Command::new(["true"]))).await.is_ok_and(|spawned| spawned.is_err());
        let stop = timeout(SOON, machine.stop()).await;
        drop(machine);
        // A guest that is not gone yet keeps its directory locked.
        until(async || descendants().is_empty()).await;
        // The next start removes what a killed supervisor left.
        let next = UnixLocal::new().state_dir(&state).create(MachineSpec::default()).await.expect("another machine");
        next.stop().await.expect("stop");
        drop(next);
        let clean = until_clean(&state).await;
        let held = killed && daemon.exit.is_some() && clean.is_ok();
        tally.expect(name, held, format!("{victim} of {family:?}; spawn refused: {refused}; stop {stop:?}; {clean:?}"));
    }
}

/// What a power cut left is removed at the next start, and links in it are not followed.
async fn stale_directories(rig: &Rig, tally: &mut Tally) {
    let (state, canary) = (rig.dir("stale-state"), rig.dir("stale-canary"));
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).expect("a private directory");
    fs::write(canary.join("f"), "kept").expect("a canary");
    let stale = state.join("0123456789abcdef/home/deep");
    fs::create_dir_all(&stale).expect("a stale directory");
    fs::write(state.join("0123456789abcdef/.sandbar"), "").expect("a machine's mark");
    symlink(&canary, stale.join("link")).expect("a link");
    fs::create_dir(stale.join("locked")).expect("a directory");
    fs::set_permissions(stale.join("locked"), fs::Permissions::from_mode(0o000)).expect("locked");
    let machine = UnixLocal::new().state_dir(&state).create(MachineSpec::default()).await.expect("a machine");
    let left = || {
        let entries = fs::read_dir(&state).expect("the state directory").flatten();
        entries.map(|entry| entry.file_name()).collect::<Vec<_>>()
    };
    // The machine does not wait for it.
    until(async || left().len() == 1).await;
    let left = left();
    machine.stop().await.expect("stop");
    let held = left.len() == 1 && fs::read_to_string(canary.join("f")).is_ok_and(|text| text == "kept");
    tally.expect("K78.stale-directories-are-swept", held, format!("{left:?}"));
}

/// Number 80: many machines at once, and nothing left of them.
async fn many(rig: &Rig, tally: &mut Tally) {
    let state = rig.scratch.path().join("many-state");
    let client = UnixLocal::new().state_dir(&state);
    let fds = || fs::read_dir("/proc/self/fd").expect("descriptors").count();
    // Whatever is opened once and kept is opened now.
    client.create(MachineSpec::default()).await.expect("a machine").stop().await.expect("stop");
    let (fds_before, rss_before) = (fds(), rss());
    let start = Instant::now();
    for _ in 0..4 {
        let made = join_all((0..50).map(|_| async {
            let machine = client.create(MachineSpec::default()).await.expect("a machine");
            let ran = run_inside(machine.as_ref(), Command::new(["true"])).await;
            assert!(ran.exit.is_some_and(|exit| exit.success()), "true succeeds");
            machine
        }))
        .await;
        // Where fifty end at once, one may take longer than a stop waits; it is asked again.
        let stopped = join_all(made.iter().map(|machine| until(async move || machine.stop().await.is_ok()))).await;
        assert!(stopped.into_iter().all(|stopped| stopped), "stop");
    }
    let took = start.elapsed();
    let clean = until_clean(&state).await;
    let closed = until(async || fds() <= fds_before + 2).await;
    let (fds_after, rss_after) = (fds(), rss());
    let held = clean.is_ok() && closed;
    let detail =
        format!("200 in {took:?}; descriptors {fds_before} to {fds_after}, {rss_before} to {rss_after} KiB; {clean:?}");
    tally.expect("K80.two-hundred-machines", held, detail);
}

/// This process's memory in KiB.
pub(crate) fn rss() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Takes an orphan that ended off the list, if it is one.
pub(crate) fn reap_orphans() {
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok()) else { continue };
        let _not_ours = call(libc::SYS_wait4, [pid, 0, libc::WNOHANG as u64, 0]);
    }
}
