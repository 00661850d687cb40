//! The starts, each compared with its floor.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command as Program, Stdio},
    time::{Duration, Instant},
};

use futures::future::join_all;
use sandbar_clients::UnixLocal;
use sandbar_machine::{Command, Machine, MachineSpec, Output, SandboxClient};

use super::{
    floor::Floor,
    release,
    table::{Options, Spread, Table},
};

/// A run that begins at a higher load is void.
pub(crate) const MOST_LOAD: f64 = 2.0;
/// Rounds before the measured ones.
const WARM_UP: usize = 10;

/// The load average of the last minute.
pub(crate) fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(f64::MAX)
}

/// A directory on tmpfs, so that the journal of a disk is not measured.
struct ScratchDir(PathBuf);

impl ScratchDir {
    fn new() -> Self {
        let place = PathBuf::from(format!("/dev/shm/sandbar-bench-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        Self(place)
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let _leftovers = fs::remove_dir_all(&self.0);
    }
}

pub(crate) async fn all(options: &Options) -> Table {
    let mut table = Table::default();
    let place = ScratchDir::new();
    let mut floor = Floor::new(&place.0);
    let client = UnixLocal::new().state_dir(place.0.join("state"));
    if options.wants("one start") {
        one(options, &client, &mut floor, &mut table).await;
    }
    if options.wants("100 starts at once") {
        many(options, &client, &mut floor, &mut table).await;
    }
    if options.wants("1,000 starts in a row") {
        row(options, &client, &mut floor, &mut table).await;
    }
    if options.wants("sandbar exec") {
        process(options, &place.0, &floor, &mut table);
    }
    table
}

/// Creates a machine and waits for the result of its first command.
async fn start(client: &UnixLocal) -> std::sync::Arc<dyn Machine> {
    let machine = client.create(MachineSpec::default()).await.unwrap();
    let mut process = machine.spawn(Command::new(["/usr/bin/true"])).await.unwrap();
    loop {
        match process.output.recv().await.unwrap().unwrap() {
            Output::Exit(exit) => break assert_eq!(exit.code, 0),
            _printed => {}
        }
    }
    machine
}

async fn one(options: &Options, client: &UnixLocal, floor: &mut Floor, table: &mut Table) {
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..options.times(200) + WARM_UP {
        let floor = floor.time("one");
        let begun = Instant::now();
        let machine = start(client).await;
        let took = begun.elapsed();
        client.delete(&machine.handle()).await.unwrap();
        if round >= WARM_UP {
            ours.push(took);
            bare.push(floor);
        }
    }
    table.ratio("one start", Spread::of(ours), Spread::of(bare), 6.0);
}

async fn many(options: &Options, client: &UnixLocal, floor: &mut Floor, table: &mut Table) {
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..options.times(20) {
        bare.push(floor.time("many 100"));
        let begun = Instant::now();
        let machines = join_all((0..100).map(|_| start(client))).await;
        ours.push(begun.elapsed());
        join_all(machines.iter().map(|machine| machine.stop())).await.into_iter().for_each(|end| end.unwrap());
    }
    table.ratio("100 starts at once", Spread::of(ours), Spread::of(bare), 6.0);
}

/// Each machine is removed before the next one is created, by sandbar and by the floor.
async fn row(options: &Options, client: &UnixLocal, floor: &mut Floor, table: &mut Table) {
    let (mut ours, mut bare) = (Duration::ZERO, Duration::ZERO);
    let parts = 10;
    let count = options.times(1000) / parts;
    for _ in 0..parts {
        bare += floor.time(&format!("row {count}"));
        let begun = Instant::now();
        for _ in 0..count {
            let machine = start(client).await;
            client.delete(&machine.handle()).await.unwrap();
        }
        ours += begun.elapsed();
    }
    table.ratio("1,000 starts in a row", Spread::of(vec![ours]), Spread::of(vec![bare]), 6.0);
}

/// The command as a process, from `exec` to its end.
fn process(options: &Options, place: &Path, floor: &Floor, table: &mut Table) {
    let sandbar = release::sandbar();
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..options.times(200) + WARM_UP {
        let floor = timed(&mut floor.once());
        let took = timed(Program::new(&sandbar).args(["exec", "--", "true"]).env("TMPDIR", place));
        if round >= WARM_UP {
            ours.push(took);
            bare.push(floor);
        }
    }
    let (ours, bare) = (Spread::of(ours), Spread::of(bare));
    table.bound("sandbar exec -- true", ours.p50, 8.0, "ms");
    table.aside("  the same beside the floor", ours, bare);
}

fn timed(command: &mut Program) -> Duration {
    let begun = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).status().unwrap();
    assert!(status.success(), "{command:?}");
    begun.elapsed()
}
