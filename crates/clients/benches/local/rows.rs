//! The workloads, each compared with its floor.

use std::{
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::{StreamExt, future::join_all, stream};
use sandbar_clients::UnixLocal;
use sandbar_machine::{
    Command, Machine, MachinePath, MachineSpec, Output, Process, SandboxClient, Target, TerminalSize,
};

use super::{
    floor,
    table::{Options, Spread, Table},
};

const PRODUCER: [&str; 3] = ["/bin/sh", "-c", "head -c 104857600 /dev/zero | tr '\\0' 'x'"];
const TERMINAL_PRODUCER: [&str; 3] =
    ["/bin/sh", "-c", "yes 0123456789012345678901234567890123456789012345678901234567890 | head -c 16777216"];

/// Machines whose directories are on tmpfs, so that the journal of a disk is not measured.
struct Bench {
    client: UnixLocal,
    state: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let state = PathBuf::from(format!("/dev/shm/sandbar-bench-{}", std::process::id()));
        fs::create_dir_all(&state).unwrap();
        Self { client: UnixLocal::new().state_dir(state.join("state")), state }
    }

    async fn machine(&self) -> Arc<dyn Machine> {
        self.client.create(MachineSpec::default()).await.unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _leftovers = fs::remove_dir_all(&self.state);
    }
}

async fn finish(mut process: Process) -> usize {
    let mut total = 0;
    while let Some(output) = process.output.recv().await {
        match output.unwrap() {
            Output::Stdout(bytes) | Output::Stderr(bytes) => total += bytes.len(),
            Output::Omitted(count) => panic!("{count} bytes were omitted"),
            Output::Exit(exit) => assert_eq!(exit.code, 0),
        }
    }
    total
}

async fn exec(machine: &dyn Machine, argv: &[&str]) -> usize {
    finish(machine.spawn(Command::new(argv.iter().copied())).await.unwrap()).await
}

async fn exec_true(machine: &dyn Machine) -> Duration {
    let start = Instant::now();
    exec(machine, &["/usr/bin/true"]).await;
    start.elapsed()
}

