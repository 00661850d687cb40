//! Messages for a session whose removal fails or takes long.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, Signal, kill_process},
};
use serde_json::Value;

use super::{
    made::{Made, supervisor},
    rig::{PATIENCE, Run, Sandbar, each, finish, until},
};

/// Holds the directory of a machine whose supervisor is dead, as a process does that removes it slowly.
fn slow_removal(machine: &Path) -> File {
    kill_process(supervisor(machine), Signal::KILL).expect("kill");
    let held = File::open(machine).expect("open");
    until("its supervisor is dead", PATIENCE, || flock(&held, FlockOperation::NonBlockingLockExclusive).is_ok());
    held
}

fn error(run: &Run) -> Value {
    let line = run.stderr.lines().last().unwrap_or_default();
    let document: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {run:?}"));
    document["error"].clone()
}

#[test]
fn a_slow_removal_is_reported_and_awaited() {
    each(|sandbar| {
        for command in ["rm", "stop"] {
            let made = Made::new(sandbar, &[]);
            let machine = made.machine();
            let held = slow_removal(&machine);
            let mut removing = sandbar.command(&["session", command, &made.id]).spawn().expect("spawn");
            let mut said = BufReader::new(removing.stderr.take().expect("stderr"));
            let mut line = String::new();
            said.read_line(&mut line).expect("a line");
            assert!(line.contains(&format!("until the files of session {} are removed", made.id)), "{line}");
            assert!(removing.try_wait().expect("wait").is_none(), "it waits");
            drop(held);
            let run = finish(removing);
            said.read_to_string(&mut line).expect("the rest");
            assert_eq!(run.code, 0, "{line}");
            assert!(!machine.exists());
        }
        sandbar.leaves_nothing("no such words");
    });
}

#[test]
fn a_forced_removal_reports_what_is_left() {
    let sandbar = Sandbar::own();
    let made = Made::new(&sandbar, &[]);
    let held = slow_removal(&made.machine());
    let run = sandbar.run(&["session", "rm", "--force", &made.id]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(
        run.stderr.contains("removed the record of session") && run.stderr.contains("is still being removed"),
        "{run:?}"
    );
    drop(held);
    assert_eq!(sandbar.run(&["gc", "--sandbox", "local"]).code, 0);
    sandbar.leaves_nothing("no such words");
}

/// A stopped process, which continues at the end of the test.
struct Stopped(Pid);

impl Stopped {
    fn new(process: Pid) -> Self {
        kill_process(process, Signal::STOP).expect("stop");
        Self(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _gone_meanwhile = kill_process(self.0, Signal::CONT);
    }
}

#[test]
fn a_stopped_supervisor_is_named() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        let stopped = Stopped::new(supervisor(&made.machine()));
        for command in [&["rm"][..], &["stop"], &["rm", "--all"]] {
            let id = if command.contains(&"--all") { None } else { Some(made.id.as_str()) };
            let words: Vec<&str> = ["session"].into_iter().chain(command.iter().copied()).chain(id).collect();
            let run = sandbar.run(&[&words[..], &["--json"]].concat());
            let error = error(&run);
            assert_eq!((run.code, error["code"].as_str()), (1, Some("unresponsive")), "{run:?}");
            let message = error["message"].as_str().expect("a message");
            let pid = stopped.0.as_raw_nonzero();
            assert!(message.contains(&format!("process {pid}")) && message.contains("it is stopped"), "{message}");
        }
        drop(stopped);
        assert_eq!(made.does(&["rm", &made.id]), "");
        sandbar.leaves_nothing("no such words");
    });
}

/// A file system in memory, unmounted at the end of the test.
struct Memory(PathBuf);

impl Memory {
    fn mount(at: PathBuf, options: &str) -> Self {
        let memory = Self(at);
        memory.mounted(options);
        memory
    }

    fn mounted(&self, options: &str) {
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&self.0).output();
        let done = done.expect("mount runs");
        assert!(done.status.success(), "{done:?}");
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("--lazy").arg(&self.0).output().expect("umount runs");
        assert!(done.status.success() || std::thread::panicking(), "{done:?}");
    }
}

#[test]
fn a_read_only_file_system_is_reported_as_the_reason() {
    each(|sandbar| {
        let place = sandbar.make_dir("state");
        let user = fs::metadata(&place).expect("a directory").uid();
        let memory = Memory::mount(place, &format!("mode=700,uid={user},gid={user}"));
        let made = Made::new(sandbar, &[]);
        assert_eq!(made.sh("echo x > file").code, 0);
        memory.mounted("remount,ro");
        for words in [&["rm", &made.id][..], &["rm", &made.id, "--force"], &["stop", &made.id], &["rm", "--all"]] {
            let run = sandbar.run(&[&["session"], words, &["--json"]].concat());
            let error = error(&run);
            assert_eq!((run.code, error["code"].as_str()), (1, Some("not_removed")), "{words:?}: {run:?}");
            let message = error["message"].as_str().expect("a message");
            assert!(message.contains("Read-only file system"), "{message}");
            assert!(!message.contains("lost contact"), "{message}");
        }
        memory.mounted("remount,rw");
        assert_eq!(made.does(&["rm", &made.id]), "");
        sandbar.leaves_nothing("no such words");
    });
}
