//! Group J: resources that the kernel limits per user or for the whole host, while one machine takes all it can get.

use std::{
    io::{BufRead, BufReader},
    process::{Command as HostCommand, Stdio},
    time::{Duration, Instant},
};

use sandbar_machine::{Command, ExitReason, Lifetime, Machine, Output};
use sandbar_redteam::sys::{addr, addr_mut, call};
use tokio::time::timeout;

use crate::escape::{
    rig::{Mode, Rig, SECOND_USER, SOON, inside, run as run_inside},
    tally::Tally,
};

/// Number of the attack, and the resource: counted per user, except terminals, which all machines of a host share.
const HOARDS: [(&str, &str); 4] = [
    ("J76.watches", "watches"),
    ("J76.queued-signals", "signals"),
    ("J76.queued-signals.of-the-guest", "signals-of-the-guest"),
    ("J76.terminals", "terminals"),
];

pub(crate) async fn run(rig: &Rig) {
    let mut tally = Tally::new(rig.mode);
    let workspace = rig.dir("workspace");
    let (greedy, other) = (rig.create(rig.spec(&workspace)).await, rig.create(rig.spec(&workspace)).await);
    for (name, what) in HOARDS {
        hoard(rig, (name, what), greedy.as_ref(), other.as_ref(), &mut tally).await;
    }
    machines_can_be_made(rig, greedy.as_ref(), &mut tally).await;
    many_small_files(rig, &mut tally).await;
    spin(rig, other.as_ref(), &mut tally).await;
    for machine in [greedy, other] {
        machine.stop().await.expect("stop");
    }
    tally.finish("hoards");
}

/// One machine takes everything; another machine, and the host, still get one.
async fn hoard(rig: &Rig, (name, what): (&str, &str), greedy: &dyn Machine, other: &dyn Machine, tally: &mut Tally) {
    // What the guest has too many of, others have too few of.
    let wanted = what.strip_suffix("-of-the-guest").unwrap_or(what);
    if what == wanted && what != "terminals" && rig.mode == Mode::Root {
        let (left, before) = goes_without(rig, what);
        let works = before == 1 && left == 0;
        tally.control(name, works, "a user who took them all goes without one more on the host");
    }
    let words = |more: &str| [format!("what={what}"), more.to_owned()];
    let mut hoarding = greedy.spawn(inside("hoard", words("stay=yes"))).await.expect("it starts");
    let taken = timeout(SOON, async {
        let mut said = String::new();
        while let Some(Ok(Output::Stdout(bytes))) = hoarding.output.recv().await {
            said.push_str(&String::from_utf8_lossy(&bytes));
            if said.ends_with('\n') {
                break;
            }
        }
        said.trim().to_owned()
    });
    let taken = taken.await.expect("it takes what there is");
    let one = [format!("what={wanted}"), "most=1".to_owned()];
    let there = run_inside(other, inside("hoard", one)).await.stdout;
    let here = host(rig, wanted, "").map(|output| String::from_utf8_lossy(&output).into_owned()).unwrap_or_default();
    let held = taken.starts_with("hoards") && there.starts_with("hoards 1") && here.starts_with("hoards 1");
    let detail = format!("it {taken}; another machine {:?}, the host {:?}", there.lines().next(), here.lines().next());
    tally.expect(name, held, detail);
    drop(hoarding);
}

/// A user's processes hand over descriptors while a machine has more of them on the way than the user may have.
async fn machines_can_be_made(rig: &Rig, greedy: &dyn Machine, tally: &mut Tally) {
    let words = ["what=descriptors-on-the-way", "most=100", "stay=yes"].map(str::to_owned);
    let mut hoarding = greedy.spawn(inside("hoard", words)).await.expect("it starts");
    let said = timeout(SOON, hoarding.output.recv()).await.expect("it takes what there is");
    let said = match said {
        Some(Ok(Output::Stdout(bytes))) => String::from_utf8_lossy(&bytes).trim().to_owned(),
        other => format!("{other:?}"),
    };
    let spec = rig.spec(&rig.dir("workspace")).lifetime(Lifetime::Detached);
    // What most hosts give a program that does not ask for more.
    let before = soft_limit(1024);
    let made = timeout(SOON, rig.client.create(spec)).await.expect("create in time");
    soft_limit(before);
    let (held, detail) = match made {
        Ok(machine) => (machine.stop().await.is_ok(), "another machine was made".to_owned()),
        Err(error) => (false, error.to_string()),
    };
    tally.expect("J76.descriptors-on-the-way", held && said.starts_with("hoards"), format!("it {said}; {detail}"));
    drop(hoarding);
}

