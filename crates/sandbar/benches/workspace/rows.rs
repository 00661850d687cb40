//! The workloads, each with its floor.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use sandbar::{
    LocalDir, Manifest, SandboxSession, SessionOptions,
    client::UnixLocal,
    sandbox::patch::{PatchOptions, Profile},
};

use super::{
    peer::Peer,
    table::{Options, Spread, Table},
};

/// Directories of the benchmark on tmpfs, so that the journal of a disk does not affect it.
struct Bench {
    client: Arc<UnixLocal>,
    directory: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let directory = PathBuf::from(format!("/dev/shm/sandbar-bench-{}", std::process::id()));
        fs::create_dir_all(directory.join("temp")).unwrap();
        let bench = Self { client: Arc::new(UnixLocal::new().state_dir(directory.join("state"))), directory };
        bench.make_tree();
        bench
    }

    /// Creates 5,000 files with 100 MB.
    fn make_tree(&self) {
        let content: Vec<u8> = (0..20_971_u32).map(|at| (at % 251) as u8).collect();
        for at in 0..5000 {
            let dir = self.tree().join(format!("d{}/e{}", at % 25, at % 100));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(format!("f{at}.bin")), &content).unwrap();
        }
    }

    fn tree(&self) -> PathBuf {
        self.directory.join("tree")
    }

    async fn open(&self, manifest: Manifest) -> (SandboxSession, Duration) {
        let started = Instant::now();
        let session = SandboxSession::open(self.client.clone(), SessionOptions::new(manifest)).await.unwrap();
        (session, started.elapsed())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _leftovers = fs::remove_dir_all(&self.directory);
    }
}

/// Runs every requested workload.
pub(crate) async fn all(options: &Options) -> Table {
    let mut table = Table::default();
    let bench = Bench::new();
    // The Python SDK takes most of a minute, so a run of a single row skips it.
    let rounds = if options.quick { 1 } else { 3 };
    let peer = match options.only {
        None => Peer::measure(&bench.tree(), &bench.directory.join("temp"), rounds),
        Some(_) => None,
    };
    if options.wants("inline") {
        inline(options, &bench, peer.as_ref(), &mut table).await;
    }
    if options.wants("local_dir") {
        local_dir(options, &bench, peer.as_ref(), &mut table).await;
    }
    if options.wants("patch") {
        large_patch(options, &bench, peer.as_ref(), &mut table).await;
        wide_patch(options, &bench, peer.as_ref(), &mut table).await;
    }
    table
}

fn sdk() -> PatchOptions {
    PatchOptions { profile: Profile::Sdk, ..PatchOptions::default() }
}

fn files(count: usize) -> Manifest {
    let add = |manifest: Manifest, at| manifest.file(format!("d{}/f{at}.txt", at % 20), vec![b'x'; 100]);
    (0..count).fold(Manifest::new(), add)
}

fn write_loop(directory: &Path, count: usize) -> Duration {
    let started = Instant::now();
    for at in 0..20 {
        fs::create_dir_all(directory.join(format!("d{at}"))).unwrap();
    }
    for at in 0..count {
        fs::write(directory.join(format!("d{}/f{at}.txt", at % 20)), [b'x'; 100]).unwrap();
    }
    let took = started.elapsed();
    fs::remove_dir_all(directory).unwrap();
    took
}

async fn inline(options: &Options, bench: &Bench, peer: Option<&Peer>, table: &mut Table) {
    let mut medians = Vec::new();
    for count in [1_000, 10_000] {
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        for _ in 0..options.times(20) {
            let (session, took) = bench.open(files(count)).await;
            ours.push(took);
            session.delete().await.unwrap();
            floor.push(write_loop(&bench.directory.join("loop"), count));
        }
        let (ours, floor) = (Spread::of(ours), Spread::of(floor));
        let name = if count == 1_000 { "inline 1,000 files / write loop" } else { "inline 10,000 files / write loop" };
        table.ratio(name, ours, floor, 4.0);
        medians.push(ours.p50);
        if let (1_000, Some(peer)) = (count, peer) {
            table.ratio("inline 1,000 files / Python SDK", ours, peer.get("inline_1000"), 1.0 / 100.0);
        }
    }
    table.bound("inline: 10,000 over 1,000 (linear)", medians[1] / medians[0], 12.0, "x");
}

