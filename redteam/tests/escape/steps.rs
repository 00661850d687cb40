//! Group K, one call at a time: a machine's making is stopped before each of its calls, and there the harness is killed or
//! the call fails.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use sandbar_redteam::sys::{addr, addr_mut, call, close};

use crate::escape::{
    faults::{CALLS, harness},
    lifetime::{reap_orphans, until_clean},
    rig::Rig,
    tally::Tally,
};

/// Longest wait for a harness that makes no call.
const PATIENCE: Duration = Duration::from_secs(60);
/// Argument of the call that the harness makes when its machine exists: a watched call with an argument that no program uses.
const MARK: u64 = 0x7EAD;

/// Where the harness is killed, or a call of it fails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Nowhere,
    Kill(usize),
    Fail(usize),
}

pub(crate) async fn run(rig: &Rig) {
    let mut tally = Tally::new(rig.mode);
    let all = watched(rig, &rig.scratch.path().join("steps"), At::Nowhere).await;
    let steps = all.calls.len();
    tally.expect("K78.steps", steps > 30 && all.held(), format!("{steps} calls, {}", all.said));
    let (mut killed, mut failed) = (Vec::new(), Vec::new());
    let start = Instant::now();
    for at in all.chosen() {
        let (step, troubles) = match at {
            At::Kill(step) => (step, &mut killed),
            At::Fail(step) => (step, &mut failed),
            At::Nowhere => continue,
        };
        let one = watched(rig, &rig.scratch.path().join("steps"), at).await;
        if !one.held() {
            troubles.push(format!("at {step}, {}: {} {:?}", all.name(step), one.said, one.clean));
        }
    }
    let took = start.elapsed();
    tally.expect("K78.killed-at-each-step", killed.is_empty(), format!("{steps} steps in {took:?}: {killed:?}"));
    tally.expect("K79.each-step-fails", failed.is_empty(), format!("{steps} steps in {took:?}: {failed:?}"));
    tally.finish("steps");
}

/// Result of one harness.
struct Watched {
    at: At,
    /// The calls until the machine was there, by number.
    calls: Vec<i32>,
    said: String,
    clean: Result<Duration, String>,
}

impl Watched {
    fn held(&self) -> bool {
        let typed = ["result isolation", "result start", "result whole"].iter().any(|word| self.said.contains(word));
        self.clean.is_ok() && (typed || matches!(self.at, At::Kill(_)))
    }

    /// Of each call the first, where the harness is killed, and the last, which fails: from the first on, all fail
    /// elsewhere. All of both, if asked for.
    fn chosen(&self) -> Vec<At> {
        let every = std::env::var("REDTEAM_STEPS").is_ok_and(|value| value == "all");
        let (steps, mut chosen) = (0..self.calls.len(), Vec::new());
        for step in steps {
            if every || !self.calls[..step].contains(&self.calls[step]) {
                chosen.push(At::Kill(step));
            }
            if every || !self.calls[step + 1..].contains(&self.calls[step]) {
                chosen.push(At::Fail(step));
            }
        }
        chosen
    }

    fn name(&self, step: usize) -> &'static str {
        let number = self.calls.get(step).map_or(0, |number| i64::from(*number));
        CALLS.iter().find(|(_, known, _)| *known == number).map_or("?", |(name, ..)| name)
    }
}

async fn watched(rig: &Rig, state: &Path, at: At) -> Watched {
    let mut child = harness(rig, state, "watched", Stdio::piped());
    let (listener, mut out) = take_listener(&mut child);
    let calls = answer(listener, &mut child, at);
    close(listener);
    let mut said = String::new();
    while out.read_line(&mut said).is_ok_and(|count| count > 0) {}
    let said = said.lines().find(|line| line.contains("result")).unwrap_or_default().to_owned();
    child.wait().expect("it ends");
    let clean = until_clean(state).await;
    reap_orphans();
    Watched { at, calls, said, clean }
}

