//! The workloads, each compared with its floor.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use sandbar_clients::{Docker, UnixLocal, docker::Pull};
use sandbar_machine::{Command, Machine, MachinePath, MachineSpec, Output, SandboxClient, Target, collect, once};
use sandbar_sandbox::{Manifest, SandboxSession, SessionOptions};

use super::{
    bulk,
    peer::Peer,
    raw::Raw,
    table::{Options, Spread, Table},
};

pub(crate) const IMAGE: &str = "sandbar-test:bookworm";

/// What the workloads need.
pub(crate) struct Bench {
    pub(crate) client: Docker,
    pub(crate) raw: Raw,
    pub(crate) peer: Peer,
}

impl Bench {
    pub(crate) async fn machine(&self) -> Arc<dyn Machine> {
        self.client.create(MachineSpec::default()).await.expect("a container")
    }

    /// Adds the Python SDK's time, if the SDK is installed.
    fn beside(&self, table: &mut Table, name: &'static str, ours: Spread, theirs: &str) {
        if let Some(theirs) = self.peer.get(theirs) {
            table.ratio(name, ours, theirs, 1.0);
        }
    }
}

/// Runs every requested workload.
pub(crate) async fn all(options: &Options) -> Table {
    let mut table = Table::default();
    // A single row is for work on that row, and the Python SDK takes minutes.
    let peer = match (&options.only, options.quick) {
        (None, false) => Peer::measure(3),
        _ => Peer::default(),
    };
    let bench = Bench { client: Docker::image(IMAGE).pull(Pull::Never), raw: Raw::connect(), peer };
    if options.wants("lives") {
        lives(options, &bench, &mut table).await;
    }
    if options.wants("exec") {
        exec(options, &bench, &mut table).await;
    }
    if options.wants("files") {
        files(options, &bench, &mut table).await;
    }
    if options.wants("inline") {
        inline(options, &bench, &mut table).await;
    }
    if options.wants("bulk") {
        bulk::streams(options, &bench, &mut table).await;
    }
    if options.wants("pack") {
        bulk::pack(options, &bench, &mut table).await;
    }
    table
}

pub(crate) async fn timed<T>(into: &mut Vec<Duration>, work: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let done = work.await;
    into.push(begun.elapsed());
    done
}

/// Runs a command to its end; returns the length of its output.
pub(crate) async fn run(machine: &dyn Machine, argv: &[&str]) -> usize {
    let mut process = machine.spawn(Command::new(argv.iter().copied())).await.expect("spawn");
    let mut printed = 0;
    while let Some(output) = process.output.recv().await {
        match output.expect("output") {
            Output::Stdout(bytes) | Output::Stderr(bytes) => printed += bytes.len(),
            Output::Exit(exit) => assert_eq!(exit.code, 0, "{argv:?}"),
            Output::Omitted(_) => {}
        }
    }
    printed
}

/// Create and remove, alternating with the engine's own calls.
async fn lives(options: &Options, bench: &Bench, table: &mut Table) {
    let (mut up, mut down, mut raw_up, mut raw_down) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    bench.machine().await.stop().await.expect("stop");
    for turn in 0..options.times(30) {
        let machine = timed(&mut up, async {
            let machine = bench.machine().await;
            run(&*machine, &["/usr/bin/true"]).await;
            machine
        });
        let machine = machine.await;
        timed(&mut down, async { machine.stop().await.expect("stop") }).await;
        let name = format!("sandbar-bench-{}-{turn}", std::process::id());
        timed(&mut raw_up, bench.raw.up(&name)).await;
        timed(&mut raw_down, bench.raw.down(&name)).await;
    }
    let (up, down, raw_up, raw_down) = (Spread::of(up), Spread::of(down), Spread::of(raw_up), Spread::of(raw_down));
    table.ratio("create to first exec / engine's", up, raw_up, 1.4);
    bench.beside(table, "create to first exec / Python SDK", up, "up");
    table.ratio("stop and delete / forced removal", down, raw_down, 1.5);
    bench.beside(table, "stop and delete / Python SDK", down, "down");
    if let (Some(theirs), Some(floor)) = (bench.peer.get("down"), bench.peer.get("raw_down")) {
        table.aside("Python SDK: stop and delete / removal", theirs, floor);
    }
}

async fn exec(options: &Options, bench: &Bench, table: &mut Table) {
    let docker = bench.machine().await;
    let local = UnixLocal::new().create(MachineSpec::default()).await.expect("a local machine");
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..options.times(500) {
        timed(&mut ours, run(&*docker, &["/usr/bin/true"])).await;
        timed(&mut floor, run(&*local, &["/usr/bin/true"])).await;
    }
    let ours = Spread::of(ours);
    table.ratio("exec of true / local exec", ours, Spread::of(floor), 2.5);
    bench.beside(table, "exec of true / Python SDK", ours, "docker_exec");
    if let (Some(theirs), Some(floor)) = (bench.peer.get("docker_exec"), bench.peer.get("local_exec")) {
        table.aside("Python SDK: exec / its local exec", theirs, floor);
    }
    for machine in [docker, local] {
        machine.stop().await.expect("stop");
    }
}

async fn files(options: &Options, bench: &Bench, table: &mut Table) {
    let machine = bench.machine().await;
    let at = Target::from(MachinePath::workspace().join("file").expect("a path"));
    let (mut write, mut read) = (Vec::new(), Vec::new());
    for _ in 0..options.times(500) {
        timed(&mut write, async { machine.write(&at, once(vec![7; 1024])).await.expect("write") }).await;
        let whole = async { collect(machine.read(&at).await.expect("read"), 4096).await.expect("bytes") };
        assert_eq!(timed(&mut read, whole).await.len(), 1024);
    }
    let (write, read) = (Spread::of(write), Spread::of(read));
    table.bound("write of 1 KB", write.p50, 3.0, "ms");
    bench.beside(table, "write of 1 KB / Python SDK", write, "docker_write");
    table.bound("read of 1 KB", read.p50, 3.0, "ms");
    bench.beside(table, "read of 1 KB / Python SDK", read, "docker_read");
    machine.stop().await.expect("stop");
}

/// The time that a hundred declared files add to a session.
async fn inline(options: &Options, bench: &Bench, table: &mut Table) {
    let client: Arc<dyn SandboxClient> = Arc::new(bench.client.clone());
    let (mut whole, mut filled, mut empty) = (Vec::new(), Vec::new(), Vec::new());
    let add = |manifest: Manifest, at| manifest.file(format!("d{}/f{at}.txt", at % 10), vec![b'x'; 512]);
    for _ in 0..options.times(30) {
        for (files, times) in [(100, &mut filled), (0, &mut empty)] {
            let options = SessionOptions::new((0..files).fold(Manifest::new(), add));
            let begun = Instant::now();
            let session = SandboxSession::create(client.clone(), options).await.expect("a session");
            timed(times, session.start()).await.expect("filled");
            if files > 0 {
                whole.push(begun.elapsed());
            }
            session.delete().await.expect("delete");
        }
    }
    table.bound("100 inline files beyond create", Spread::of(filled).p50 - Spread::of(empty).p50, 30.0, "ms");
    bench.beside(table, "session with 100 files / Python SDK", Spread::of(whole), "inline_100");
}
