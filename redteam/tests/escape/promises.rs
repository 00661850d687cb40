//! The list of promises, `redteam/promises.md`, and the check that it is complete.

use std::{fmt::Write, fs, path::Path};

use sandbar_redteam::{DIFFERENT, EXCEPTIONS, UNPROMISED, attacks};

/// What the suites promise beyond the probe's attacks: promise, names of the checks, suite, and how it is in a container.
const SUITES: &[(&str, &str, &str, &str)] = &[
    (
        "Links a command plants lead the harness's reads and writes nowhere, even while they change 10,000 times.",
        "B11, B12, B13, B15",
        "links",
        KEPT,
    ),
    ("Paths through /proc's links are refused to the harness.", "B16", "links", KEPT),
    ("Reading a FIFO, socket, device or terabyte file fails or streams, and never hangs.", "B17", "links", KEPT),
    (
        "A mount whose place leads through a planted link is refused, and nothing is made on the host.",
        "B18",
        "links",
        "nothing is made on the host; an engine looks for the place inside the image's own tree",
    ),
    (
        "The deadline kills the whole tree: daemons, processes that ignore signals, chains of processes.",
        "D29, D30",
        "lifetime",
        KEPT,
    ),
    (
        "A command that stops every process it can stops neither the guest, nor a deadline, nor file work.",
        "D26",
        "lifetime",
        KEPT,
    ),
    (
        "A command that tries every way to slow the guest down or pin it, and then computes in 150 processes, ends at its \
         deadline, when its machine is stopped, and when its owner is killed.",
        "D34",
        "starving",
        KEPT,
    ),
    (
        "Kill -9 of the harness, at any moment, leaves no process, mount or directory.",
        "D29.harness-killed, K78",
        "faults",
        ENGINE,
    ),
    (
        "Kill -9 of the supervisor or of the guest ends the machine; what is left is swept at the next start.",
        "K78",
        "lifetime",
        LOCAL,
    ),
    ("If a call that puts up a wall fails, the error is typed and no command runs.", "K79", "faults", LOCAL),
    (
        "Killed before any call of a machine's making, a harness leaves nothing; whichever call fails, nothing runs weaker.",
        "K78, K79",
        "steps",
        LOCAL,
    ),
    ("Two hundred machines at once leave no process, descriptor, mount or directory.", "K80", "lifetime", LOCAL),
    (
        "Archives never land outside the directory they are unpacked in, and carry no set-id bit or device.",
        "I66, I67",
        "archives",
        LOCAL,
    ),
    (
        "Endless output is held back; the harness's memory stays bounded and other commands go on.",
        "J71, J75",
        "floods",
        KEPT,
    ),
    (
        "One machine leaves the host, and other machines, some of what the kernel has only so much of: watches, waiting signals \
         (those of the guest included), terminals; and machines can be made whatever one has on its way through sockets.",
        "J76",
        "hoards",
        "not promised: without a user namespace they are counted with those of the host's user of the same number",
    ),
    (
        "A command that keeps every processor busy holds up no other machine, and ends at its deadline.",
        "J76.spin",
        "hoards",
        LOCAL,
    ),
    (
        "Files without contents are limited in /tmp and /dev/shm, too.",
        "J73",
        "hoards",
        "limited by the machine's memory",
    ),
    (
        "Listing, scanning, packing and removing end for trees of any depth, with files of any number, name and size.",
        "J73, J75",
        "trees",
        KEPT,
    ),
    (
        "A port of another machine, or one that was not declared, cannot be reached; a mapping dies with its machine.",
        "G57, G58",
        "floods",
        KEPT,
    ),
    (
        "A session reads, writes, lists, makes, removes, unpacks and copies nothing through a planted link, even while it \
         changes places with a directory.",
        "B11, B12, B13, B15, B16",
        "workspace",
        "kept; while it changes places: local",
    ),
    (
        "A patch adds, changes, moves and deletes nothing through a link at either end, not when it is taken back either.",
        "B14, B16",
        "workspace",
        KEPT,
    ),
    (
        "A FIFO, socket or terabyte file as a file to read, view, patch or copy is a typed error, soon.",
        "B17",
        "workspace",
        KEPT,
    ),
    (
        "Entries, mounts and saved workspaces whose place leads through a planted link are refused, also when applied again.",
        "B18",
        "workspace",
        LOCAL,
    ),
    (
        "A mount of a manifest shows the directory that was judged, and never what a link that took its place leads to.",
        "B13.mount-a-swapped-directory",
        "workspace",
        LOCAL,
    ),
    (
        "Archives of every format a session unpacks are refused whole if a member leads out, lies or is no plain file.",
        "I66, I67",
        "workspace",
        LOCAL,
    ),
    (
        "Bombs, lying sizes and endless headers end at the limits, without memory to speak of.",
        "I67",
        "workspace",
        LOCAL,
    ),
    ("Whiteouts and extended attributes of an archive mean nothing.", "I68", "workspace", LOCAL),
    (
        "Ids of saved sessions are never paths, and a changed saved session gives nothing of the host.",
        "I69",
        "workspace",
        LOCAL,
    ),
    ("What a manifest brings in is a copy: changing it never changes the original.", "I70", "workspace", LOCAL),
    (
        "A process of a session's table that floods, ignores signals or daemonises ends when it is ended, and is reached by \
         no other session.",
        "D25, D29, D30, J75",
        "workspace",
        LOCAL,
    ),
    (
        "The door of a machine that outlives its maker opens to nothing inside a machine, and to no other user.",
        "F48",
        "workspace",
        LOCAL,
    ),
    (
        "One user of a machine reads, changes, signals and joins nothing of another's that its permissions keep.",
        "E33.users",
        "users",
        KEPT,
    ),
    (
        "Memory and disk without end, in whatever form, end where the machine's limits are, and the machine answers on.",
        "J72, J73",
        "bombs",
        "kept, and tried by the machine suite",
    ),
    (
        "On a kernel with an older Landlock every promise of `full` holds, and the level `landlock` is refused by name.",
        "older_landlock",
        "older",
        "kept, with versions 1, 3, 4 and 5",
    ),
    (
        "There the conformance suite of machines holds, too.",
        "older_landlock",
        "conformance",
        "kept; with version 1, commands that are root cannot rename between directories, and the layers say so",
    ),
    (
        "At the level `landlock`, the host's files, networks, processes, sockets, queues, shared memory and terminals \
         stay out of reach, and nothing of it can be watched or slowed down.",
        "*.landlock",
        "landlock",
        LOCAL,
    ),
];

