//! The workloads with the Python SDK, in a separate process.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use super::table::Spread;

/// Durations of the Python SDK, by workload.
pub(crate) struct Peer(HashMap<String, Spread>);

impl Peer {
    /// Runs all workloads; `None` if the SDK is not installed.
    pub(crate) fn measure(tree: &Path, temp: &Path, rounds: usize) -> Option<Self> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        let python = root.join(".venv-agents/bin/python");
        if !python.exists() {
            eprintln!("no Python SDK to compare with; `cargo xtask setup` installs it");
            return None;
        }
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/workspace/peer.py");
        let mut command = Command::new(python);
        command.arg(script).arg(tree).arg(rounds.to_string()).env("TMPDIR", temp).stderr(Stdio::inherit());
        let output = command.output().expect("python");
        assert!(output.status.success(), "the Python SDK failed");
        let text = String::from_utf8(output.stdout).unwrap();
        let read = |line: &str| {
            let value: Value = serde_json::from_str(line).unwrap();
            let seconds = value["seconds"].as_array().unwrap().iter().map(|each| each.as_f64().unwrap());
            let spread = Spread::of(seconds.map(Duration::from_secs_f64).collect());
            (value["name"].as_str().unwrap().to_owned(), spread)
        };
        Some(Self(text.lines().map(read).collect()))
    }

    pub(crate) fn get(&self, name: &str) -> Spread {
        self.0[name]
    }
}
