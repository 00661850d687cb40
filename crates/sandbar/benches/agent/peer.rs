//! A workload in a separate process: with the Python SDK, or with this program.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use super::{memory, table::Spread};

/// Command that runs a workload with the Python SDK this many times; `None` if the SDK is not installed.
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

/// Command that runs the workload `many` with this program this many times.
pub(crate) fn ourselves(rounds: usize) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--many", &rounds.to_string()]);
    command
}

/// Durations that the command measured.
pub(crate) fn time(command: &mut Command) -> Spread {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?} failed");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let seconds = value["seconds"].as_array().unwrap().iter().map(|each| each.as_f64().unwrap());
    Spread::of(seconds.map(Duration::from_secs_f64).collect())
}

/// Peak memory of the process tree of the command, in megabytes. The sampling costs time, so this call measures no
/// durations.
pub(crate) fn peak_mb(command: &mut Command) -> f64 {
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let mut peak = 0.0_f64;
    while child.try_wait().unwrap().is_none() {
        peak = peak.max(memory::of_tree(child.id()));
        std::thread::sleep(Duration::from_millis(20));
    }
    peak
}