fn own_rss_kb(pid: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or("VmRSS: 0");
    line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Runs every requested workload.
pub(crate) async fn all(options: &Options) -> Table {
    let mut table = Table::default();
    let bench = Bench::new();
    if options.wants("exec") {
        execs(options, &bench, &mut table).await;
    }
    if options.wants("create") {
        creates(options, &bench, &mut table).await;
    }
    if options.wants("stdout") {
        stdout(options, &bench, &mut table).await;
    }
    if options.wants("pty") {
        terminals(options, &bench, &mut table).await;
    }
    if options.wants("file") {
        files(options, &bench, &mut table).await;
    }
    if options.wants("sessions") {
        sessions(options, &bench, &mut table).await;
    }
    table
}

async fn execs(options: &Options, bench: &Bench, table: &mut Table) {
    let machine = bench.machine().await;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..options.times(1000) + 20 {
        let (floor, own) = (floor::spawn_true(), exec_true(&*machine).await);
        if round >= 20 {
            bare.push(floor);
            ours.push(own);
        }
    }
    let alone = Spread::of(ours);
    table.ratio("exec true", alone, Spread::of(bare), 1.8);

    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..options.times(30) {
        bare.push(floor::spawn_100());
        let start = Instant::now();
        join_all((0..100).map(|_| exec(&*machine, &["/usr/bin/true"]))).await;
        ours.push(start.elapsed());
    }
    table.ratio("exec 100 concurrent", Spread::of(ours), Spread::of(bare), 1.6);

    let mut idle = Vec::new();
    for _ in 0..64 {
        idle.push(machine.spawn(Command::new(["cat"]).tty(TerminalSize::default())).await.unwrap());
    }
    let (mut crowded, mut again) = (Vec::new(), Vec::new());
    let quiet = bench.machine().await;
    for _ in 0..options.times(500) {
        again.push(exec_true(&*quiet).await);
        crowded.push(exec_true(&*machine).await);
    }
    table.ratio("exec beside 64 idle ptys", Spread::of(crowded), Spread::of(again), 1.15);
    drop(idle);
    for machine in [machine, quiet] {
        bench.client.delete(&machine.handle()).await.unwrap();
    }
}

async fn creates(options: &Options, bench: &Bench, table: &mut Table) {
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..options.times(300) {
        bare.push(floor::spawn_true());
        let start = Instant::now();
        let machine = bench.machine().await;
        exec(&*machine, &["/usr/bin/true"]).await;
        bench.client.delete(&machine.handle()).await.unwrap();
        ours.push(start.elapsed());
    }
    table.ratio("create, exec, delete", Spread::of(ours), Spread::of(bare), 12.0);
}

async fn stdout(options: &Options, bench: &Bench, table: &mut Table) {
    let machine = bench.machine().await;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    let before = own_rss_kb("self");
    let mut most = 0;
    for _ in 0..options.times(9) {
        let (floor, count) = floor::stdout_of(&PRODUCER);
        assert_eq!(count, 100 << 20);
        bare.push(floor);
        let start = Instant::now();
        assert_eq!(exec(&*machine, &PRODUCER).await, 100 << 20);
        ours.push(start.elapsed());
        most = most.max(own_rss_kb("self"));
    }
    table.ratio("stdout 100 MB", Spread::of(ours), Spread::of(bare), 1.4);
    table.bound("stdout memory growth", most.saturating_sub(before) as f64 / 1024.0, 16.0, "MB");
    bench.client.delete(&machine.handle()).await.unwrap();
}

async fn terminals(options: &Options, bench: &Bench, table: &mut Table) {
    let machine = bench.machine().await;
    let echo = Command::new(["/bin/sh", "-c", "stty raw -echo; echo ready; exec cat"]).tty(TerminalSize::default());
    let mut process = machine.spawn(echo).await.unwrap();
    while !matches!(process.output.recv().await, Some(Ok(Output::Stdout(bytes))) if bytes.ends_with(b"\n")) {}
    let stdin = process.stdin.take().unwrap();
    let mut trips = Vec::new();
    for _ in 0..options.times(2000) {
        let start = Instant::now();
        stdin.send(Bytes::from_static(b"x")).await.unwrap();
        process.output.recv().await.unwrap().unwrap();
        trips.push(start.elapsed());
    }
    table.bound("pty echo round trip", Spread::of(trips).p50, 0.5, "ms");
    drop(process);

    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..options.times(7) {
        let (floor, expected) = floor::terminal_output_of(&TERMINAL_PRODUCER);
        bare.push(floor);
        let start = Instant::now();
        let command = Command::new(TERMINAL_PRODUCER).tty(TerminalSize::default());
        assert_eq!(finish(machine.spawn(command).await.unwrap()).await, expected);
        ours.push(start.elapsed());
    }
    table.ratio("pty 16 MB", Spread::of(ours), Spread::of(bare), 1.3);
    bench.client.delete(&machine.handle()).await.unwrap();
}

async fn files(options: &Options, bench: &Bench, table: &mut Table) {
    let machine = bench.machine().await;
    let dir = bench.state.join("files");
    fs::create_dir_all(&dir).unwrap();
    let target = Target::from(MachinePath::workspace().join("file").unwrap());
    for (size, times, read_name, write_name) in
        [(1024, 2000, "file read 1 KB", "file write 1 KB"), (64 << 20, 9, "file read 64 MB", "file write 64 MB")]
    {
        let bytes = Bytes::from(vec![b'a'; size]);
        let pieces: Vec<Bytes> = bytes.chunks(256 * 1024).map(|piece| bytes.slice_ref(piece)).collect();
        let (mut write, mut read, mut bare_write, mut bare_read) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.times(times) {
            bare_write.push(floor::replace(&dir, &bytes));
            bare_read.push(floor::read(&dir));
            let start = Instant::now();
            let data = stream::iter(pieces.clone().into_iter().map(Ok));
            machine.write(&target, Box::pin(data)).await.unwrap();
            write.push(start.elapsed());
            let start = Instant::now();
            let mut stream = machine.read(&target).await.unwrap();
            let mut total = 0;
            while let Some(piece) = stream.next().await {
                total += piece.unwrap().len();
            }
            assert_eq!(total, size);
            read.push(start.elapsed());
        }
        if size == 1024 {
            table.bound(write_name, Spread::of(write).p50, 0.1, "ms");
            table.bound(read_name, Spread::of(read).p50, 0.1, "ms");
        } else {
            table.ratio(write_name, Spread::of(write), Spread::of(bare_write), 2.5);
            table.ratio(read_name, Spread::of(read), Spread::of(bare_read), 2.5);
        }
    }
    bench.client.delete(&machine.handle()).await.unwrap();
}

/// Memory of every process of every machine: supervisors are this process's children, guests are theirs.
fn family_rss_kb() -> u64 {
    let me = std::process::id().to_string();
    let mut parents = std::collections::HashMap::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1).map(str::to_owned));
        parents.insert(pid.to_string(), parent.unwrap_or_default());
    }
    let is_ours = |pid: &String| {
        let parent = parents.get(pid).cloned().unwrap_or_default();
        parent == me || parents.get(&parent) == Some(&me)
    };
    parents.keys().filter(|pid| is_ours(pid)).map(|pid| own_rss_kb(pid)).sum()
}

async fn sessions(options: &Options, bench: &Bench, table: &mut Table) {
    let count = options.times(1000);
    let before = own_rss_kb("self");
    let start = Instant::now();
    let machines: Vec<_> = stream::iter(0..count).map(|_| bench.machine()).buffer_unordered(8).collect().await;
    let created = start.elapsed();
    let total = family_rss_kb() + own_rss_kb("self").saturating_sub(before);
    table.bound("sessions create each", created.as_secs_f64() * 1e3 / count as f64, 10.0, "ms");
    table.bound("sessions memory each", total as f64 / 1024.0 / count as f64, 1.5, "MB");
    let start = Instant::now();
    join_all(machines.iter().map(|machine| machine.stop())).await.into_iter().for_each(|stopped| stopped.unwrap());
    let per_thousand = start.elapsed().as_secs_f64() * 1000.0 / count as f64;
    table.bound("sessions all closed", per_thousand, 3.0, "s");
    assert_eq!(fs::read_dir(bench.state.join("state")).unwrap().count(), 0, "nothing is left");
}
