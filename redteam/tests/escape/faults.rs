//! Group K: a harness that is killed at any moment, or crippled in any call, leaves nothing and runs nothing weaker.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command as HostCommand, Stdio},
    time::{Duration, Instant},
};

use sandbar_clients::UnixLocal;
use sandbar_machine::{Command, MachineError, MachineSpec, SandboxClient};
use sandbar_redteam::sys::{self, addr, call, kill};

use crate::escape::{
    lifetime::{reap_orphans, until_clean},
    rig::{Mode, Rig, docker, inside, run as run_inside},
    starving,
    steps::{mark, wait_at_every_call},
    tally::Tally,
};

/// A call by name and number, and its first argument where only that one is meant.
pub(crate) type Call = (&'static str, libc::c_long, Option<u32>);

/// The calls that put up the walls, and those around them: one at a time is made to fail.
pub(crate) const CALLS: &[Call] = &[
    ("clone-new-user", libc::SYS_clone, Some(libc::CLONE_NEWUSER as u32)),
    ("mount", libc::SYS_mount, None),
    ("umount2", libc::SYS_umount2, None),
    ("open_tree", libc::SYS_open_tree, None),
    ("move_mount", libc::SYS_move_mount, None),
    ("mount_setattr", libc::SYS_mount_setattr, None),
    ("fsopen", libc::SYS_fsopen, None),
    ("fsconfig", libc::SYS_fsconfig, None),
    ("fsmount", libc::SYS_fsmount, None),
    ("pivot_root", libc::SYS_pivot_root, None),
    ("fchdir", libc::SYS_fchdir, None),
    ("sethostname", libc::SYS_sethostname, None),
    ("landlock_create_ruleset", libc::SYS_landlock_create_ruleset, None),
    ("landlock_add_rule", libc::SYS_landlock_add_rule, None),
    ("landlock_restrict_self", libc::SYS_landlock_restrict_self, None),
    ("seccomp", libc::SYS_seccomp, None),
    ("capset", libc::SYS_capset, None),
    ("capget", libc::SYS_capget, None),
    ("setresuid", libc::SYS_setresuid, None),
    ("setresgid", libc::SYS_setresgid, None),
    ("setgroups", libc::SYS_setgroups, None),
    ("openat2", libc::SYS_openat2, None),
    ("close_range", libc::SYS_close_range, None),
    ("pidfd_open", libc::SYS_pidfd_open, None),
    ("flock", libc::SYS_flock, None),
    ("mkdirat", libc::SYS_mkdirat, None),
    ("symlinkat", libc::SYS_symlinkat, None),
    ("memfd_create", libc::SYS_memfd_create, None),
    ("signalfd4", libc::SYS_signalfd4, None),
    ("prlimit64", libc::SYS_prlimit64, None),
    ("prctl-no-new-privs", libc::SYS_prctl, Some(libc::PR_SET_NO_NEW_PRIVS as u32)),
    ("prctl-bounding-set", libc::SYS_prctl, Some(libc::PR_CAPBSET_DROP as u32)),
    ("prctl-parent-death", libc::SYS_prctl, Some(libc::PR_SET_PDEATHSIG as u32)),
    ("prctl-dumpable", libc::SYS_prctl, Some(libc::PR_SET_DUMPABLE as u32)),
    ("prctl-subreaper", libc::SYS_prctl, Some(libc::PR_SET_CHILD_SUBREAPER as u32)),
];

pub(crate) async fn run(rig: &Rig) {
    let mut tally = Tally::new(rig.mode);
    killed(rig, &mut tally).await;
    killed_while_creating(rig, &mut tally).await;
    for call in CALLS {
        for errno in [libc::EPERM, libc::ENOSYS] {
            crippled(rig, call, errno, &mut tally).await;
        }
    }
    tally.finish("faults");
}

/// This binary again, as a harness of its own.
pub(crate) fn harness(rig: &Rig, state: &Path, job: &str, input: Stdio) -> Child {
    HostCommand::new(rig.kit.join("escape"))
        .args(["--exact", "a_harness_to_be_killed", "--nocapture", "--test-threads=1"])
        .env("REDTEAM_JOB", job)
        .env("REDTEAM_STATE", state)
        .env("REDTEAM_MODE", rig.mode.name())
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a harness")
}

/// The line that begins with a word.
pub(crate) fn line(child: &mut Child, word: &str) -> String {
    let out = child.stdout.as_mut().expect("its output");
    let found = BufReader::new(out).lines().map_while(Result::ok).find(|line| line.contains(word));
    found.unwrap_or_default()
}

/// Number 29: SIGKILL to a harness with a daemon in its machine.
async fn killed(rig: &Rig, tally: &mut Tally) {
    let state = rig.scratch.path().join("killed");
    let mut child = harness(rig, &state, "daemon", Stdio::null());
    let ready = line(&mut child, "ready");
    let before = crate::escape::lifetime::descendants().len();
    child.kill().expect("kill -9");
    let start = Instant::now();
    child.wait().expect("it is gone");
    let clean = until_clean(&state).await;
    reap_orphans();
    let held = ready.contains("ready") && before >= 4 && clean.is_ok();
    tally.control("D29", before >= 4, "they lived until then");
    tally.expect(
        "D29.harness-killed",
        held,
        format!("{before} processes, all gone after {:?}: {clean:?}", start.elapsed()),
    );
}

/// Number 78: SIGKILL at many moments of a machine's making.
async fn killed_while_creating(rig: &Rig, tally: &mut Tally) {
    let state = rig.scratch.path().join("killed-early");
    let (mut worst, mut troubles) = (Duration::ZERO, Vec::new());
    for step in 0..40u32 {
        let mut child = harness(rig, &state, "create", Stdio::null());
        let began = line(&mut child, "go");
        std::thread::sleep(Duration::from_micros(250) * step);
        let _already_gone = child.kill();
        child.wait().expect("it is gone");
        match until_clean(&state).await {
            Ok(took) => worst = worst.max(took),
            Err(left) => troubles.push(format!("at {} us: {left}", step * 250)),
        }
        if began.is_empty() {
            troubles.push("the harness did not begin".to_owned());
        }
        reap_orphans();
    }
    tally.expect(
        "K78.killed-while-creating",
        troubles.is_empty(),
        format!("40 moments, clean after at most {worst:?}; {troubles:?}"),
    );
}

/// Number 79: one call fails; either nothing runs, or all walls stand.
async fn crippled(rig: &Rig, (name, number, argument): &Call, errno: i32, tally: &mut Tally) {
    let state = rig.scratch.path().join("crippled");
    let argument = argument.map_or_else(|| "-".to_owned(), |argument| argument.to_string());
    let mut child = harness(rig, &state, &format!("cripple {number} {argument} {errno}"), Stdio::null());
    let said = line(&mut child, "result");
    child.wait().expect("it ends");
    let clean = until_clean(&state).await;
    reap_orphans();
    let held = (said.contains("result isolation") || said.contains("result start") || said.contains("result whole"))
        && clean.is_ok();
    let which = if errno == libc::EPERM { "eperm" } else { "enosys" };
    tally.expect(&format!("K79.{name}-{which}"), held, format!("{said}; {clean:?}"));
}

/// What the other process does.
pub(crate) fn victim() {
    let Ok(job) = std::env::var("REDTEAM_JOB") else { return };
    let state = std::env::var("REDTEAM_STATE").expect("a state directory");
    let words: Vec<&str> = job.split(' ').collect();
    if let ["cripple", number, argument, errno] = words.as_slice() {
        let numbers = [number, errno].map(|word| word.parse::<u32>().expect("a number"));
        cripple(numbers[0], argument.parse().ok(), numbers[1]);
    }
    if words[0] == "watched" {
        wait_at_every_call();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let in_container = std::env::var("REDTEAM_MODE").as_deref() == Ok(Mode::Docker.name());
        let client: Box<dyn SandboxClient> = match words.as_slice() {
            ["starve", _, marker] if in_container => Box::new(docker().label("sandbar.test", *marker)),
            _ => Box::new(UnixLocal::new().state_dir(state)),
        };
        println!("go");
        let mut spec = MachineSpec::default();
        if words[0] != "create" {
            spec.mounts = vec![sandbar_machine::HostMount {
                host: std::env::current_exe().expect("this program").parent().expect("its directory").to_owned(),
                inside: sandbar_machine::MachinePath::new("/probe").expect("a path"),
                access: sandbar_machine::Access::ReadOnly,
                identity: None,
            }];
        }
        let machine = client.create(spec).await;
        if words[0] == "watched" {
            mark();
        }
        match (words[0], machine) {
            ("daemon", Ok(machine)) => {
                let ran = run_inside(machine.as_ref(), inside("daemon", [])).await;
                println!("ready {:?}", ran.exit);
                std::thread::sleep(Duration::from_secs(60));
            }
            ("starve", Ok(machine)) => starving::victim(machine.as_ref(), words[1], words[2]).await,
            ("cripple" | "watched", Ok(machine)) => {
                let mode = if std::env::var("REDTEAM_MODE").as_deref() == Ok("root") { Mode::Root } else { Mode::User };
                println!("result {} {}", verdict(machine.as_ref()).await, mode.name());
                let _may_be_crippled = machine.stop().await;
            }
            ("cripple" | "watched", Err(error)) => {
                let kind = match &error {
                    MachineError::Isolation { .. } => "isolation",
                    MachineError::Start { .. } => "start",
                    _ => "UNTYPED",
                };
                println!("result {kind}: {error} ({:?})", std::error::Error::source(&error).map(ToString::to_string));
            }
            (_, made) => {
                std::thread::sleep(Duration::from_millis(100));
                drop(made);
            }
        }
    });
}

