//! The workloads with the Python SDK, in a separate process.

use std::{
    collections::HashMap,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use super::table::Spread;

/// Measurements of a workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) spread: Spread,
    pub(crate) peak_mb: f64,
}

impl Measured {
    pub(crate) fn read(line: &str) -> (String, Self) {
        let value: Value = serde_json::from_str(line).unwrap();
        let seconds = value["seconds"].as_array().unwrap().iter().map(|each| each.as_f64().unwrap());
        let spread = Spread::of(seconds.map(Duration::from_secs_f64).collect());
        let peak_mb = value["peak_mb"].as_f64().unwrap_or(0.0);
        (value["name"].as_str().unwrap().to_owned(), Self { spread, peak_mb })
    }
}

/// What the Python SDK needed for each workload.
pub(crate) struct Peer(HashMap<String, Measured>);

impl Peer {
    /// Runs all of it; none where the SDK is not installed.
    pub(crate) fn measure(urls: &[String; 3], rounds: usize, only: &str) -> Option<Self> {
        let home = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let python = home.join("../../.venv-agents/bin/python");
        if !python.exists() {
            eprintln!("no Python SDK to compare with; `cargo xtask setup` installs it");
            return None;
        }
        // Each workload in a process of its own, so that memory is that of the workload.
        let measured = ["turns", "deltas", "http", "many"].into_iter().filter(|name| name.contains(only)).map(|name| {
            let mut command = Command::new(&python);
            command.arg(home.join("benches/harness/peer.py")).arg(name).arg(rounds.to_string()).args(urls);
            let output = command.stderr(Stdio::inherit()).output().expect("python");
            assert!(output.status.success(), "the Python SDK failed");
            Measured::read(String::from_utf8(output.stdout).unwrap().trim())
        });
        Some(Self(measured.collect()))
    }

    pub(crate) fn get(&self, name: &str) -> Option<Measured> {
        self.0.get(name).copied()
    }
}
