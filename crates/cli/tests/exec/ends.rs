//! However it ends, it ends soon, with the right code, and nothing is left.

use std::{
    io::Read,
    process::Child,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::rig::{Sandbar, each, finish, marked, sh, until};

/// Undoes what the caller of the tests may have set: a shell's background jobs ignore Ctrl-C.
const FRESH: [&str; 2] = ["env", "--default-signal=INT,TERM,HUP,QUIT"];

/// What is left may take this long to go; the promise is a second, the machine may be busy.
const SOON: Duration = Duration::from_secs(10);

fn start(sandbar: &Sandbar, script: &str) -> Child {
    sandbar.behind(&FRESH, &sh(script)).spawn().expect("spawn")
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("kill");
}

/// Waits until the command itself, not the words that ask for it, is there.
fn running(marker: &str) {
    until("the command runs", SOON, || marked(marker).iter().any(|line| line.starts_with(marker)));
}

/// Waits until the command's first line has come through: from here on, a signal is the command's own affair.
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
                let marker = format!("sleep 5151.{}{delay}", signal.as_raw());
                let child = start(sandbar, &format!("exec {marker}"));
                thread::sleep(Duration::from_millis(delay));
                send(&child, signal);
                let begun = Instant::now();
                let run = finish(child);
                assert!(begun.elapsed() < SOON, "{:?} after {delay} ms", begun.elapsed());
                assert_eq!((run.code, run.stdout.as_str()), (code, ""), "after {delay} ms: {run:?}");
                assert_eq!(run.stderr, "", "after {delay} ms");
                sandbar.leaves_nothing(&marker, Duration::from_secs(1));
            }
        }
    });
}

#[test]
fn a_command_may_answer_a_signal_in_its_own_way() {
    each(|sandbar| {
        let script = "trap 'echo bye; exit 3' TERM; echo ready; sleep 6161.1 & wait";
        let mut child = start(sandbar, script);
        ready(&mut child);
        running("sleep 6161.1");
        send(&child, Signal::TERM);
        let run = finish(child);
        assert_eq!((run.code, run.stdout.as_str()), (3, "bye\n"), "{run:?}");
        sandbar.leaves_nothing("sleep 6161.1", SOON);
    });
}

#[test]
fn the_second_signal_kills_a_command_that_will_not_hear() {
    each(|sandbar| {
        let mut child = start(sandbar, "trap '' INT TERM; echo ready; sleep 6262.1; sleep 6262.2");
        ready(&mut child);
        running("sleep 6262.1");
        send(&child, Signal::INT);
        thread::sleep(Duration::from_millis(300));
        assert!(!marked("sleep 6262.1").is_empty(), "the first one is only a request");
        send(&child, Signal::INT);
        assert_eq!(finish(child).code, 137);
        sandbar.leaves_nothing("sleep 6262", SOON);
    });
}

#[test]
fn output_that_nobody_reads_does_not_keep_a_killed_command() {
    let sandbar = Sandbar::own();
    let mut child = start(&sandbar, "exec yes unread-marker");
    let unread = child.stdout.take();
    running("yes unread-marker");
    thread::sleep(Duration::from_millis(300));
    send(&child, Signal::TERM);
    thread::sleep(Duration::from_millis(300));
    send(&child, Signal::TERM);
    let run = finish(child);
    assert!(matches!(run.code, 137 | 143), "{run:?}");
    drop(unread);
    sandbar.leaves_nothing("unread-marker", SOON);
}

#[test]
fn a_signal_the_caller_ignores_stays_ignored() {
    let sandbar = Sandbar::own();
    let words = sh("sleep 0.5; echo still here");
    let child = sandbar.behind(&["env", "--ignore-signal=HUP"], &words).spawn().expect("spawn");
    thread::sleep(Duration::from_millis(200));
    send(&child, Signal::HUP);
    let run = finish(child);
    assert_eq!((run.code, run.stdout.as_str()), (0, "still here\n"), "{run:?}");
}

#[test]
fn a_killed_sandbar_leaves_nothing() {
    each(|sandbar| {
        let daemon = "setsid sleep 7171.1 & (setsid sh -c 'sleep 7171.2 & sleep 7171.3' &) ; exec sleep 7171.4";
        let child = start(sandbar, daemon);
        for marker in ["sleep 7171.1", "sleep 7171.2", "sleep 7171.3", "sleep 7171.4"] {
            running(marker);
        }
        assert!(!sandbar.left().is_empty(), "the state directory is elsewhere");
        send(&child, Signal::KILL);
        let begun = Instant::now();
        until("nothing is left", SOON, || {
            sandbar.left().is_empty() && !marked("sleep 7171").iter().any(|line| line.starts_with("sleep 7171"))
        });
        println!("everything was gone after {:?}", begun.elapsed());
        assert_eq!(finish(child).code, 137);
        sandbar.leaves_nothing("sleep 7171", SOON);
    });
}

#[test]
fn a_killed_sandbar_leaves_nothing_at_any_stage() {
    each(|sandbar| {
        for delay in [0, 1, 2, 3, 5, 8, 12, 20] {
            let child = start(sandbar, "exec sleep 7272.1");
            thread::sleep(Duration::from_millis(delay));
            send(&child, Signal::KILL);
            assert_eq!(finish(child).code, 137);
            sandbar.leaves_nothing("sleep 7272.1", SOON);
        }
    });
}

#[test]
fn the_deadline_ends_daemons_too() {
    each(|sandbar| {
        let script = "(setsid sh -c 'sleep 8181.1 & sleep 8181.2' &) ; echo begun; exec sleep 8181.3";
        let begun = Instant::now();
        let run = sandbar.run(&["exec", "--timeout", "500ms", "--", "sh", "-c", script]);
        assert!(begun.elapsed() < SOON);
        assert_eq!((run.code, run.stdout.as_str()), (124, "begun\n"), "{run:?}");
        assert!(run.stderr.starts_with("sandbar: ") && run.stderr.contains("500ms"), "{run:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
        sandbar.leaves_nothing("sleep 8181", Duration::from_secs(1));
        let quick = sandbar.run(&["exec", "--timeout", "20s", "--", "true"]);
        assert_eq!((quick.code, quick.stderr.as_str()), (0, ""));
    });
}
