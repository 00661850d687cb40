//! Group J: trees and names that are too large for the program that walks them, and output that is not text.

use std::time::{Duration, Instant};

use futures::StreamExt;
use sandbar_machine::{Command, Hashes, Machine, MachineError, MachinePath, Output, ScanOptions, Target, Workspace};
use tokio::time::timeout;

use crate::escape::{
    lifetime::{rss, until_clean},
    rig::{Rig, SOON, inside, run as run_inside},
    tally::Tally,
};

/// Directories inside one another, and letters of each one's name: far more than a path can hold.
const DEEP: (u32, u32) = (400, 250);
/// Files in one directory, with the longest names there are.
const MANY: usize = 5000;
/// Growth of the harness's memory that is still called bounded, in KiB.
const BOUNDED: u64 = 128 << 10;

pub(crate) async fn run(rig: &Rig) {
    let mut tally = Tally::new(rig.mode);
    // On a workspace of its own, which the machine's end has to remove.
    let spec = rig.spec(&rig.dir("unused")).workspace(Workspace::default());
    let machine = rig.create(spec).await;
    let storms = [
        ("deep", "dig", vec![format!("depth={}", DEEP.0), format!("letters={}", DEEP.1)]),
        ("many", "names", vec![format!("count={MANY}")]),
        ("huge", "plant", vec![]),
    ];
    for (name, storm, words) in storms {
        let dir = format!("/workspace/{name}");
        run_inside(machine.as_ref(), Command::new(["mkdir", &dir])).await;
        let said = run_inside(machine.as_ref(), inside(storm, words.into_iter().chain([format!("dir={dir}")]))).await;
        let made = said.stdout.contains("reached");
        tally.control(&format!("J73.{name}"), made, "the kernel lets every user make it");
        walks(machine.as_ref(), name, &mut tally).await;
    }
    let listed = timeout(SOON, machine.list(&at("/workspace/many"))).await.expect("an end").map(|all| all.len());
    let all = matches!(listed, Ok(count) if count == MANY + 6);
    tally.expect("J73.many.all-are-listed", all, format!("{listed:?}"));
    binary(machine.as_ref(), &mut tally).await;
    let removed = timeout(SOON, machine.remove(&at("/workspace/many"))).await.expect("an end");
    tally.expect("J73.many.can-be-removed", removed.is_ok(), format!("{removed:?}"));
    let start = Instant::now();
    let stopped = timeout(SOON, machine.stop()).await;
    drop(machine);
    let clean = if rig.mode.in_container() { Ok(Duration::ZERO) } else { until_clean(&rig.state()).await };
    let held = matches!(stopped, Ok(Ok(()))) && clean.is_ok();
    tally.expect("J73.deep.the-end-removes-it", held, format!("{stopped:?} after {:?}, {clean:?}", start.elapsed()));
    tally.finish("trees");
}

fn at(path: &str) -> Target {
    Target::from(MachinePath::new(path).expect("a path"))
}

/// Whatever the harness does with such a tree has an end, without memory to speak of, and the machine answers afterwards.
async fn walks(machine: &dyn Machine, name: &str, tally: &mut Tally) {
    let (root, before, start) = (at(&format!("/workspace/{name}")), rss(), Instant::now());
    let list = timeout(SOON, machine.list(&root)).await.map(|all| brief(all.map(|all| all.len())));
    let scan = ScanOptions { skip: vec![], hashes: Hashes::Skip };
    let scan = timeout(SOON, machine.scan(&root, &scan)).await.map(|all| brief(all.map(|all| all.entries.len())));
    // A reader that has had enough lets go.
    let pack = timeout(SOON, async {
        let mut stream = machine.pack(&root, &[]).await?;
        let mut bytes = 0;
        while let Some(piece) = stream.next().await {
            bytes += piece?.len();
            if bytes > 64 << 20 {
                break;
            }
        }
        Ok::<_, MachineError>(bytes)
    });
    let pack = pack.await.map(brief);
    let alive = run_inside(machine, Command::new(["true"])).await.exit.is_some_and(|exit| exit.success());
    let grown = rss().saturating_sub(before);
    let held = list.is_ok() && scan.is_ok() && pack.is_ok() && alive && grown < BOUNDED;
    let detail = format!("list {list:?}, scan {scan:?}, pack {pack:?} in {:?}; {grown} KiB more", start.elapsed());
    tally.expect(&format!("J73.{name}.walks-end"), held, detail);
}

fn brief(answer: Result<usize, MachineError>) -> String {
    answer.map_or_else(|error| error.to_string().chars().take(120).collect(), |count| count.to_string())
}

/// Every byte there is comes through as it is.
async fn binary(machine: &dyn Machine, tally: &mut Tally) {
    let script = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 4096)";
    let mut process = machine.spawn(Command::new(["/usr/bin/python3", "-c", script])).await.expect("it starts");
    let mut all = Vec::new();
    let read = timeout(SOON, async {
        while let Some(Ok(output)) = process.output.recv().await {
            match output {
                Output::Omitted(_) => {}
                Output::Stdout(bytes) => all.extend_from_slice(&bytes),
                Output::Stderr(_) => {}
                Output::Exit(_) => break,
            }
        }
    });
    read.await.expect("an end");
    let whole = all.len() == 1 << 20 && all.iter().enumerate().all(|(at, byte)| *byte == at as u8);
    tally.expect("J75.bytes-that-are-no-text", whole, format!("{} bytes", all.len()));
}
