//! Terminals: input, resizing, Ctrl-C, and restoring the mode.

use std::{thread, time::Duration};

use rustix::process::Signal;

use super::{
    rig::{PATIENCE, Sandbar, each, marked, nap, naps, until},
    screen::{Terminal, resize},
};

#[test]
fn a_shell_on_a_terminal_is_usable() {
    each(|sandbar| {
        let mut terminal = Terminal::open(sandbar, &["exec", "--tty", "--env", "PS1=ready> ", "--", "sh"]);
        terminal.shows("ready> ");
        assert!(terminal.is_raw());
        terminal.types("stty size; echo $TERM; test -t 0 && test -t 1 && test -t 2 && echo all''three\r");
        terminal.shows("30 100\r\n");
        terminal.shows("xterm\r\n");
        terminal.shows("allthree\r\n");
        resize(&terminal.keyboard, 40, 120);
        until("the new size is there", PATIENCE, || {
            terminal.types("stty size\r");
            thread::sleep(Duration::from_millis(50));
            terminal.shown().contains("40 120\r\n")
        });
        terminal.types(&format!("{}\r", nap(9191)));
        until("sleep runs", PATIENCE, || marked(&nap(9191)).iter().any(|line| line.starts_with("sleep")));
        terminal.types("\x03");
        until("sleep is gone", PATIENCE, || marked(&nap(9191)).is_empty());
        terminal.types("echo code=$?\r");
        terminal.shows("code=130\r\n");
        terminal.types("exit 7\r");
        let (run, _) = terminal.ends();
        assert_eq!(run.code, 7);
        assert!(sandbar.left().is_empty());
    });
}

#[test]
fn the_end_of_input_key_ends_a_shell() {
    let sandbar = Sandbar::own();
    let mut terminal = Terminal::open(&sandbar, &["exec", "--tty", "--env", "PS1=ready> ", "--", "sh"]);
    terminal.shows("ready> ");
    terminal.types("\x04");
    assert_eq!(terminal.ends().0.code, 0);
}

#[test]
fn a_full_screen_program_has_the_whole_screen() {
    let sandbar = Sandbar::own();
    let script = "seq 1000 | less";
    let mut terminal = Terminal::open(&sandbar, &["exec", "--tty", "--", "sh", "-c", script]);
    terminal.shows("\r\n29");
    assert!(!terminal.shown().contains("\r\n30\r\n"), "more than a screen of 30 lines");
    terminal.types("G");
    terminal.shows("1000");
    terminal.types("q");
    assert_eq!(terminal.ends().0.code, 0);
}

#[test]
fn the_terminal_is_restored_when_a_signal_ends_sandbar() {
    each(|sandbar| {
        for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
            let script = format!("trap '' TERM INT HUP; echo deaf; {}; {}", nap(9292), nap(9293));
            let terminal = Terminal::open(sandbar, &["exec", "--tty", "--", "sh", "-c", &script]);
            terminal.shows("deaf\r\n");
            assert!(terminal.is_raw());
            terminal.signal(signal);
            let (run, _) = terminal.ends();
            assert!(run.code > 128, "{run:?}");
            sandbar.leaves_nothing(&naps());
        }
    });
}

#[test]
fn without_tty_a_terminal_is_not_an_input_and_ctrl_c_is_a_signal() {
    each(|sandbar| {
        let terminal = Terminal::open(sandbar, &["exec", "--", "sh", "-c", "cat; test -t 1 || echo no terminal"]);
        let (run, shown) = terminal.ends();
        assert_eq!((run.code, shown.as_str()), (0, "no terminal\r\n"));
        let mut terminal = Terminal::open(sandbar, &["exec", "--", "sh", "-c", &format!("exec {}", nap(9393))]);
        until("sleep runs", PATIENCE, || marked(&nap(9393)).iter().any(|line| line.starts_with("sleep")));
        terminal.types("\x03");
        assert_eq!(terminal.ends().0.code, 130);
        sandbar.leaves_nothing(&naps());
    });
}

#[test]
fn a_command_can_have_a_terminal_without_one_of_the_caller() {
    each(|sandbar| {
        let output = sandbar.feed(&["exec", "--tty", "--", "sh", "-c", "stty size; cat; exit 5"], b"typed\n");
        let shown = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(5), "{output:?}");
        assert!(shown.contains("24 80\r\n") && shown.contains("typed\r\n"), "{shown:?}");
        let nothing = sandbar.run(&["exec", "--tty", "--", "sh", "-c", "cat; tty"]);
        assert_eq!((nothing.code, nothing.stderr.as_str()), (0, ""), "{nothing:?}");
        assert!(nothing.stdout.contains("/dev/pts/"), "{nothing:?}");
    });
}
