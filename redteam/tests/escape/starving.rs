//! Group D: a command that leaves PID 1 no processor outlives neither its deadline, nor a stop, nor its owner.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Command as HostCommand, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use sandbar_machine::{Command, ExitReason, Machine, Output, Process};
use sandbar_redteam::sys::kill;
use tokio::time::{sleep, timeout};

use crate::escape::{
    canaries::in_own_session,
    engine::having,
    faults::{harness, line},
    lifetime::{reap_orphans, until_clean},
    rig::{Rig, finish, inside, token},
    tally::Tally,
};

/// Processes that compute beside PID 1, what a deadline is then, and what a process that stands in for PID 1 has to compute,
/// in milliseconds.
#[derive(Clone, Copy)]
struct Force {
    spinners: usize,
    deadline: Duration,
    work: u64,
}

/// How long any end may take on a busy host. The processes compute on for longer.
const PATIENCE: Duration = Duration::from_secs(120);
const SECONDS: u64 = 300;
/// How many times slower the process that stands in for PID 1 must become.
const SLOWER: u32 = 10;

/// A few processes: as much as a test may cost that runs every time.
pub(crate) async fn run(rig: &Rig) {
    starve(rig, Force { spinners: 8, deadline: Duration::from_secs(1), work: 20 }).await;
}

/// As many as once kept PID 1 from every deadline.
pub(crate) async fn run_many(rig: &Rig) {
    starve(rig, Force { spinners: 150, deadline: Duration::from_secs(3), work: 5 }).await;
}

async fn starve(rig: &Rig, force: Force) {
    let mut tally = Tally::new(rig.mode);
    unprotected(rig, force, &mut tally);
    deadline(rig, force, &mut tally).await;
    stop(rig, force, &mut tally).await;
    owner_killed(rig, force, &mut tally).await;
    tally.finish(&format!("starving ({})", force.spinners));
}

/// The attack on PID 1 of a machine.
pub(crate) fn on_pid1(spinners: usize, marker: &str) -> Command {
    let words = [format!("count={spinners}"), format!("marker={marker}"), format!("seconds={SECONDS}")];
    inside("starve", words.into_iter().chain(["pid=1".to_owned(), "inside=yes".to_owned()]))
}

/// A session of the host's whose processes are killed when this is dropped.
struct Host(Child);

impl Host {
    fn start(rig: &Rig, words: &[String]) -> Self {
        let mut command = HostCommand::new(rig.probe());
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(in_own_session(&mut command).spawn().expect("the probe runs"))
    }

    fn attack(rig: &Rig, pid: u32, force: Force) -> (Self, String) {
        let words = [format!("pid={pid}"), format!("count={}", force.spinners), format!("seconds={SECONDS}")];
        let words: Vec<String> = ["starve".to_owned()].into_iter().chain(words).collect();
        let mut attack = Self::start(rig, &words);
        let mut said = String::new();
        let out = attack.0.stdout.as_mut().expect("its output");
        BufReader::new(out).read_line(&mut said).expect("a line");
        (attack, said.trim().to_owned())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _own_group = kill(-self.0.id().cast_signed(), libc::SIGKILL);
        let _reaped = self.0.wait();
        reap_orphans();
    }
}

/// The same attack on a process of the host's that is the attacker's own and has something to do.
fn unprotected(rig: &Rig, force: Force, tally: &mut Tally) {
    let mut stand_in = Host::start(rig, &["work".to_owned(), format!("ms={}", force.work)]);
    let (done, is_done) = mpsc::channel();
    let mut out = stand_in.0.stdout.take().expect("its output");
    std::thread::spawn(move || while out.read_exact(&mut [0]).is_ok_and(|()| done.send(Instant::now()).is_ok()) {});
    let (beside, _) = Host::attack(rig, 0, force);
    let start = Instant::now();
    stand_in.0.stdin.as_mut().expect("its input").write_all(b".").expect("it waits for work");
    let end = is_done.recv_timeout(PATIENCE).expect("beside others it works on");
    let fair = end.duration_since(start);
    drop(beside);
    let (attack, said) = Host::attack(rig, stand_in.0.id(), force);
    stand_in.0.stdin.as_mut().expect("its input").write_all(b".").expect("it waits for work");
    let starved = is_done.recv_timeout(fair * SLOWER) == Err(mpsc::RecvTimeoutError::Timeout);
    drop(attack);
    tally.control(
        "D34",
        starved,
        &format!("a process of the host's that took {fair:?} is not done after {SLOWER} times that"),
    );
    let slowed = ["idle", "pin", "nice"].iter().all(|way| said.contains(way));
    tally.control("D34.slow-pid1", slowed, &format!("on the host, {said}"));
}

