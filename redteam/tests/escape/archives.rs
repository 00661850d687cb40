//! Group I: archives that want to land elsewhere.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use sandbar_machine::{Command, Machine, MachineError, MachinePath, Target, once};
use tokio::time::timeout;

use crate::escape::{
    rig::{Rig, SOON, run as run_inside},
    tally::Tally,
};

/// One member: its kind, name, link target, mode and bytes.
struct Member<'a>(u8, &'a str, &'a str, u32, &'a [u8]);

const FILE: u8 = b'0';
const HARD: u8 = b'1';
const LINK: u8 = b'2';
const CHAR: u8 = b'3';
const BLOCK: u8 = b'4';
const FIFO: u8 = b'6';

pub(crate) async fn run(rig: &Rig) {
    let mut tally = Tally::new(rig.mode);
    let (workspace, canary) = (rig.dir("workspace"), rig.dir("canary"));
    fs::write(canary.join("f"), "kept").expect("a canary");
    let machine = rig.create(rig.spec(&workspace)).await;
    let out = canary.display().to_string();
    let absolute = format!("{out}/absolute");
    let hard = format!("{out}/f");
    let cases: Vec<(&str, Vec<Member<'_>>)> = vec![
        ("I66.climb", vec![Member(FILE, "../../escaped", "", 0o644, b"x")]),
        ("I66.climb-in-the-middle", vec![Member(FILE, "a/../../escaped", "", 0o644, b"x")]),
        ("I66.absolute", vec![Member(FILE, &absolute, "", 0o644, b"x")]),
        ("I66.link-then-file", vec![Member(LINK, "l", &out, 0o777, b""), Member(FILE, "l/through", "", 0o644, b"x")]),
        (
            "I66.relative-link-then-file",
            vec![Member(LINK, "l", "..", 0o777, b""), Member(FILE, "l/escaped", "", 0o644, b"x")],
        ),
        ("I66.hard-link-outside", vec![Member(HARD, "h", &hard, 0o644, b"")]),
        ("I66.hard-link-climbs", vec![Member(HARD, "h", "../../outside/f", 0o644, b"")]),
        ("I66.hard-link-through-link", vec![Member(LINK, "l", &out, 0o777, b""), Member(HARD, "h", "l/f", 0o644, b"")]),
        ("I66.character-device", vec![Member(CHAR, "null", "", 0o666, b"")]),
        ("I66.block-device", vec![Member(BLOCK, "disk", "", 0o666, b"")]),
        ("I66.fifo", vec![Member(FIFO, "fifo", "", 0o666, b"")]),
        ("I66.file-as-directory", vec![Member(FILE, "x", "", 0o644, b"x"), Member(FILE, "x/y", "", 0o644, b"x")]),
    ];
    for (name, members) in cases {
        let result = unpack(machine.as_ref(), &archive(&members)).await;
        let outside = intruders(&workspace, &canary);
        let held = result.is_err() && outside.is_empty();
        tally.control(name, naive(rig, &members), "a naive unpacker writes outside");
        tally.expect(name, held, format!("{:?} {outside:?}", result.map_err(|error| error.to_string())));
    }
    modes(machine.as_ref(), &workspace, &mut tally).await;
    bombs(machine.as_ref(), &mut tally).await;
    machine.stop().await.expect("stop");
    tally.finish("archives");
}

async fn unpack(machine: &dyn Machine, tar: &[u8]) -> Result<(), MachineError> {
    let root = Target::from(MachinePath::new("/workspace/in").expect("a path"));
    let hang = || MachineError::invalid("the archive", "HANGS: there is no answer");
    timeout(SOON, machine.unpack(&root, once(tar.to_vec()))).await.unwrap_or_else(|_| Err(hang()))
}

fn intruders(workspace: &Path, canary: &Path) -> Vec<String> {
    let names = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names(workspace)
        .chain(names(canary))
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| name != "in" && name != "f")
        .collect()
}

/// Set-id bits are dropped; a name that comes twice is the last one.
async fn modes(machine: &dyn Machine, workspace: &Path, tally: &mut Tally) {
    let members = [
        Member(FILE, "suid", "", 0o6755, b"x"),
        Member(FILE, "twice", "", 0o644, b"1"),
        Member(FILE, "twice", "", 0o644, b"2"),
    ];
    let result = unpack(machine, &archive(&members)).await;
    let mode = fs::metadata(workspace.join("in/suid")).map_or(0o7777, |found| found.mode() & 0o7777);
    tally.expect("I66.set-id-member", mode & 0o6000 == 0, format!("{result:?}, mode {mode:o}"));
    let twice = fs::read(workspace.join("in/twice")).unwrap_or_default();
    tally.expect("I66.duplicate-names", result.is_err() || twice == b"2", format!("{result:?}"));
}

