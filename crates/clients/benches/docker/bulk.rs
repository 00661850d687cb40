//! Bulk data: output, a file, and a tree.

use futures::TryStreamExt;
use sandbar_machine::{Machine, MachinePath, Target, once};

use super::{
    raw::archive,
    rows::{Bench, run, timed},
    table::{Options, Spread, Table},
};

const MB: usize = 1 << 20;

fn place(name: &str) -> Target {
    Target::from(MachinePath::workspace().join(name).expect("a path"))
}

async fn read(machine: &dyn Machine, name: &str) -> usize {
    let stream = machine.read(&place(name)).await.expect("read");
    stream.try_fold(0, |sum, bytes| async move { Ok(sum + bytes.len()) }).await.expect("bytes")
}

/// 64 MB of output and of a file; 16 MB must take about a quarter of the time.
pub(crate) async fn streams(options: &Options, bench: &Bench, table: &mut Table) {
    let machine = bench.machine().await;
    let (small, large) = ((16 * MB).to_string(), (64 * MB).to_string());
    for (name, size) in [("small", &small), ("large", &large)] {
        run(&*machine, &["/bin/sh", "-c", &format!("head -c {size} /dev/zero > {name}")]).await;
    }
    let (mut out, mut out_small, mut file, mut file_small) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.times(15) {
        let print = |size| ["/usr/bin/head", "-c", size, "/dev/zero"];
        assert_eq!(timed(&mut out, run(&*machine, &print(&large))).await, 64 * MB);
        assert_eq!(timed(&mut out_small, run(&*machine, &print(&small))).await, 16 * MB);
        assert_eq!(timed(&mut file, read(&*machine, "large")).await, 64 * MB);
        assert_eq!(timed(&mut file_small, read(&*machine, "small")).await, 16 * MB);
    }
    let rate = |spread: Spread| 64e3 / spread.p50;
    let (out, out_small) = (Spread::of(out), Spread::of(out_small));
    table.at_least("64 MB of output", rate(out), 120.0, "MB/s");
    table.bound("output: 64 MB over 16 MB (linear)", out.p50 / out_small.p50, 5.0, "x");
    let (file, file_small) = (Spread::of(file), Spread::of(file_small));
    table.at_least("read of 64 MB", rate(file), 120.0, "MB/s");
    table.bound("read: 64 MB over 16 MB (linear)", file.p50 / file_small.p50, 5.0, "x");
    for (name, ours, theirs) in
        [("64 MB of output / Python SDK", out, "out_64"), ("read of 64 MB / Python SDK", file, "read_64")]
    {
        if let Some(theirs) = bench.peer.get(theirs) {
            table.ratio(name, ours, theirs, 1.0);
        }
    }
    machine.stop().await.expect("stop");
}

/// A tree of 5,000 files as an archive, by sandbar and by the engine.
pub(crate) async fn pack(options: &Options, bench: &Bench, table: &mut Table) {
    let machine = bench.machine().await;
    let content: Vec<u8> = (0..20_971_u32).map(|at| (at % 251) as u8).collect();
    let files = (0..5000).map(|at| (format!("d{}/e{}/f{at}.bin", at % 25, at % 100), content.clone()));
    machine.unpack(&place("tree"), once(archive(files))).await.expect("unpack");
    let container = machine.handle().state["container"].as_str().expect("a name").to_owned();
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..options.times(10) {
        let whole = async {
            let stream = machine.pack(&place("tree"), &[]).await.expect("pack");
            stream.try_fold(0, |sum, bytes| async move { Ok(sum + bytes.len()) }).await.expect("bytes")
        };
        assert!(timed(&mut ours, whole).await > 100_000_000);
        assert!(timed(&mut floor, bench.raw.pack(&container, "/workspace/tree")).await > 100_000_000);
    }
    table.ratio("pack 5,000 files / engine's archive", Spread::of(ours), Spread::of(floor), 1.5);
    machine.stop().await.expect("stop");
}
