//! Every end of `exec` is quick, has the right exit code, and leaves nothing.

use std::{
    io::Read,
    process::Child,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::rig::{FRESH, PATIENCE, Sandbar, each, finish, insist, marked, nap, naps, sh, until};

fn start(sandbar: &Sandbar, script: &str) -> Child {
    sandbar.behind(&FRESH, &sh(script)).spawn().expect("spawn")
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("kill");
}

/// Waits until the command runs, not only the process that starts it.
fn running(marker: &str) {
    until("the command runs", PATIENCE, || marked(marker).iter().any(|line| line.starts_with(marker)));
}

/// Waits until the first line of the command arrives: from then on, signals are forwarded to the command.
fn ready(child: &mut Child) {
    let stdout = child.stdout.as_mut().expect("stdout");
    let mut line = [0; 6];
    stdout.read_exact(&mut line).expect("a first line");
    assert_eq!(&line, b"ready\n");
}

#[test]
fn a_signal_at_any_stage_ends_everything() {
    each(|sandbar| {
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
            for delay in [0, 1, 2, 5, 10, 50, 200] {
                let child = start(sandbar, &format!("exec {}", nap(5151)));
                thread::sleep(Duration::from_millis(delay));
                send(&child, signal);
                let run = finish(child);
                assert_eq!((run.code, run.stdout.as_str()), (code, ""), "after {delay} ms: {run:?}");
                assert_eq!(run.stderr, "", "after {delay} ms");
                sandbar.leaves_nothing(&naps());
            }
        }
    });
}

#[test]
fn a_command_can_handle_a_signal() {
    each(|sandbar| {
        let mut child = start(sandbar, &format!("trap 'echo bye; exit 3' TERM; echo ready; {} & wait", nap(6161)));
        ready(&mut child);
        running(&nap(6161));
        send(&child, Signal::TERM);
        let run = finish(child);
        assert_eq!((run.code, run.stdout.as_str()), (3, "bye\n"), "{run:?}");
        sandbar.leaves_nothing(&naps());
    });
}

#[test]
fn the_second_signal_kills_a_command_that_ignores_the_first() {
    each(|sandbar| {
        let script = format!("trap '' INT TERM; echo ready; {}; {}", nap(6262), nap(6263));
        let mut child = start(sandbar, &script);
        ready(&mut child);
        running(&nap(6262));
        send(&child, Signal::INT);
        thread::sleep(Duration::from_millis(300));
        assert!(!marked(&nap(6262)).is_empty(), "the first one is only a request");
        insist(&mut child, Signal::INT);
        assert_eq!(finish(child).code, 137);
        sandbar.leaves_nothing(&naps());
    });
}

#[test]
fn a_signal_the_caller_ignores_stays_ignored() {
    let sandbar = Sandbar::own();
    let words = sh("echo ready; sleep 0.5; echo still here");
    let mut child = sandbar.behind(&["env", "--ignore-signal=HUP"], &words).spawn().expect("spawn");
    ready(&mut child);
    send(&child, Signal::HUP);
    let run = finish(child);
    assert_eq!((run.code, run.stdout.as_str()), (0, "still here\n"), "{run:?}");
}

#[test]
fn a_killed_sandbar_leaves_nothing() {
    each(|sandbar| {
        let naps = [7171, 7172, 7173, 7174].map(nap);
        let [first, second, third, last] = &naps;
        let daemon = format!("setsid {first} & (setsid sh -c '{second} & {third}' &) ; exec {last}");
        let child = start(sandbar, &daemon);
        naps.iter().for_each(|nap| running(nap));
        assert!(!sandbar.left().is_empty(), "the state directory is elsewhere");
        send(&child, Signal::KILL);
        let begun = Instant::now();
        until("nothing is left", PATIENCE, || {
            sandbar.left().is_empty() && !naps.iter().any(|nap| marked(nap).iter().any(|line| line.starts_with(nap)))
        });
        println!("everything was gone after {:?}", begun.elapsed());
        assert_eq!(finish(child).code, 137);
        sandbar.leaves_nothing(&super::rig::naps());
    });
}

/// The first child of a process.
fn child_of(parent: u32) -> u32 {
    let mut found = None;
    until("it has a child", PATIENCE, || {
        let entries = std::fs::read_dir("/proc").expect("proc").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_child = |pid: &u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.lines().any(|line| line == format!("PPid:\t{parent}"))
        };
        found = pids.into_iter().find(is_child);
        found.is_some()
    });
    found.expect("a child")
}

#[test]
fn a_killed_sandbar_leaves_nothing_although_pid_1_is_stopped() {
    each(|sandbar| {
        let child = start(sandbar, &format!("exec {}", nap(7373)));
        running(&nap(7373));
        let pid1 = child_of(child_of(child.id()));
        let pid1 = Pid::from_raw(pid1.cast_signed()).expect("a number");
        kill_process(pid1, Signal::STOP).expect("stop");
        send(&child, Signal::KILL);
        assert_eq!(finish(child).code, 137);
        sandbar.leaves_nothing(&naps());
    });
}

#[test]
fn a_killed_sandbar_leaves_nothing_at_any_stage() {
    each(|sandbar| {
        for delay in [0, 1, 2, 3, 5, 8, 12, 20] {
            let child = start(sandbar, &format!("exec {}", nap(7272)));
            thread::sleep(Duration::from_millis(delay));
            send(&child, Signal::KILL);
            assert_eq!(finish(child).code, 137);
            sandbar.leaves_nothing(&naps());
        }
    });
}

#[test]
fn the_deadline_ends_daemons_too() {
    each(|sandbar| {
        let [first, second, last] = [8181, 8182, 8183].map(nap);
        let script = format!("(setsid sh -c '{first} & {second}' &) ; echo begun; exec {last}");
        // A busy machine may need longer to begin than a command has.
        for limit in ["500ms", "5s", "30s"] {
            let run = sandbar.run(&["exec", "--timeout", limit, "--", "sh", "-c", &script]);
            assert_eq!(run.code, 124, "{run:?}");
            assert!(run.stderr.starts_with("sandbar: ") && run.stderr.contains(limit), "{run:?}");
            assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
            sandbar.leaves_nothing(&naps());
            if limit == "30s" || !run.stdout.is_empty() {
                assert_eq!(run.stdout, "begun\n", "{run:?}");
                break;
            }
        }
        let quick = sandbar.run(&["exec", "--timeout", "5m", "--", "true"]);
        assert_eq!((quick.code, quick.stderr.as_str()), (0, ""));
    });
}
