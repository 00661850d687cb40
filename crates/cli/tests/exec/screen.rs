//! An emulated terminal that runs `sandbar`.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Child, Stdio},
    sync::Arc,
    thread,
};

use parking_lot::Mutex;
use rustix::{
    fs::{Mode, OFlags},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Action, LocalModes, Termios, Winsize, tcflow, tcgetattr, tcsetwinsize},
};

use super::rig::{PATIENCE, Run, Sandbar, finish, until};

/// A terminal with `sandbar` in front of it.
pub(crate) struct Terminal {
    pub(crate) keyboard: File,
    line: OwnedFd,
    before: Termios,
    screen: Arc<Mutex<Vec<u8>>>,
    reader: thread::JoinHandle<()>,
    child: Child,
}

impl Terminal {
    pub(crate) fn open(sandbar: &Sandbar, words: &[&str]) -> Self {
        Self::of_size(sandbar, words, (30, 100))
    }

    /// One of this size from the beginning: so many rows, so many columns.
    pub(crate) fn of_size(sandbar: &Sandbar, words: &[&str], (rows, cols): (u16, u16)) -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("openpt");
        grantpt(&keyboard).expect("grantpt");
        unlockpt(&keyboard).expect("unlockpt");
        let name = ptsname(&keyboard, Vec::new()).expect("ptsname");
        let line =
            rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).expect("open");
        let before = tcgetattr(&line).expect("tcgetattr");
        resize(&keyboard, rows, cols);
        let end = || Stdio::from(line.try_clone().expect("clone"));
        // Makes it the controlling terminal, so that the kernel tells about new sizes and Ctrl-C.
        let launcher = ["env", "--default-signal=INT,TERM,HUP,QUIT", "TERM=xterm", "setsid", "--ctty"];
        let mut command = sandbar.behind(&launcher, words);
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("spawn");
        let keyboard = File::from(keyboard);
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (mut from, to) = (keyboard.try_clone().expect("clone"), screen.clone());
        let reader = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                to.lock().extend_from_slice(&buffer[..count]);
            }
        });
        Self { keyboard, line, before, screen, reader, child }
    }

    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock()).into_owned()
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("type");
    }

    pub(crate) fn shows(&self, text: &str) {
        let waits = |what: &str| until(what, PATIENCE, || self.shown().contains(text));
        waits(&format!("{text:?} on the screen"));
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("kill");
    }

    /// Suspends what programs write to the terminal, or lets it go on.
    #[allow(dead_code, reason = "not every test program needs it")]
    pub(crate) fn output(&self, action: Action) {
        tcflow(&self.line, action).expect("tcflow");
    }

    /// Whether a thread of the command waits in a write to its standard error.
    #[allow(dead_code, reason = "not every test program needs it")]
    pub(crate) fn is_writing(&self) -> bool {
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.child.id())) else { return false };
        let write = format!("{} 0x2 ", libc::SYS_write);
        let waits = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("syscall"));
        threads.flatten().filter_map(|thread| waits(thread).ok()).any(|call| call.starts_with(&write))
    }

    /// Waits for the end, and that the terminal is as it was.
    pub(crate) fn ends(self) -> (Run, String) {
        let screen = self.screen.clone();
        let run = finish(self.child);
        let after = tcgetattr(&self.line).expect("tcgetattr");
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        // With its last writer gone the terminal gives what is left, and then ends.
        drop(self.line);
        until("everything is on the screen", PATIENCE, || self.reader.is_finished());
        let shown = String::from_utf8_lossy(&screen.lock()).into_owned();
        (run, shown)
    }

    pub(crate) fn is_raw(&self) -> bool {
        !tcgetattr(&self.line).expect("tcgetattr").local_modes.contains(LocalModes::ICANON)
    }
}

pub(crate) fn resize(terminal: impl std::os::fd::AsFd, rows: u16, cols: u16) {
    let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("resize");
}