/// The same suite keeps it in a container.
const KEPT: &str = "kept";
/// What there is no such thing of in a container, or what the local suites show for the code that both share.
const LOCAL: &str = "local";
/// Shown by the engine's own tests.
const ENGINE: &str = "kept: `crates/clients/tests/docker/faults.rs`";

/// Start of the page. `SECURITY.md` says how to read the table.
const HEAD: &str = "# Promises and their tests\n\n\
                    Written by `REDTEAM_PROMISES=write cargo test -p sandbar-redteam promise`.\n\
                    [How to read it](../SECURITY.md#promises-and-their-tests).\n\n\
                    | Promise | Attack | Suite | In a container |\n|---|---|---|---|\n";

/// The page, as Markdown.
fn page() -> String {
    let mut text = String::from(HEAD);
    for attack in attacks() {
        let difference = DIFFERENT.iter().find(|difference| difference.attack == attack.name);
        let unpromised = UNPROMISED.iter().find(|(name, _)| *name == attack.name).map(|(_, reason)| *reason);
        let container = unpromised.or(difference.map(|difference| difference.reason)).unwrap_or(KEPT);
        writeln!(text, "| {} | `{}` | `probes` | {container} |", attack.promise, attack.name).expect("a string");
    }
    for (promise, names, suite, container) in SUITES {
        writeln!(text, "| {promise} | {names} | `{suite}` | {container} |").expect("a string");
    }
    text.push_str("\nAttacks that cannot be shown to work on every host without the sandbox:\n\n");
    for exception in EXCEPTIONS {
        writeln!(text, "- `{}` ({}): {}", exception.attack, exception.mode, exception.reason).expect("a string");
    }
    text
}

/// Fails if `redteam/promises.md` is not what the red team runs, or if `SECURITY.md` does not link it.
pub(crate) fn check() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = root.join("promises.md");
    if std::env::var("REDTEAM_PROMISES").is_ok_and(|value| value == "write") {
        fs::write(list, page()).expect("promises.md is written");
        return;
    }
    let listed = fs::read_to_string(list).expect("redteam/promises.md");
    assert_eq!(listed, page(), "run REDTEAM_PROMISES=write cargo test -p sandbar-redteam promise");
    let security = fs::read_to_string(root.join("../SECURITY.md")).expect("SECURITY.md");
    assert!(security.contains("](redteam/promises.md)"), "SECURITY.md does not link redteam/promises.md");
}