async fn deadline(rig: &Rig, force: Force, tally: &mut Tally) {
    let mut limit = force.deadline;
    let (mut ran, mut took, mut is_gone) = (None, Duration::ZERO, true);
    // A busy host may not have started them all before the end.
    for _ in 0..4 {
        let machine = rig.create(rig.spec(&rig.dir("workspace"))).await;
        let command = on_pid1(force.spinners, &token()).deadline(limit);
        let process = timeout(PATIENCE, machine.spawn(command)).await.expect("in time").expect("it starts");
        let start = Instant::now();
        let ended = timeout(PATIENCE, finish(process)).await.ok();
        took = start.elapsed();
        is_gone &= matches!(timeout(PATIENCE, machine.stop()).await, Ok(Ok(())));
        let is_told = ended.as_ref().is_some_and(|ran| ran.stdout.contains("starving"));
        ran = ended;
        if is_told || !is_gone {
            break;
        }
        limit *= 2;
    }
    let said = ran.as_ref().map(|ran| ran.stdout.trim().to_owned()).unwrap_or_default();
    let exit = ran.and_then(|ran| ran.exit);
    let held = is_gone && said.contains("starving") && exit.is_some_and(|exit| exit.reason == ExitReason::Deadline);
    let detail = format!("{said} {exit:?} after {took:?} of {limit:?}");
    tally.expect("D34.deadline", held, detail);
}

/// What the attack says when all of it runs.
async fn ready(process: &mut Process) -> String {
    let mut said = String::new();
    while !said.ends_with('\n') {
        match timeout(PATIENCE, process.output.recv()).await.expect("it says something") {
            Some(Ok(Output::Stdout(bytes) | Output::Stderr(bytes))) => said.push_str(&String::from_utf8_lossy(&bytes)),
            other => panic!("{said} {other:?}"),
        }
    }
    said.trim().to_owned()
}

async fn stop(rig: &Rig, force: Force, tally: &mut Tally) {
    let machine = rig.create(rig.spec(&rig.dir("workspace"))).await;
    let marker = token();
    let mut process = machine.spawn(on_pid1(force.spinners, &marker)).await.expect("it starts");
    let said = ready(&mut process).await;
    let all = said.contains(&format!("beside {};", force.spinners));
    tally.expect("D34.slow-pid1", all && said.contains("ways: ."), said);
    let start = Instant::now();
    let stopped = timeout(PATIENCE, machine.stop()).await;
    let left = left(rig, &marker).await;
    let held = matches!(stopped, Ok(Ok(()))) && left.is_empty();
    tally.expect("D34.stop", held, format!("{stopped:?}, gone after {:?}; left {left:?}", start.elapsed()));
}

async fn owner_killed(rig: &Rig, force: Force, tally: &mut Tally) {
    let (state, marker) = (rig.scratch.path().join("starving"), token());
    let mut owner = harness(rig, &state, &format!("starve {} {marker}", force.spinners), Stdio::null());
    let ready = line(&mut owner, "starving");
    let before = having(&marker).len();
    owner.kill().expect("kill -9");
    let start = Instant::now();
    owner.wait().expect("it is gone");
    let mut left = left(rig, &marker).await;
    reap_orphans();
    if !rig.mode.in_container() {
        left.extend(until_clean(&state).await.err());
    }
    reap_orphans();
    let held = ready.contains("starving") && before >= force.spinners && left.is_empty();
    tally.expect("D34.owner-killed", held, format!("{before} gone after {:?}; left {left:?}", start.elapsed()));
}

/// The part of the process that is to be killed.
pub(crate) async fn victim(machine: &dyn Machine, spinners: &str, marker: &str) {
    let spinners = spinners.parse().expect("a number");
    let mut process = machine.spawn(on_pid1(spinners, marker)).await.expect("it starts");
    println!("{}", ready(&mut process).await);
    sleep(PATIENCE).await;
}

/// The processes, and the containers, of an attack that are there after some time; they are killed then.
async fn left(rig: &Rig, marker: &str) -> Vec<String> {
    let start = Instant::now();
    loop {
        let mut left: Vec<String> = having(marker).into_iter().map(|pid| pid.to_string()).collect();
        if rig.mode.in_container() {
            let label = format!("label=sandbar.test={marker}");
            let listed = HostCommand::new("docker").args(["ps", "--all", "--quiet", "--filter", &label]).output();
            left.extend(String::from_utf8_lossy(&listed.expect("docker").stdout).lines().map(str::to_owned));
        }
        if left.is_empty() || start.elapsed() > PATIENCE {
            for pid in having(marker) {
                let _own = kill(pid, libc::SIGKILL);
            }
            return left;
        }
        sleep(Duration::from_millis(50)).await;
    }
}
