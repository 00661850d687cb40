//! The rows of the table, one per goal.

use std::process::Command;

use super::{
    peer::{Measured, Peer},
    table::{Options, Spread, Table},
    work,
};

pub(crate) async fn all(options: &Options) -> Table {
    let mut table = Table::default();
    let calling = work::calling_server(100);
    let few = work::calling_server(3);
    let talking = work::talking_server(10_000);
    let urls = [calling.base_url(), few.base_url(), talking.base_url()];
    let peer = Peer::measure(&urls, options.times(5).min(5), options.only.as_deref().unwrap_or(""));
    if options.wants("turns") {
        in_memory(options, peer.as_ref(), &mut table).await;
    }
    if options.wants("deltas") {
        let mut samples = Vec::new();
        for _ in 0..options.times(20) {
            samples.push(work::deltas(&urls[2], 10_000).await);
        }
        versus(
            &mut table,
            ("10,000 deltas / Python SDK", 15.0),
            Spread::of(samples),
            peer.as_ref().and_then(|peer| peer.get("deltas")),
        );
    }
    if options.wants("http") {
        let mut samples = Vec::new();
        for _ in 0..options.times(10) {
            samples.push(work::http_turns(&urls[0], 100).await);
        }
        versus(
            &mut table,
            ("100 http turns / Python SDK", 20.0),
            Spread::of(samples),
            peer.as_ref().and_then(|peer| peer.get("http")),
        );
    }
    if options.wants("many") {
        let ours = many(&urls[1], options.times(10));
        versus(
            &mut table,
            ("200 runs (many) / Python SDK", 20.0),
            ours.spread,
            peer.as_ref().and_then(|peer| peer.get("many")),
        );
        if let Some(theirs) = peer.as_ref().and_then(|peer| peer.get("many")) {
            eprintln!("memory: {:.1} MB, Python SDK {:.1} MB", ours.peak_mb, theirs.peak_mb);
            table.bound("memory of 200 runs (many) / SDK", ours.peak_mb / theirs.peak_mb, 0.25, "x");
        }
    }
    for server in [&calling, &few, &talking] {
        assert_eq!(server.problems(), [], "the server accepts all requests");
    }
    table
}

async fn in_memory(options: &Options, peer: Option<&Peer>, table: &mut Table) {
    let (mut hundred, mut four_hundred) = (Vec::new(), Vec::new());
    for _ in 0..options.times(50) {
        hundred.push(work::turns(100).await);
        four_hundred.push(work::turns(400).await);
    }
    let (hundred, four_hundred) = (Spread::of(hundred), Spread::of(four_hundred));
    table.ratio("400 turns / 100 turns", four_hundred, hundred, 4.5);
    versus(table, ("100 turns / Python SDK", 20.0), hundred, peer.and_then(|peer| peer.get("turns")));
}

/// A row that must be this many times faster than the same by the Python SDK.
fn versus(table: &mut Table, (name, times): (&'static str, f64), ours: Spread, theirs: Option<Measured>) {
    match theirs {
        Some(theirs) => table.ratio(name, ours, theirs.spread, 1.0 / times),
        None => eprintln!("{name}: {:.3} ms, and nothing to compare with", ours.p50),
    }
}

fn many(url: &str, rounds: usize) -> Measured {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--many", url, &rounds.to_string()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Measured::read(String::from_utf8(output.stdout).unwrap().trim()).1
}
