//! Unread output does not delay deadlines and signals, which end the command line with the right exit code.

use std::{io::Read, thread, time::Duration};

use rustix::process::{Pid, Signal, kill_process};

use super::rig::{FRESH, Sandbar, each, ends_by_itself, finish, unread};

#[test]
fn a_deadline_is_kept_although_the_output_is_not_read() {
    each(|sandbar| {
        for script in ["exec yes unread-line", "yes unread-line >&2 & exec yes unread-line"] {
            let words = ["exec", "--timeout", "2s", "--", "sh", "-c", script];
            let mut child = sandbar.behind(&FRESH, &words).spawn().expect("spawn");
            let (out, err) = (child.stdout.take(), child.stderr.take());
            assert_eq!(ends_by_itself(child), 124, "{script}");
            drop((out, err));
            sandbar.leaves_nothing("unread-line");
        }
    });
}

#[test]
fn one_signal_ends_a_command_with_unread_output() {
    each(|sandbar| {
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
            let mut child = sandbar.behind(&FRESH, &["exec", "--", "yes", "unread-word"]).spawn().expect("spawn");
            let out = unread(&mut child);
            kill_process(Pid::from_child(&child), signal).expect("kill");
            assert_eq!(ends_by_itself(child), code);
            drop(out);
            sandbar.leaves_nothing("unread-word");
        }
    });
}

#[test]
fn the_output_of_a_command_that_handles_a_signal_is_complete() {
    let sandbar = Sandbar::own();
    let script = "trap 'head -c 500000 /dev/zero; exit 7' TERM; head -c 300000 /dev/zero; while :; do sleep 0.1; done";
    let mut child = sandbar.behind(&FRESH, &["exec", "--", "sh", "-c", script]).spawn().expect("spawn");
    let mut out = unread(&mut child);
    kill_process(Pid::from_child(&child), Signal::TERM).expect("kill");
    let mut all = Vec::new();
    out.read_to_end(&mut all).expect("read");
    assert_eq!((finish(child).code, all.len()), (7, 800_000));
}

#[test]
fn a_late_reader_of_an_exited_command_gets_all_output() {
    let sandbar = Sandbar::own();
    let mut child = sandbar.command(&["exec", "--", "head", "-c", "3000000", "/dev/zero"]).spawn().expect("spawn");
    let mut out = unread(&mut child);
    thread::sleep(Duration::from_secs(2));
    assert!(child.try_wait().expect("wait").is_none(), "it waits for its reader");
    let mut all = Vec::new();
    out.read_to_end(&mut all).expect("read");
    assert_eq!((finish(child).code, all.len()), (0, 3_000_000));
}
