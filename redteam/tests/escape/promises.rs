//! The list of promises for SECURITY.md, and the check that it is there.

use std::{fmt::Write, fs, path::Path};

use sandbar_redteam::{EXCEPTIONS, attacks};

/// What the suites promise beyond the probe's attacks: promise, names of the checks, suite.
const SUITES: &[(&str, &str, &str)] = &[
    (
        "Links a command plants lead the harness's reads and writes nowhere, even while they change 10,000 times.",
        "B11, B12, B13, B15",
        "links",
    ),
    ("Paths through /proc's links are refused to the harness.", "B16", "links"),
    ("Reading a FIFO, socket, device or terabyte file fails or streams, and never hangs.", "B17", "links"),
    ("A mount whose place leads through a planted link is refused, and nothing is made on the host.", "B18", "links"),
    (
        "The deadline kills the whole tree: daemons, processes that ignore signals, chains of processes.",
        "D29, D30",
        "lifetime",
    ),
    (
        "A command that stops every process it can stops neither the guest, nor a deadline, nor file work.",
        "D26",
        "lifetime",
    ),
    (
        "Kill -9 of the harness, at any moment, leaves no process, mount or directory.",
        "D29.harness-killed, K78",
        "faults",
    ),
    (
        "Kill -9 of the supervisor or of the guest ends the machine; what is left is swept at the next start.",
        "K78",
        "lifetime",
    ),
    ("If a call that puts up a wall fails, the error is typed and no command runs.", "K79", "faults"),
    ("Two hundred machines at once leave no process, descriptor, mount or directory.", "K80", "lifetime"),
    (
        "Archives never land outside the directory they are unpacked in, and carry no set-id bit or device.",
        "I66, I67",
        "archives",
    ),
    ("Endless output is held back; the harness's memory stays bounded and other commands go on.", "J71, J75", "floods"),
    (
        "A port of another machine, or one that was not declared, cannot be reached; a mapping dies with its machine.",
        "G57, G58",
        "floods",
    ),
    (
        "A session reads, writes, lists, makes, removes, unpacks and copies nothing through a planted link, even while it \
         changes places with a directory.",
        "B11, B12, B13, B15, B16",
        "workspace",
    ),
    (
        "A patch adds, changes, moves and deletes nothing through a link at either end, not when it is taken back either.",
        "B14, B16",
        "workspace",
    ),
    (
        "A FIFO, socket or terabyte file as a file to read, view, patch or copy is a typed error, soon.",
        "B17",
        "workspace",
    ),
    (
        "Entries, mounts and saved workspaces whose place leads through a planted link are refused, also when applied again.",
        "B18",
        "workspace",
    ),
    (
        "A mount of a manifest shows the directory that was judged, and never what a link that took its place leads to.",
        "B13.mount-a-swapped-directory",
        "workspace",
    ),
    (
        "Archives of every format a session unpacks are refused whole if a member leads out, lies or is no plain file.",
        "I66, I67",
        "workspace",
    ),
    ("Bombs, lying sizes and endless headers end at the limits, without memory to speak of.", "I67", "workspace"),
    ("Whiteouts and extended attributes of an archive mean nothing.", "I68", "workspace"),
    (
        "Ids of saved sessions are never paths, and a changed saved session gives nothing of the host.",
        "I69",
        "workspace",
    ),
    ("What a manifest brings in is a copy: changing it never changes the original.", "I70", "workspace"),
    (
        "A process of a session's table that floods, ignores signals or daemonises ends when it is ended, and is reached by \
         no other session.",
        "D25, D29, D30, J75",
        "workspace",
    ),
    (
        "The door of a machine that outlives its maker opens to nothing inside a machine, and to no other user.",
        "F48",
        "workspace",
    ),
    (
        "One user of a machine reads, changes, signals and joins nothing of another's that its permissions keep.",
        "E33.users",
        "users",
    ),
    (
        "Memory and disk without end, in whatever form, end where the machine's limits are, and the machine answers on.",
        "J72, J73",
        "hoards",
    ),
    (
        "At the level `landlock`, the host's files, networks, processes, sockets and terminals stay out of reach.",
        "*.landlock",
        "landlock",
    ),
];

const BEGIN: &str = "<!-- promises:begin -->";
const END: &str = "<!-- promises:end -->";

/// The section, as Markdown.
fn section() -> String {
    let mut text = String::from("| Promise | Attack | Test (as root and as an ordinary user) |\n|---|---|---|\n");
    for attack in attacks() {
        writeln!(text, "| {} | `{}` | `redteam/tests/escape.rs`: `probes` |", attack.promise, attack.name)
            .expect("a string");
    }
    for (promise, names, suite) in SUITES {
        writeln!(text, "| {promise} | {names} | `redteam/tests/escape.rs`: `{suite}` |").expect("a string");
    }
    text.push_str("\nAttacks that cannot be shown to work on every host without the sandbox:\n\n");
    for exception in EXCEPTIONS {
        writeln!(text, "- `{}` ({}): {}", exception.attack, exception.mode, exception.reason).expect("a string");
    }
    text
}

/// Fails when the list in SECURITY.md, or the copy it is made from, is not what the red team runs.
pub(crate) fn check() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if std::env::var("REDTEAM_PROMISES").is_ok_and(|value| value == "write") {
        fs::write(root.join("promises.md"), section()).expect("promises.md is written");
    }
    let copy = fs::read_to_string(root.join("promises.md")).expect("redteam/promises.md");
    assert_eq!(copy, section(), "run REDTEAM_PROMISES=write cargo test -p sandbar-redteam promise");
    let security = fs::read_to_string(root.join("../SECURITY.md")).expect("SECURITY.md");
    let listed = security.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map(|(listed, _)| listed);
    let listed = listed.unwrap_or_else(|| panic!("SECURITY.md has no section between {BEGIN} and {END}"));
    for attack in attacks() {
        assert!(listed.contains(&format!("`{}`", attack.name)), "SECURITY.md does not name {}", attack.name);
    }
    for (promise, ..) in SUITES {
        assert!(listed.contains(promise), "SECURITY.md does not promise: {promise}");
    }
}
