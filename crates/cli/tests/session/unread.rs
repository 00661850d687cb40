//! Commands of a session with unread output: signals end the command line, and the session continues.

use rustix::process::{Pid, Signal, kill_process};

use super::{
    made::Made,
    rig::{FRESH, each, ends_by_itself, unread},
};

#[test]
fn deadlines_and_signals_end_an_exec_with_unread_output() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        let words = ["session", "exec", "--timeout", "2s", &made.id, "--", "yes", "unread-session"];
        let mut child = sandbar.behind(&FRESH, &words).spawn().expect("spawn");
        let out = child.stdout.take();
        assert_eq!(ends_by_itself(child), 124);
        drop(out);
        let words = ["session", "exec", &made.id, "--", "yes", "unread-session"];
        let mut child = sandbar.behind(&FRESH, &words).spawn().expect("spawn");
        let out = unread(&mut child);
        kill_process(Pid::from_child(&child), Signal::TERM).expect("kill");
        assert_eq!(ends_by_itself(child), 143);
        drop(out);
        assert_eq!(made.does(&["exec", &made.id, "--", "echo", "alive"]), "alive\n");
    });
}

#[test]
fn a_signal_detaches_from_a_process_with_unread_output() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        let process = made.does(&["exec", "--detach", &made.id, "--", "yes", "unread-attached"]);
        let words = ["session", "attach", &made.id, process.trim()];
        let mut child = sandbar.behind(&FRESH, &words).spawn().expect("spawn");
        let out = unread(&mut child);
        kill_process(Pid::from_child(&child), Signal::TERM).expect("kill");
        assert_eq!(ends_by_itself(child), 0);
        drop(out);
        made.does(&["kill", &made.id, process.trim()]);
    });
}
