//! A session that is removed at the end of its test, whatever happens.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Child,
};

use rustix::{
    fs::{major, minor},
    process::Pid,
};
use serde_json::Value;

use super::rig::{PATIENCE, Run, Sandbar, finish, until};

pub(crate) struct Made<'a> {
    pub(crate) sandbar: &'a Sandbar,
    pub(crate) id: String,
}

impl<'a> Made<'a> {
    /// A session made with these options.
    pub(crate) fn new(sandbar: &'a Sandbar, options: &[&str]) -> Self {
        let run = sandbar.run(&[&["session", "create"], options].concat());
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{options:?}: {run:?}");
        Self { sandbar, id: run.stdout.trim().to_owned() }
    }

    /// `ID:path`.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.id)
    }

    pub(crate) fn start(&self, script: &str) -> Child {
        let words = ["session", "exec", &self.id, "--", "sh", "-c", script];
        self.sandbar.command(&words).spawn().expect("spawn")
    }

    pub(crate) fn sh(&self, script: &str) -> Run {
        finish(self.start(script))
    }

    /// Does something that must succeed, silently but for its result.
    pub(crate) fn does(&self, words: &[&str]) -> String {
        let run = self.sandbar.run(&[&["session"], words].concat());
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{words:?}: {run:?}");
        run.stdout
    }

    /// The directory of its machine.
    pub(crate) fn machine(&self) -> PathBuf {
        let state = self.sandbar.dir().join("state/sandbar");
        let text = fs::read_to_string(state.join(format!("sessions/{}.json", self.id))).expect("a record");
        let record: Value = serde_json::from_str(&text).expect("json");
        state.join("machines").join(record["machine"]["state"]["id"].as_str().expect("an id"))
    }

    /// Its line in the list for programs.
    pub(crate) fn listed(&self) -> Option<Value> {
        let list: Value = serde_json::from_str(&self.does(&["ls", "--json"])).expect("json");
        let sessions = list["sessions"].as_array().expect("a list").clone();
        sessions.into_iter().find(|session| session["id"] == self.id.as_str())
    }
}

/// The process that holds a machine's directory.
pub(crate) fn supervisor(machine: &Path) -> Pid {
    let found = fs::metadata(machine).expect("a machine");
    let place = format!("{:02x}:{:02x}:{}", major(found.dev()), minor(found.dev()), found.ino());
    let mut holder = None;
    // The list is read in pieces, and a lock that goes meanwhile lets another be skipped.
    until("the lock is listed", PATIENCE, || {
        let locks = fs::read_to_string("/proc/locks").expect("locks");
        let line = locks.lines().find(|line| line.contains(" FLOCK ") && line.contains(&place));
        holder = line.and_then(|line| Pid::from_raw(line.split_whitespace().nth(4)?.parse().ok()?));
        holder.is_some()
    });
    holder.expect("a process")
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        let removed = self.sandbar.command(&["session", "rm", "--force", &self.id]).output();
        if !std::thread::panicking() {
            assert!(removed.expect("rm runs").status.success());
        }
    }
}
