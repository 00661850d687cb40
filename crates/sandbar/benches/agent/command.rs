//! Benchmark of the `sandbar` command: its start and its demonstration.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::{
    release,
    table::{Options, Spread, Table},
};

pub(crate) fn measure(options: &Options, table: &mut Table) {
    let sandbar = release::sandbar();
    if options.wants("cold start") {
        cold_start(&sandbar, table);
    }
    if options.wants("demo") {
        demo(&sandbar, options, table);
    }
}

fn timed(command: &mut Command) -> Option<Duration> {
    let started = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    status.success().then(|| started.elapsed())
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
        eprintln!("sandbar demo: this build has no demo");
        return;
    }
    let rounds = (0..options.times(10)).map(|_| timed(Command::new(sandbar).arg("demo")).expect("the demo works"));
    table.bound("sandbar demo", Spread::of(rounds.collect()).p50 / 1e3, 5.0, "s");
}