/// Bombs that may be unpacked: what matters is that there is an answer.
const HARMLESS: [&str; 2] = ["I67.deep-nesting", "I67.huge-pax-header"];

/// Lies about size, depth and headers: an answer, and a machine that lives on.
async fn bombs(machine: &dyn Machine, tally: &mut Tally) {
    let deep = "d/".repeat(2000) + "f";
    let long = vec![b'n'; 3 << 20];
    let mut short = archive(&[Member(FILE, "short", "", 0o644, b"")]);
    short.truncate(1024);
    set_size(&mut short, "77777777777");
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("I67.file-longer-than-the-archive", short),
        (
            "I67.deep-nesting",
            archive(&[Member(b'L', "././@LongLink", "", 0o644, deep.as_bytes()), Member(FILE, "x", "", 0o644, b"x")]),
        ),
        (
            "I67.huge-name",
            archive(&[Member(b'L', "././@LongLink", "", 0o644, &long), Member(FILE, "x", "", 0o644, b"x")]),
        ),
        ("I67.huge-pax-header", archive(&[Member(b'x', "pax", "", 0o644, &long), Member(FILE, "x", "", 0o644, b"x")])),
        ("I67.garbage", vec![0xA5; 1 << 20]),
    ];
    for (name, tar) in cases {
        let result = unpack(machine, &tar).await;
        let alive = run_inside(machine, Command::new(["true"])).await;
        let hangs = result.as_ref().is_err_and(|error| error.to_string().contains("HANGS"));
        let answered = (result.is_err() || HARMLESS.contains(&name)) && !hangs;
        let held = alive.exit.is_some_and(|exit| exit.success()) && answered;
        tally.expect(
            name,
            held,
            format!("{:?}", result.map_err(|error| error.to_string().chars().take(120).collect::<String>())),
        );
    }
}

fn set_size(tar: &mut [u8], octal: &str) {
    tar[124..135].copy_from_slice(octal.as_bytes());
    checksum(tar);
}

fn checksum(header: &mut [u8]) {
    header[148..156].fill(b' ');
    let sum: u32 = header[..512].iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

fn archive(members: &[Member<'_>]) -> Vec<u8> {
    let mut tar = Vec::new();
    for Member(kind, name, link, mode, bytes) in members {
        let mut header = [0u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..108].copy_from_slice(format!("{mode:07o}\0").as_bytes());
        header[108..124].copy_from_slice(b"0000000\x000000000\x00");
        header[124..136].copy_from_slice(format!("{:011o}\0", bytes.len()).as_bytes());
        header[136..148].copy_from_slice(b"00000000000\0");
        header[156] = *kind;
        header[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header[257..265].copy_from_slice(b"ustar\x0000");
        header[329..345].copy_from_slice(b"0000001\x000000003\x00");
        checksum(&mut header);
        tar.extend_from_slice(&header);
        tar.extend_from_slice(bytes);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.extend_from_slice(&[0; 1024]);
    tar
}

/// What an unpacker does that joins paths and hopes; whether something landed outside.
fn naive(rig: &Rig, members: &[Member<'_>]) -> bool {
    let place = tempfile::tempdir_in(rig.scratch.path()).expect("a directory");
    let root = place.path().join("a/b/in");
    fs::create_dir_all(&root).expect("a directory");
    let outside = place.path().join("a/outside");
    fs::create_dir_all(&outside).expect("a directory");
    fs::write(outside.join("f"), "kept").expect("a file");
    for Member(kind, name, link, _, bytes) in members {
        let base = name.rsplit('/').next().unwrap_or_default();
        let path = if name.starts_with('/') { outside.join(base) } else { root.join(name) };
        let link = if link.starts_with('/') && link.ends_with("/f") {
            outside.join("f")
        } else if link.starts_with('/') {
            outside.clone()
        } else {
            link.into()
        };
        let _may_fail = match *kind {
            FILE => fs::create_dir_all(path.parent().expect("a parent")).and_then(|()| fs::write(&path, bytes)),
            LINK => std::os::unix::fs::symlink(&link, &path),
            HARD => fs::hard_link(root.join(&link), &path).and_then(|()| fs::write(&path, "changed")),
            _ => Ok(()),
        };
    }
    let changed = fs::read_to_string(outside.join("f")).is_ok_and(|text| text != "kept");
    let count = |dir: &Path| fs::read_dir(dir).expect("a directory").count();
    changed || count(&outside) > 1 || count(&place.path().join("a/b")) > 1 || count(&place.path().join("a")) > 2
}