async fn local_dir(options: &Options, bench: &Bench, peer: Option<&Peer>, table: &mut Table) {
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..options.times(20) {
        let manifest = Manifest::new().entry("tree", LocalDir::new(bench.tree())).base_dir(&bench.directory);
        let (session, took) = bench.open(manifest).await;
        ours.push(took);
        session.delete().await.unwrap();
        let copy = bench.directory.join("copy");
        let started = Instant::now();
        assert!(Command::new("cp").arg("-r").arg(bench.tree()).arg(&copy).status().unwrap().success());
        floor.push(started.elapsed());
        fs::remove_dir_all(copy).unwrap();
    }
    let (ours, floor) = (Spread::of(ours), Spread::of(floor));
    table.ratio("local_dir 5,000 files, 100 MB / cp -r", ours, floor, 1.5);
    if let Some(peer) = peer {
        table.ratio("local_dir 5,000 files / Python SDK", ours, peer.get("local_dir"), 1.0 / 5.0);
    }
}

async fn large_patch(options: &Options, bench: &Bench, peer: Option<&Peer>, table: &mut Table) {
    let (session, _) = bench.open(Manifest::new()).await;
    let lines: Vec<String> = (0..10_000).map(|at| format!("line {at}")).collect();
    let text = format!("{}\n", lines.join("\n"));
    let mut patch = "*** Begin Patch\n*** Update File: big.txt\n".to_owned();
    for at in (500..9_600).step_by(950) {
        let (before, line, after) = (&lines[at - 1], &lines[at], &lines[at + 1]);
        writeln!(patch, "@@\n {before}\n-{line}\n+changed {at}\n {after}").unwrap();
    }
    patch.push_str("*** End Patch\n");
    let mut ours = Vec::new();
    for _ in 0..options.times(100) {
        session.write("big.txt", text.clone()).await.unwrap();
        let started = Instant::now();
        session.apply_patch(&patch, sdk()).await.unwrap();
        ours.push(started.elapsed());
    }
    let ours = Spread::of(ours);
    match peer {
        Some(peer) => table.ratio("patch 10k lines / Python SDK", ours, peer.get("patch_10k_lines"), 1.0 / 5.0),
        None => table.bound("patch 10k lines", ours.p50, 1.2, "ms"),
    }
    session.delete().await.unwrap();
}

async fn wide_patch(options: &Options, bench: &Bench, peer: Option<&Peer>, table: &mut Table) {
    let text: String = (0..20).map(|at| format!("line {at}\n")).collect();
    let changed = text.replace("line 10\n", "line ten\n");
    let manifest = (0..500).fold(Manifest::new(), |manifest, at| manifest.file(format!("x{at}.txt"), text.clone()));
    let (session, _) = bench.open(manifest).await;
    let patch = |from: &str, to: &str| {
        let mut patch = "*** Begin Patch\n".to_owned();
        for at in 0..500 {
            writeln!(patch, "*** Update File: x{at}.txt\n@@\n line 9\n-{from}\n+{to}\n line 11").unwrap();
        }
        patch + "*** End Patch\n"
    };
    let turns = [patch("line 10", "line ten"), patch("line ten", "line 10")];
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    let directory = bench.directory.join("loop");
    for at in 0..options.times(40) {
        let started = Instant::now();
        session.apply_patch(&turns[at % 2], sdk()).await.unwrap();
        ours.push(started.elapsed());
        floor.push(replace_loop(&directory, &changed));
    }
    let _may_not_exist = fs::remove_dir_all(&directory);
    let (ours, floor) = (Spread::of(ours), Spread::of(floor));
    table.ratio("patch 500 files / plain replacing", ours, floor, 4.0);
    if let Some(peer) = peer {
        table.ratio("patch 500 files / Python SDK", ours, peer.get("patch_500_files"), 1.0 / 10.0);
    }
    session.delete().await.unwrap();
}

/// Reads each file and replaces it atomically by a new file with the same name.
fn replace_loop(directory: &Path, text: &str) -> Duration {
    fs::create_dir_all(directory).unwrap();
    for at in 0..500 {
        fs::write(directory.join(format!("x{at}.txt")), text).unwrap();
    }
    let started = Instant::now();
    for at in 0..500 {
        let path = directory.join(format!("x{at}.txt"));
        let old = fs::read(&path).unwrap();
        let temporary = directory.join(format!(".x{at}"));
        fs::write(&temporary, &old).unwrap();
        fs::rename(temporary, path).unwrap();
    }
    started.elapsed()
}
