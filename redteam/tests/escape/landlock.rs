//! The level `landlock`: fewer walls, each of which stands.

use std::fs;

use sandbar_machine::{Access, Demand, HostMount, MachinePath};
use sandbar_redteam::{Outcome, attacks};

use crate::escape::{
    canaries::Canaries,
    rig::{Rig, run as run_inside},
    tally::Tally,
};

/// What this level promises: files, networks, other processes, the kernel's soft spots, and the user's terminal.
const PROMISED: &[&str] = &[
    "A1.read-host-file",
    "A2.list-home",
    "A2.watch-a-directory",
    "A3.read-shadow",
    "A4.write-usr",
    "A4.write-passwd",
    "A4.write-root",
    "A6.chroot",
    "A8.file-handle",
    "A9.mount-bind",
    "C19.environ-of-pid1",
    "C19.memory-of-pid1",
    "C19.descriptors-of-pid1",
    "D25.signal-a-host-process",
    "D25.limit-a-host-process",
    "D27.trace-pid1",
    "D27.read-memory-of-pid1",
    "D28.steal-a-descriptor",
    "D31.idle-pid1",
    "D31.idle-pid1-by-attributes",
    "D31.parameters-of-pid1",
    "D31.pin-pid1",
    "D31.nice-pid1",
    "D31.nice-group-of-pid1",
    "D31.nice-everything-of-a-user",
    "D31.io-priority-of-pid1",
    "D31.io-priority-of-a-group",
    "D31.io-priority-of-a-user",
    "D31.share-a-core",
    "D31.slack-of-pid1",
    "D31.group-share-of-pid1",
    "D31.out-of-memory-score-of-pid1",
    "D32.escape-the-deadline-by-tag",
    "E32.new-user-namespace",
    "E32.clone3",
    "E34.set-id-by-fchmodat",
    "E34.set-id-by-openat",
    "E35.bpf",
    "E35.directory-notification",
    "E35.file-lease",
    "E35.io-uring",
    "E36.join-a-keyring",
    "E38.ia32-call",
    "E39.type-with-high-bits",
    "E40.open-the-harness-terminal",
    "E41.leave-a-whiteout",
    "F42.inherited-descriptors",
    "F43.reopen-a-stream",
    "F44.abstract-socket",
    "F45.path-socket",
    "F46.message-to-a-path-socket",
    "F47.shared-memory",
    "F47.message-queue",
    "F47.semaphore",
    "F47.posix-queue",
    "F47.look-at-memory-by-number",
    "F47.attach-memory-by-number",
    "F47.change-memory-by-number",
    "F47.read-a-message-by-number",
    "F47.send-a-message-by-number",
    "F47.change-a-queue-by-number",
    "F47.use-a-semaphore-by-number",
    "F47.use-a-semaphore-with-a-deadline",
    "F47.set-a-semaphore-by-number",
    "F47.remove-a-posix-queue",
    "F47.dev-shm",
    "G50.host-loopback",
    "G50.host-loopback-ipv6",
    "G50.internet",
    "G52.vsock",
    "G52.netlink-generic",
    "J76.asynchronous-io",
    "J76.huge-pages",
    "J76.file-of-huge-pages",
    "J76.segment-of-huge-pages",
    "J76.socket-filters",
    "J77.control-groups",
];

pub(crate) async fn run(rig: &Rig) {
    let mut canaries = Canaries::place(rig);
    let mut tally = Tally::new(rig.mode);
    let workspace = rig.dir("workspace");
    let mut spec = rig.spec(&workspace).isolation(Demand::Landlock);
    spec.mounts = vec![HostMount {
        host: rig.kit.clone(),
        inside: MachinePath::new(&rig.kit).expect("a path"),
        access: Access::ReadOnly,
        identity: None,
    }];
    let machine = rig.create(spec).await;
    for attack in attacks().filter(|attack| PROMISED.contains(&attack.name)) {
        let words = canaries.words(&[
            ("dir", workspace.display().to_string()),
            ("pid", canaries.hostpid()),
            ("spare-queue", canaries.spare_queue()),
            ("inside", "yes".to_owned()),
        ]);
        let argv = [rig.probe().display().to_string(), attack.name.to_owned()].into_iter().chain(words);
        let ran = run_inside(machine.as_ref(), sandbar_machine::Command::new(argv)).await;
        let outcome = ran.stdout.lines().find_map(|line| Outcome::parse(line.strip_prefix(attack.name)?));
        let mut held = match outcome {
            Some(Outcome::Refused(_, detail)) => Ok(detail),
            other => Err(format!("{other:?} {}", ran.stdout)),
        };
        if let Some(harm) = canaries.harm().first() {
            held = Err(harm.clone());
        }
        tally.record(&format!("{}.landlock", attack.name), held, "proven by the suite `probes`");
    }
    machine.stop().await.expect("stop");
    let left = fs::read_dir(rig.state()).expect("the state directory").count();
    tally.expect("K80.nothing-left.landlock", left == 0, format!("{left} directories left"));
    tally.finish("landlock");
}