/// The other end of the harness's filter, which is where its calls wait.
fn take_listener(child: &mut Child) -> (i32, BufReader<std::process::ChildStdout>) {
    let mut out = BufReader::new(child.stdout.take().expect("its output"));
    let mut line = String::new();
    let number = loop {
        line.clear();
        assert!(out.read_line(&mut line).is_ok_and(|count| count > 0), "the harness ended before it began");
        if let Some((_, number)) = line.split_once("listener ") {
            break number.trim().parse::<u64>().expect("a number");
        }
    };
    let pidfd = call(libc::SYS_pidfd_open, [u64::from(child.id()), 0]).expect("the harness");
    let listener = call(libc::SYS_pidfd_getfd, [pidfd as u64, number, 0]).expect("its listener");
    close(pidfd as i32);
    child.stdin.take().expect("its input").write_all(b"go\n").expect("it listens");
    (listener as i32, out)
}

/// Answers the calls of the harness, all but one with "continue", until no process can make any more. Returns the calls up to
/// the mark.
fn answer(listener: i32, child: &mut Child, at: At) -> Vec<i32> {
    const RECEIVE: u64 = 0xC050_2100;
    const SEND: u64 = 0xC018_2101;
    const CONTINUE: u64 = 1;
    let (start, mut calls, mut marked) = (Instant::now(), Vec::new(), false);
    while start.elapsed() < PATIENCE {
        let mut poll = [u64::from(listener as u32) | (libc::POLLIN as u64) << 32];
        let ready = call(libc::SYS_poll, [addr_mut(&mut poll), 1, 1000]);
        let events = (poll[0] >> 48) as i16;
        if events & libc::POLLIN == 0 {
            if ready.is_ok_and(|count| count > 0) {
                break;
            }
            continue;
        }
        let mut asked = [0u64; 10];
        if call(libc::SYS_ioctl, [listener as u64, RECEIVE, addr_mut(&mut asked)]).is_err() {
            continue;
        }
        let (number, first) = (asked[2] as i32, asked[4]);
        let step = calls.len();
        marked |= i64::from(number) == libc::SYS_flock && first == MARK;
        if !marked {
            calls.push(number);
        }
        let mut says = [asked[0], 0, CONTINUE << 32];
        match at {
            At::Kill(here) if here == step && !marked => child.kill().expect("kill -9"),
            // In the upper half are the flags, in the lower the error.
            At::Fail(here) if here == step && !marked => says[2] = u64::from((-libc::EPERM) as u32),
            _ => {}
        }
        let _it_may_be_gone = call(libc::SYS_ioctl, [listener as u64, SEND, addr(&says)]);
    }
    calls
}

/// In the harness: from now on every call that sets up isolation waits for an answer of the process that holds the listener.
pub(crate) fn wait_at_every_call() {
    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const ANY_BIT: u16 = 0x45;
    const RETURN: u16 = 0x06;
    const ASK: u32 = 0x7fc0_0000;
    let plain: Vec<u32> =
        CALLS.iter().filter(|(.., word)| word.is_none()).map(|(_, number, _)| *number as u32).collect();
    let mut program = vec![(LOAD, 0, 0, 0)];
    for (index, number) in plain.iter().enumerate() {
        // To the question at the end, over the numbers that are left and the five lines about clone.
        program.push((EQUAL, u8::try_from(plain.len() - index - 1 + 5).expect("few"), 0, *number));
    }
    program.push((EQUAL, 4, 0, libc::SYS_prctl as u32));
    program.push((EQUAL, 0, 2, libc::SYS_clone as u32));
    program.push((LOAD, 0, 0, 16));
    program.push((ANY_BIT, 1, 0, libc::CLONE_NEWUSER as u32));
    program.push((RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    program.push((RETURN, 0, 0, ASK));
    let bytes: Vec<u8> = program
        .iter()
        .flat_map(|(code, jt, jf, k)| [&code.to_ne_bytes()[..], &[*jt, *jf], &k.to_ne_bytes()].concat())
        .collect();
    let header = [program.len() as u64, addr(bytes.as_slice())];
    call(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as u64, 1, 0, 0, 0]).expect("no new privileges");
    let listener = call(libc::SYS_seccomp, [1, 1 << 3, addr(&header)]).expect("a listener");
    println!("listener {listener}");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the runner took the listener");
    close(listener as i32);
}

/// In the harness: the machine is there.
pub(crate) fn mark() {
    let _no_such_file = call(libc::SYS_flock, [MARK, 0]);
}