/// Sets the limit of open files of this process, and returns the previous limit.
fn soft_limit(most: u64) -> u64 {
    let mut limit = [0u64; 2];
    let files = u64::from(libc::RLIMIT_NOFILE);
    call(libc::SYS_prlimit64, [0, files, 0, addr_mut(&mut limit)]).expect("its limit");
    call(libc::SYS_prlimit64, [0, files, addr(&[most, limit[1]]), 0]).expect("another limit");
    limit[0]
}

/// Output of the same program on the host, as the user that runs the machines, or as another user.
fn host(rig: &Rig, what: &str, user: &str) -> Option<Vec<u8>> {
    let mut command = if user.is_empty() { HostCommand::new(rig.probe()) } else { as_user(rig, user) };
    command.args(["hoard", &format!("what={what}"), "most=1"]).output().ok().map(|output| output.stdout)
}

fn as_user(rig: &Rig, user: &str) -> HostCommand {
    let mut command = HostCommand::new("setpriv");
    command.arg(format!("--reuid={user}")).arg(format!("--regid={user}")).arg("--clear-groups").arg(rig.probe());
    command
}

/// How many one user gets while the same user hoards them, and before. Not as root: other tests need root's share.
fn goes_without(rig: &Rig, what: &str) -> (i64, i64) {
    let user = SECOND_USER.to_string();
    let count = |said: Vec<u8>| {
        let said = String::from_utf8_lossy(&said).into_owned();
        said.split(' ').nth(1).and_then(|number| number.parse().ok()).unwrap_or(-1)
    };
    let before = host(rig, what, &user).map_or(-1, count);
    let mut hoarding = as_user(rig, &user);
    hoarding.args(["hoard", &format!("what={what}"), "stay=yes"]).stdout(Stdio::piped());
    let mut hoarding = hoarding.spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(hoarding.stdout.as_mut().expect("its output")).read_line(&mut line).expect("a line");
    let left = host(rig, what, &user).map_or(-1, count);
    hoarding.kill().expect("it ends");
    hoarding.wait().expect("it ended");
    (left, before)
}

/// Files without contents take memory all the same.
async fn many_small_files(rig: &Rig, tally: &mut Tally) {
    let limits = sandbar_machine::Limits::default().tmp_bytes(16 << 20);
    let machine = rig.create(rig.spec(&rig.dir("workspace")).limits(limits)).await;
    let count = 5000;
    let made = |said: &str| said.rsplit_once("reached 0 ").and_then(|(_, said)| said.split(' ').next()?.parse().ok());
    let place = tempfile::tempdir_in(rig.scratch.path()).expect("a directory");
    let words = [format!("dir={}", place.path().display()), format!("count={count}")];
    let host = HostCommand::new(rig.probe()).arg("names").args(words).output().expect("it runs");
    let works = made(&String::from_utf8_lossy(&host.stdout)).is_some_and(|made: i64| made >= count);
    tally.control("J73", works, "on the host they can be made");
    for dir in ["/tmp", "/dev/shm"] {
        let words = [format!("dir={dir}"), format!("count={count}")];
        let said = run_inside(machine.as_ref(), inside("names", words)).await.stdout;
        let held = made(&said).is_some_and(|made| made > 100 && made < count / 2);
        tally.expect(&format!("J73.files-without-end-in{}", dir.replace('/', "-")), held, said.trim());
    }
    machine.stop().await.expect("stop");
}

/// Every processor is busy: another machine works, and the deadline comes.
async fn spin(rig: &Rig, other: &dyn Machine, tally: &mut Tally) {
    let machine = rig.create(rig.spec(&rig.dir("workspace"))).await;
    let start = Instant::now();
    let spinning = machine.spawn(inside("spin", []).deadline(Duration::from_secs(2))).await.expect("it starts");
    let ran = run_inside(other, Command::new(["true"])).await;
    let took = start.elapsed();
    let ended = timeout(SOON, crate::escape::rig::finish(spinning)).await;
    let late = ended.is_ok_and(|ran| ran.exit.is_some_and(|exit| exit.reason == ExitReason::Deadline));
    let held = ran.exit.is_some_and(|exit| exit.success()) && late && start.elapsed() < SOON;
    tally.expect("J76.spin", held, format!("another command took {took:?}, all ended after {:?}", start.elapsed()));
    machine.stop().await.expect("stop");
}
