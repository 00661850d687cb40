//! A person at a terminal: typing, resizing, Ctrl-C, and a terminal that is as it was before.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Child, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use rustix::{
    fs::{Mode, OFlags},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize},
};

use super::rig::{PATIENCE, Run, Sandbar, each, finish, marked, until};

/// A terminal with `sandbar` in front of it.
struct Terminal {
    keyboard: File,
    line: OwnedFd,
    before: Termios,
    screen: Arc<Mutex<Vec<u8>>>,
    child: Child,
}

impl Terminal {
    fn open(sandbar: &Sandbar, words: &[&str]) -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("openpt");
        grantpt(&keyboard).expect("grantpt");
        unlockpt(&keyboard).expect("unlockpt");
        let name = ptsname(&keyboard, Vec::new()).expect("ptsname");
        let line =
            rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).expect("open");
        let before = tcgetattr(&line).expect("tcgetattr");
        resize(&keyboard, 30, 100);
        let end = || Stdio::from(line.try_clone().expect("clone"));
        // Makes it the controlling terminal, so that the kernel tells about new sizes and Ctrl-C.
        let launcher = ["env", "--default-signal=INT,TERM,HUP,QUIT", "TERM=xterm", "setsid", "--ctty"];
        let mut command = sandbar.behind(&launcher, words);
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("spawn");
        let keyboard = File::from(keyboard);
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (mut from, to) = (keyboard.try_clone().expect("clone"), screen.clone());
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                to.lock().expect("screen").extend_from_slice(&buffer[..count]);
            }
        });
        Self { keyboard, line, before, screen, child }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().expect("screen")).into_owned()
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("type");
    }

    fn shows(&self, text: &str) {
        let waits = |what: &str| until(what, PATIENCE, || self.shown().contains(text));
        waits(&format!("{text:?} on the screen"));
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("kill");
    }

    /// Waits for the end, and that the terminal is as it was.
    fn ends(self) -> (Run, String) {
        let screen = self.screen.clone();
        let run = finish(self.child);
        let after = tcgetattr(&self.line).expect("tcgetattr");
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        let shown = String::from_utf8_lossy(&screen.lock().expect("screen")).into_owned();
        (run, shown)
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.line).expect("tcgetattr").local_modes.contains(LocalModes::ICANON)
    }
}

fn resize(terminal: impl std::os::fd::AsFd, rows: u16, cols: u16) {
    let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("resize");
}

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
        for _ in 0..200 {
            terminal.types("stty size\r");
            thread::sleep(Duration::from_millis(50));
            if terminal.shown().contains("40 120\r\n") {
                break;
            }
        }
        terminal.shows("40 120\r\n");
        terminal.types("sleep 9191.1\r");
        until("sleep runs", PATIENCE, || marked("sleep 9191.1").iter().any(|line| line.starts_with("sleep")));
        terminal.types("\x03");
        until("sleep is gone", PATIENCE, || marked("sleep 9191.1").is_empty());
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
fn the_terminal_is_put_back_when_sandbar_is_told_to_go() {
    each(|sandbar| {
        for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
            let script = "trap '' TERM INT HUP; echo deaf; sleep 9292.1; sleep 9292.2";
            let terminal = Terminal::open(sandbar, &["exec", "--tty", "--", "sh", "-c", script]);
            terminal.shows("deaf\r\n");
            assert!(terminal.is_raw());
            terminal.signal(signal);
            let (run, _) = terminal.ends();
            assert!(run.code > 128, "{run:?}");
            sandbar.leaves_nothing("sleep 9292", Duration::from_secs(5));
        }
    });
}

#[test]
fn without_tty_a_terminal_is_no_input_and_ctrl_c_is_a_signal() {
    each(|sandbar| {
        let terminal = Terminal::open(sandbar, &["exec", "--", "sh", "-c", "cat; test -t 1 || echo no terminal"]);
        let (run, shown) = terminal.ends();
        assert_eq!((run.code, shown.as_str()), (0, "no terminal\r\n"));
        let mut terminal = Terminal::open(sandbar, &["exec", "--", "sleep", "9393.1"]);
        until("sleep runs", PATIENCE, || marked("sleep 9393.1").iter().any(|line| line.starts_with("sleep")));
        terminal.types("\x03");
        assert_eq!(terminal.ends().0.code, 130);
        sandbar.leaves_nothing("sleep 9393.1", Duration::from_secs(5));
    });
}

#[test]
fn a_terminal_inside_needs_none_outside() {
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
