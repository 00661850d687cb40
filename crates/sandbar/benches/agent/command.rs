//! The `sandbar` command: how fast it is there, and how long its demonstration takes.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::table::{Options, Spread, Table};

/// Builds the command for release, which is not part of what is measured.
fn built() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--release", "--package", "sandbar-cli"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    // What cargo has told us about ourselves would make build scripts that watch it build everything anew.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|start| name.to_string_lossy().starts_with(start)) {
            cargo.env_remove(name);
        }
    }
    assert!(cargo.status().unwrap().success(), "the command can be built");
    // Benchmarks are built into a folder of their own, beside what everybody else is built into.
    let here = std::env::current_exe().unwrap();
    here.parent().and_then(Path::parent).unwrap().join("sandbar")
}

pub(crate) fn measure(options: &Options, table: &mut Table) {
    let sandbar = built();
    if options.wants("cold start") {
        cold_start(&sandbar, table);
    }
    if options.wants("demo") {
        demo(&sandbar, options, table);
    }
}

fn timed(command: &mut Command) -> Option<Duration> {
    let begun = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    status.success().then(|| begun.elapsed())
}

fn cold_start(sandbar: &Path, table: &mut Table) {
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        ours.push(timed(Command::new(sandbar).arg("--version")).expect("--version works"));
        floor.push(timed(&mut Command::new("/bin/true")).expect("true is true"));
    }
    let (ours, floor) = (Spread::of(ours), Spread::of(floor));
    eprintln!("cold start: p95 {:.3} ms; /bin/true: {:.3} ms (p95 {:.3})", ours.p95, floor.p50, floor.p95);
    table.bound("cold start: sandbar --version", ours.p50, 15.0, "ms");
}

fn demo(sandbar: &Path, options: &Options, table: &mut Table) {
    if timed(Command::new(sandbar).args(["demo", "--help"])).is_none() {
        eprintln!("sandbar demo: not there");
        return;
    }
    let rounds = (0..options.times(10)).map(|_| timed(Command::new(sandbar).arg("demo")).expect("the demo works"));
    table.bound("sandbar demo", Spread::of(rounds.collect()).p50 / 1e3, 5.0, "s");
}
