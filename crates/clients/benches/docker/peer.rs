//! The same work by the Python SDK on the same engine and image, in a separate process.

use std::{
    collections::HashMap,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use super::{rows::IMAGE, table::Spread};

/// The times of the Python SDK for each workload.
#[derive(Default)]
pub(crate) struct Peer(HashMap<String, Spread>);

impl Peer {
    /// Runs all workloads; empty if the SDK is not installed.
    pub(crate) fn measure(rounds: usize) -> Self {
        let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let python = here.join("../../.venv-agents/bin/python");
        if !python.exists() {
            eprintln!("no Python SDK to compare with; `cargo xtask setup` installs it");
            return Self::default();
        }
        let mut command = Command::new(python);
        command.arg(here.join("benches/docker/peer.py")).arg(IMAGE).arg(rounds.to_string()).stderr(Stdio::inherit());
        let output = command.output().expect("python");
        assert!(output.status.success(), "the Python SDK failed");
        let text = String::from_utf8(output.stdout).unwrap();
        let read = |line: &str| {
            let value: Value = serde_json::from_str(line).unwrap();
            let seconds = value["seconds"].as_array().unwrap().iter().map(|each| each.as_f64().unwrap());
            let spread = Spread::of(seconds.map(Duration::from_secs_f64).collect());
            (value["name"].as_str().unwrap().to_owned(), spread)
        };
        Self(text.lines().map(read).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<Spread> {
        self.0.get(name).copied()
    }
}