/// A machine that came up all the same must have all its walls, or refuse to run anything.
async fn verdict(machine: &dyn sandbar_machine::Machine) -> String {
    let mut reached = Vec::new();
    let mut refusals = 0;
    for attack in [
        "E33.new-privileges",
        "E33.capabilities",
        "E32.new-user-namespace",
        "E38.ia32-call",
        "A4.write-usr",
        "C19.memory-of-pid1",
    ] {
        let command = inside(attack, ["pid=1".to_owned(), "token=k79".to_owned()]);
        match machine.spawn(command).await {
            Ok(process) => {
                let ran = crate::escape::rig::finish(process).await;
                if !ran.stdout.contains(&format!("{attack} refused")) {
                    reached.push(format!("{attack}: {} {:?}", ran.stdout.trim(), ran.exit));
                }
            }
            Err(_) => refusals += 1,
        }
    }
    let plain = machine.spawn(Command::new(["true"])).await.is_ok();
    if reached.is_empty() {
        format!("whole, {refusals} refused to start, true starts: {plain}")
    } else {
        format!("WEAKER {reached:?}")
    }
}

/// From now on this thread, and what it starts, gets `errno` from one call.
fn cripple(number: u32, argument: Option<u32>, errno: u32) {
    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const ANY_BIT: u16 = 0x45;
    const RETURN: u16 = 0x06;
    let is_clone = i64::from(number) == libc::SYS_clone;
    let second: Vec<(u16, u8, u8, u32)> = match argument {
        None => vec![],
        Some(value) => vec![(LOAD, 0, 0, 16), (if is_clone { ANY_BIT } else { EQUAL }, 0, 1, value)],
    };
    let mut program = vec![(LOAD, 0, 0, 0), (EQUAL, 0, u8::try_from(second.len()).expect("short") + 1, number)];
    program.extend(second);
    program.push((RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno));
    program.push((RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    let bytes: Vec<u8> = program
        .iter()
        .flat_map(|(code, jt, jf, k)| [&code.to_ne_bytes()[..], &[*jt, *jf], &k.to_ne_bytes()].concat())
        .collect();
    let header = [program.len() as u64, addr(bytes.as_slice())];
    call(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as u64, 1, 0, 0, 0]).expect("no new privileges");
    call(libc::SYS_seccomp, [1, 0, addr(&header)]).expect("an outer filter");
    let _shows_that_it_bites = (sys::errno(), kill(0, 0));
}
