//! Whoever does a workload in a process of its own: the Python SDK, or this program once more.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use super::{memory, table::Spread};

/// The Python SDK with a workload, this often; none where it is not installed.
pub(crate) fn python(workload: &str, rounds: usize) -> Option<Command> {
    let home = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let python = home.join("../../.venv-agents/bin/python");
    if !python.exists() {
        eprintln!("no Python SDK to compare with; `cargo xtask setup` installs it");
        return None;
    }
    let mut command = Command::new(python);
    command.arg(home.join("benches/agent/peer.py")).arg(workload).arg(rounds.to_string());
    Some(command)
}

/// This program with many runs at once, this often.
pub(crate) fn ourselves(rounds: usize) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--many", &rounds.to_string()]);
    command
}

/// How long it took.
pub(crate) fn time(command: &mut Command) -> Spread {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?} failed");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let seconds = value["seconds"].as_array().unwrap().iter().map(|each| each.as_f64().unwrap());
    Spread::of(seconds.map(Duration::from_secs_f64).collect())
}

/// The most memory that it and everything it started took at once, in megabytes. Looking costs time, so nothing is timed.
pub(crate) fn peak_mb(command: &mut Command) -> f64 {
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let mut peak = 0.0_f64;
    while child.try_wait().unwrap().is_none() {
        peak = peak.max(memory::of_tree(child.id()));
        std::thread::sleep(Duration::from_millis(20));
    }
    peak
}
