//! Group B: the harness's own reads and writes, while the sandbox plants links under them.

use std::{fs, os::unix::fs::symlink, path::Path, time::Instant};

use futures::StreamExt;
use sandbar_machine::{Access, Command, HostMount, Machine, MachineError, MachinePath, Target, collect, once};
use tokio::time::{Duration, timeout};

use crate::escape::{
    rig::{Mode, Rig, SOON, inside, run as run_inside, token, works_once},
    tally::Tally,
};

/// As many host-side operations as the issue asks for.
const OPERATIONS: usize = 10_000;
/// An answer that takes longer counts as a hang.
const PROMPT: Duration = SOON;

pub(crate) async fn run(rig: &Rig) {
    let mut tally = Tally::new(rig.mode);
    let (workspace, canary) = (rig.dir("workspace"), rig.dir("canary"));
    let secret = token();
    fs::write(canary.join("f"), &secret).expect("a secret");
    let before = listing(&canary);
    let machine = rig.create(rig.spec(&workspace)).await;
    planted_links(machine.as_ref(), &workspace, &canary, &secret, &mut tally).await;
    magic_links(machine.as_ref(), &canary, &secret, &mut tally).await;
    odd_files(machine.as_ref(), &mut tally).await;
    removal(machine.as_ref(), &workspace, &canary, &mut tally).await;
    race(rig.mode, machine.as_ref(), (&workspace, &canary), &secret, &mut tally).await;
    machine.stop().await.expect("stop");
    mount_through_link(rig, &workspace, &canary, &mut tally).await;
    tally.expect("B13.canary-unchanged", listing(&canary) == before, "the canary directory is as it was");
    tally.finish("links");
}

fn listing(dir: &Path) -> Vec<(String, String)> {
    let mut all: Vec<_> = fs::read_dir(dir)
        .expect("the canary directory")
        .flatten()
        .map(|entry| {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            (entry.file_name().to_string_lossy().into_owned(), text)
        })
        .collect();
    all.sort();
    all
}

fn at(path: &str) -> Target {
    Target::from(MachinePath::new(path).expect("a path"))
}

fn beneath(path: &str) -> Target {
    at(path).beneath(MachinePath::workspace())
}

async fn read(machine: &dyn Machine, target: &Target) -> Result<Vec<u8>, MachineError> {
    timeout(PROMPT, async { Ok(collect(machine.read(target).await?, 1 << 20).await?.to_vec()) })
        .await
        .expect("an answer, not a hang")
}

/// Numbers 11 and 12: links that are there before the harness comes.
async fn planted_links(machine: &dyn Machine, workspace: &Path, canary: &Path, secret: &str, tally: &mut Tally) {
    let script = format!("ln -s {0}/f evil; ln -s {0} evildir", canary.display());
    run_inside(machine, Command::new(["sh", "-c", &script])).await;
    let naive = fs::read_to_string(workspace.join("evil")).is_ok_and(|text| text == secret);
    tally.control("B11", naive, "a harness that opens the path reads the secret");
    let naive =
        fs::write(workspace.join("evildir/naive"), "x").is_ok() && fs::remove_file(canary.join("naive")).is_ok();
    tally.control("B12", naive, "a harness that opens the path writes there");
    for (name, target) in [("plain", at("/workspace/evil")), ("beneath", beneath("/workspace/evil"))] {
        let got = read(machine, &target).await;
        tally.expect(&format!("B11.read-a-planted-link-{name}"), got.is_err(), format!("{got:?}"));
    }
    for (name, file, dir) in [
        ("plain", at("/workspace/evildir/x"), at("/workspace/evildir/y")),
        ("beneath", beneath("/workspace/evildir/x"), beneath("/workspace/evildir/y")),
    ] {
        let wrote = machine.write(&file, once("x")).await;
        let made = machine.make_dir(&dir).await;
        let untouched = !canary.join("x").exists() && !canary.join("y").exists();
        tally.expect(&format!("B12.write-through-a-planted-link-{name}"), untouched, format!("{wrote:?} {made:?}"));
    }
    let onto = machine.write(&at("/workspace/evil"), once("x")).await;
    tally.expect("B12.write-onto-a-planted-link", onto.is_err(), format!("{onto:?}"));
}

/// Number 16: paths that lead through the kernel's own links.
async fn magic_links(machine: &dyn Machine, canary: &Path, secret: &str, tally: &mut Tally) {
    let naive = fs::read_to_string(format!("/proc/self/root{}/f", canary.display())).is_ok_and(|text| text == secret);
    tally.control("B16", naive, "on the host the kernel's links are followed");
    let file = format!("{}/f", canary.display());
    for path in [
        format!("/proc/self/root{file}"),
        format!("/proc/1/root{file}"),
        "/proc/self/fd/0".to_owned(),
        "/proc/self/fd/3".to_owned(),
        "/proc/self/fd/4".to_owned(),
        "/proc/1/fd/5".to_owned(),
        "/proc/self/exe".to_owned(),
        "/dev/fd/3".to_owned(),
    ] {
        let got = read(machine, &at(&path)).await;
        tally.expect(
            &format!("B16.read{}", path.replace(&file, "/CANARY").replace('/', "-")),
            got.is_err(),
            format!("{got:?}"),
        );
    }
    for path in ["/proc/self/root/etc", "/proc/1/cwd", "/proc/self/root"] {
        let got = machine.list(&at(path)).await;
        tally.expect(
            &format!("B16.list{}", path.replace('/', "-")),
            got.is_err(),
            format!("{:?}", got.map(|all| all.len())),
        );
    }
    let wrote = machine.write(&at(&format!("/proc/self/root{}/new", canary.display())), once("x")).await;
    tally.expect("B16.write-through-proc", wrote.is_err() && !canary.join("new").exists(), format!("{wrote:?}"));
}

