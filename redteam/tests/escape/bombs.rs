//! Group J: endless use of memory and disk, on machines with limits.

use std::time::Duration;

use sandbar_machine::{Command, Enforcement, ExitReason, Limits, Machine};

use crate::escape::{
    rig::{Ran, Rig, run as run_inside},
    tally::Tally,
};

const MEMORY: u64 = 64 << 20;
const DISK: u64 = 8 << 20;

/// Seconds for which a hoard stays on a machine without a watch, and on one with a watch, which may be delayed.
const STAY: [&str; 2] = ["4", "40"];
/// Hoards, each of which stays for `STAY` seconds, to be found, and prints `done` if it is not stopped.
const MEMORY_HOARDS: [(&str, &str); 3] = [
    (
        "J72.memory-of-a-process",
        "import time; x = [bytearray(b'x') * (10 << 20) for _ in range(25)]; time.sleep(STAY); print('done')",
    ),
    (
        "J72.memory-of-many-processes",
        "import os, time\nfor _ in range(10):\n  if os.fork() == 0:\n    x = bytearray(b'x') * (25 << 20); time.sleep(STAY); os._exit(0)\n\
         for _ in range(10):\n  if os.wait()[1] != 0: os.kill(0, 9)\nprint('done')",
    ),
    ("J72.memory-in-tmp", "f = open('/tmp/x', 'wb')\nfor _ in range(200): f.write(b'x' * (1 << 20))\nprint('done')"),
];
/// A hoard that ends too soon for a watch; only a control group stops it in time.
const HIDDEN_HOARD: (&str, &str) = (
    "J72.memory-of-no-process",
    "import os\nfor f in [os.memfd_create('x') for _ in range(30)]:\n  for _ in range(7): os.write(f, b'x' * (1 << 20))\n\
     print('done')",
);
const DISK_HOARDS: [(&str, &str); 3] = [
    ("J73.fill-the-workspace", "cd /workspace"),
    ("J73.fill-the-home", "cd"),
    ("J73.fill-a-closed-directory", "mkdir /workspace/c; cd /workspace/c; chmod 300 ."),
];

pub(crate) async fn run(rig: &Rig) {
    let mut tally = Tally::new(rig.mode);
    let limits = Limits::default().memory(MEMORY).disk(DISK);
    let free = make(rig, "free", Limits::default()).await;
    let held = make(rig, "held", limits).await;
    let memory = held.features().limits.memory;
    for (name, script) in MEMORY_HOARDS.into_iter().chain((memory == Enforcement::Hard).then_some(HIDDEN_HOARD)) {
        let [python, patient] = STAY.map(|stay| {
            Command::new(["python3", "-c", &script.replace("STAY", stay)]).deadline(Duration::from_secs(50))
        });
        let control = run_inside(free.as_ref(), python).await;
        tally.control("J72", control.stdout.contains("done"), name);
        let ran = run_inside(held.as_ref(), patient).await;
        let ended = !ran.stdout.contains("done") && ran.exit.is_some_and(|exit| !exit.success());
        let how = format!("{memory:?}: {:?}", ran.exit);
        tally.expect(name, ended && is_typed(name, &ran) && answers(held.as_ref()).await, how);
        run_inside(held.as_ref(), Command::new(["rm", "-f", "/tmp/x"])).await;
    }
    for (name, place) in DISK_HOARDS {
        let one = "head -c 1000000 /dev/zero >f$i || exit 9; i=$((i+1))";
        let fill = format!("i=0; while [ $i -lt 40 ]; do {one}; done");
        // A late watch may attribute the first files to the previous command and spare this one once, so more files follow.
        let more = format!("while [ $i -lt 80 ]; do sleep 1; {one}; done");
        let [shell, patient] = ["sleep 0", &more].map(|then| {
            // After this pause, the files of the previous command are counted and not attributed to this one.
            let script = format!("sleep 2; {place}\n{fill}; {then}; echo done; rm -f f*");
            Command::new(["sh", "-c", &script]).deadline(Duration::from_secs(50))
        });
        let control = run_inside(free.as_ref(), shell).await;
        tally.control("J73", control.stdout.contains("done"), name);
        let ran = run_inside(held.as_ref(), patient).await;
        let ended = ran.exit.is_some_and(|exit| exit.reason == ExitReason::Disk);
        tally.expect(name, ended && answers(held.as_ref()).await, format!("{:?}", ran.exit));
        let clean = "chmod 700 c; rm -rf ./* ~/f*";
        run_inside(held.as_ref(), Command::new(["sh", "-c", clean])).await;
    }
    for machine in [free, held] {
        machine.stop().await.expect("stop");
    }
    tally.finish("hoards");
}

async fn make(rig: &Rig, workspace: &str, limits: Limits) -> std::sync::Arc<dyn Machine> {
    rig.create(rig.spec(&rig.dir(workspace)).limits(limits)).await
}

/// Whether the exit names the limit. A full `/tmp` is reported by the file system itself, and of several processes only one may
/// have been killed: their exits are not checked.
fn is_typed(name: &str, ran: &Ran) -> bool {
    let told = ["J72.memory-of-a-process", "J72.memory-of-no-process"];
    !told.contains(&name) || ran.exit.is_some_and(|exit| exit.reason == ExitReason::Memory)
}

async fn answers(machine: &dyn Machine) -> bool {
    run_inside(machine, Command::new(["true"])).await.exit.is_some_and(|exit| exit.success())
}