/// Number 17: things that are no regular files, and one that is too big.
async fn odd_files(machine: &dyn Machine, tally: &mut Tally) {
    run_inside(machine, inside("plant", ["dir=/workspace".to_owned()])).await;
    for path in
        ["/workspace/fifo", "/workspace/socket", "/dev/zero", "/dev/tty", "/dev/ptmx", "/dev/random", "/workspace"]
    {
        let start = Instant::now();
        let got = read(machine, &at(path)).await;
        let detail = format!("{:?} after {:?}", got.as_ref().map(Vec::len), start.elapsed());
        tally.expect(&format!("B17.read{}", path.replace('/', "-")), got.is_err(), detail);
    }
    let got = timeout(PROMPT, async {
        let mut stream = machine.read(&at("/workspace/sparse")).await?;
        let mut bytes = 0;
        while let Some(piece) = stream.next().await {
            bytes += piece?.len();
            if bytes > 1 << 20 {
                break;
            }
        }
        Ok::<_, MachineError>(bytes)
    })
    .await;
    tally.expect("B17.read-a-terabyte", got.is_ok(), format!("the reader stopped after {got:?} bytes"));
    let alive = run_inside(machine, Command::new(["true"])).await;
    tally.expect("B17.machine-lives-on", alive.exit.is_some_and(|exit| exit.success()), "after all of that");
}

/// Number 15: removing a tree with links in it.
async fn removal(machine: &dyn Machine, workspace: &Path, canary: &Path, tally: &mut Tally) {
    let script = format!("mkdir -p tree/a/b && ln -s {0} tree/a/b/out && ln -s {0} tree/out", canary.display());
    run_inside(machine, Command::new(["sh", "-c", &script])).await;
    symlink(canary, workspace.join("tree/a/by-the-host")).expect("a link");
    let removed = timeout(SOON, machine.remove(&at("/workspace/tree"))).await.expect("in time");
    let gone = !workspace.join("tree").exists() && canary.join("f").exists();
    tally.expect("B15.remove-a-tree-with-links", removed.is_ok() && gone, format!("{removed:?}"));
}

/// Number 13: a directory and a link change places as fast as they can, while the harness reads and writes through them.
async fn race(mode: Mode, machine: &dyn Machine, (workspace, canary): (&Path, &Path), secret: &str, tally: &mut Tally) {
    let script = format!("mkdir d && echo inside > d/f && ln -s {} l", canary.display());
    run_inside(machine, Command::new(["sh", "-c", &script])).await;
    let storm = machine.spawn(inside("swap", ["dir=/workspace".to_owned()])).await.expect("the storm starts");
    let naive = works_once(|| fs::read_to_string(workspace.join("d/f")).is_ok_and(|text| text == secret));
    tally.control("B13", naive, "a harness that opens the path is fooled");
    let (start, operations) = (Instant::now(), if mode.in_container() { OPERATIONS / 4 } else { OPERATIONS });
    let (mut hits, mut inside_reads, mut wrote, mut refused, mut round) = (0, 0, 0, 0, 0);
    // A storm that is held up is waited for: without both ends nothing was raced.
    while round < operations / 2 || (wrote == 0 || refused == 0) && start.elapsed() < SOON {
        let (file, fresh) = (format!("/workspace/d/{}", if round % 4 < 2 { "f" } else { "w" }), "/workspace/d/w");
        let (from, to) = if round % 2 == 0 { (at(&file), at(fresh)) } else { (beneath(&file), beneath(fresh)) };
        match read(machine, &from).await {
            Ok(bytes) if bytes == secret.as_bytes() => hits += 1,
            Ok(_) => inside_reads += 1,
            Err(_) => refused += 1,
        }
        match timeout(PROMPT, machine.write(&to, once("written"))).await.expect("an answer") {
            Ok(()) => wrote += 1,
            Err(_) => refused += 1,
        }
        round += 1;
    }
    if canary.join("w").exists() {
        hits += 1;
    }
    drop(storm);
    let detail = format!(
        "{} operations in {:?}: {inside_reads} read inside, {wrote} written inside, {refused} refused, {hits} on the host",
        2 * round,
        start.elapsed()
    );
    tally.expect("B13.swap-race", hits == 0 && wrote > 0 && refused > 0, detail);
}

/// Number 18: a mount whose place leads through a planted link.
async fn mount_through_link(rig: &Rig, workspace: &Path, canary: &Path, tally: &mut Tally) {
    symlink(canary, workspace.join("link")).expect("a link");
    let naive = fs::create_dir(workspace.join("link/naive")).is_ok() && fs::remove_dir(canary.join("naive")).is_ok();
    tally.control("B18", naive, "a setup that makes the path makes it on the host");
    for (name, place) in [("parent", "/workspace/link/x"), ("itself", "/workspace/link")] {
        for host in [rig.kit.clone(), rig.kit.join("probe")] {
            let mut spec = rig.spec(workspace);
            spec.mounts.push(HostMount {
                host: host.clone(),
                inside: MachinePath::new(place).expect("a path"),
                access: Access::ReadOnly,
                identity: None,
            });
            let made = timeout(SOON, rig.client.create(spec)).await.expect("in time");
            let kind = if host.is_dir() { "directory" } else { "file" };
            let typed = matches!(
                made,
                Err(MachineError::Start { .. } | MachineError::Isolation { .. } | MachineError::Invalid { .. })
            );
            // An engine resolves the place inside the container's own tree; that nothing is made on the host is seen below.
            let held = typed || rig.mode.in_container() && made.is_ok();
            tally.expect(&format!("B18.mount-{kind}-with-link-as-{name}"), held, format!("{:?}", made.map(drop)));
        }
    }
}
