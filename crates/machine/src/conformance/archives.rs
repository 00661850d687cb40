//! Promises about trees that travel as tar streams.

use std::{ffi::OsString, os::unix::ffi::OsStrExt};

use bytes::Bytes;
use futures::{StreamExt, stream};

use super::rig::{PLENTY, Rig, archive, file, soon, symlink};
use crate::{
    EntryKind, Hashes, SandboxClient, ScanOptions, collect, once,
    tar::{Event, Kind, Member, Reader},
};

/// What matters about everything in a tree.
async fn tree(rig: &Rig, path: &str) -> Vec<(Vec<u8>, EntryKind, u32, Option<OsString>, Option<String>)> {
    let options = ScanOptions { hashes: Hashes::Sha256, ..ScanOptions::default() };
    let index = soon("scan", rig.machine.scan(&rig.at(path), &options)).await.expect("it is scanned");
    let row = |found: crate::TreeEntry| {
        // The bits of a link mean nothing and differ between systems.
        let mode = if found.entry.kind == EntryKind::Symlink { 0 } else { found.entry.mode };
        let sum = found.sha256.map(|sum| sum.to_string());
        (found.path.as_bytes().to_vec(), found.entry.kind, mode, found.entry.link, sum)
    };
    index.entries.into_iter().map(row).collect()
}

async fn pack(rig: &Rig, path: &str, skip: &[&str]) -> Bytes {
    let skip: Vec<OsString> = skip.iter().map(Into::into).collect();
    let packed = async { collect(rig.machine.pack(&rig.at(path), &skip).await?, PLENTY).await };
    soon("pack", packed).await.expect("it is packed")
}

/// A tree with everything a tree can have.
async fn plant(rig: &Rig, at: &str) {
    let long = [b"a directory of a rather long name ".repeat(5).as_slice(), b"/", &b"x".repeat(120)].concat();
    let large = vec![7; 300_000];
    let members: Vec<(Member, &[u8])> = vec![
        (Member::new(Kind::Dir, b"empty", 0o700), b""),
        (Member::new(Kind::Dir, b"dir", 0o755), b""),
        (file(b"dir/tool", 0o755, b"#!/bin/sh\n"), b"#!/bin/sh\n"),
        (file(b"dir/private", 0o600, b""), b""),
        (file(b"new\nline and \xff", 0o644, b"odd"), b"odd"),
        (file(b"-rf", 0o644, b"dash"), b"dash"),
        (file(&long, 0o644, b"long"), b"long"),
        (file(b"large", 0o644, &large), &large),
        (symlink(b"dir/link", b"../large"), b""),
        (symlink(b"out", b"/etc/passwd"), b""),
        (symlink(b"dangling", b"\xfe\n"), b""),
    ];
    rig.unpack_at(at, &members).await.expect("it is unpacked");
}

/// However the sizes of members follow one another, and however the stream is cut into pieces.
pub async fn members_of_every_size_arrive_whole(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let sizes = [0, 1, 511, 512, 513, 8191, 8192, 8193, 3, 65_535, 131_073, 20, 300_000, 3 << 20, 9000, 0, 100];
    let long = |at: usize| format!("{}/{at}", "a long name ".repeat(12));
    let content = |at: usize, size: usize| -> Vec<u8> { (0..size).map(|byte| (byte % 251 + at) as u8).collect() };
    let contents: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(at, size)| content(at, *size)).collect();
    let name = |at: usize| if at % 4 == 3 { long(at) } else { at.to_string() };
    let members = contents.iter().enumerate().map(|(at, bytes)| (file(name(at).as_bytes(), 0o644, bytes), &**bytes));
    let whole = archive(&members.collect::<Vec<_>>());
    for piece in [whole.len(), 100_003, 4099] {
        let pieces: Vec<_> = (0..whole.len()).step_by(piece).map(|from| whole.slice(from..)).collect();
        let pieces = pieces.into_iter().map(move |rest| Ok(rest.slice(..rest.len().min(piece))));
        let stream = Box::pin(stream::iter(pieces.collect::<Vec<_>>()));
        let place = format!("cut at {piece}");
        soon("unpack", rig.machine.unpack(&rig.at(&place), stream)).await.expect("it is unpacked");
        for (at, bytes) in contents.iter().enumerate() {
            let found = rig.get(format!("{place}/{}", name(at))).await;
            assert!(found == *bytes, "{place}: member {at} of {} bytes came as {} others", bytes.len(), found.len());
        }
    }
}

/// A stream that stalls in the middle of a large member, or whose members are refused, delays no other operation.
pub async fn an_unpacking_that_waits_holds_nobody_up(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let large = vec![5; 4 << 20];
    let whole = archive(&[(file(b"large", 0o644, &large), &large)]);
    let half = whole.slice(..whole.len() / 2);
    let waiting = Box::pin(stream::iter([Ok(half)]).chain(stream::pending()));
    let place = rig.at("waits");
    let mut unpacking = Box::pin(rig.machine.unpack(&place, waiting));
    tokio::select! {
        ended = &mut unpacking => panic!("half an archive was enough: {ended:?}"),
        () = async {
            for at in 0..20 {
                rig.put(format!("note {at}"), "x").await;
                assert_eq!(rig.get(format!("note {at}")).await, "x");
            }
        } => {}
    }
    drop(unpacking);
    let refused = [(file(b"../out", 0o644, b"x"), b"x".as_slice()), (file(b"large", 0o644, &large), &large)];
    rig.unpack_at("refused", &refused).await.expect_err("it leads out");
    rig.unpack_at("fine", &[(file(b"large", 0o644, &large), &large)]).await.expect("it is unpacked");
    assert!(rig.get("fine/large").await == large);
}

/// Contents, permissions, links, empty directories and odd names: all come back.
pub async fn a_tree_survives_packing_and_unpacking(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    plant(&rig, "one").await;
    let before = tree(&rig, "one").await;
    assert_eq!(before.len(), 12, "{before:?}");
    let packed = pack(&rig, "one", &[]).await;
    soon("unpack", rig.machine.unpack(&rig.at("made/two"), once(packed))).await.expect("it is unpacked");
    assert_eq!(tree(&rig, "made/two").await, before);
    rig.make_dir("nothing").await;
    let packed = pack(&rig, "nothing", &[]).await;
    soon("unpack", rig.machine.unpack(&rig.at("nothing either"), once(packed))).await.expect("it is unpacked");
    assert_eq!(tree(&rig, "nothing either").await, []);
}

/// Skipped paths are not in the stream, nor is what is below them, nor the root itself.
pub async fn packing_leaves_out_what_it_is_told_to(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    for name in ["a/keep", "a/skip/x", "b*/x", "bb/x", "c"] {
        rig.put(format!("tree/{name}"), "x").await;
    }
    let packed = pack(&rig, "tree", &["a/skip", "b*", "not there"]).await;
    let events = Reader::new().push(&packed).expect("it is an archive");
    let mut names: Vec<String> = events
        .into_iter()
        .filter_map(|event| if let Event::Member(member) = event { Some(member.path) } else { None })
        .map(|path| String::from_utf8(path).unwrap().trim_start_matches("./").trim_end_matches('/').to_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["a", "a/keep", "bb", "bb/x", "c"]);
}

/// There is no archive of nothing.
pub async fn packing_what_is_missing_is_not_found(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let packed = soon("pack", rig.machine.pack(&rig.at("missing"), &[])).await;
    assert_eq!(packed.map(|_stream| ()).expect_err("nothing to pack").code(), "not_found");
}

/// Files of the same name are replaced, links of the same name are replaced and not followed, the rest stays.
pub async fn unpacking_replaces_what_was_there(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("file", "old").await;
    rig.put("target", "kept").await;
    rig.put("other", "kept").await;
    rig.link("link", "target").await;
    let members = [(file(b"file", 0o600, b"new"), b"new".as_slice()), (file(b"link", 0o644, b"new"), b"new")];
    rig.unpack(&members).await.expect("it is unpacked");
    assert_eq!((rig.get("file").await, rig.stat("file").await.unwrap().mode), ("new".into(), 0o600));
    assert_eq!(rig.stat("link").await.expect("it is there").kind, EntryKind::File);
    assert_eq!((rig.get("target").await, rig.get("other").await), ("kept".into(), "kept".into()));
}

/// No trick with names or links makes an archive write outside the directory it is unpacked in.
pub async fn an_archive_cannot_write_elsewhere(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("victim/file", "kept").await;
    rig.make_dir("box").await;
    let absolute = rig.path("victim/file");
    let victim = rig.path("victim");
    let hard = |to: &[u8]| Member { link: to.to_vec(), ..Member::new(Kind::HardLink, b"hard", 0o644) };
    let evil = |path: &[u8]| file(path, 0o644, b"evil");
    let tricks: Vec<Vec<(Member, &[u8])>> = vec![
        vec![(evil(b"../victim/file"), b"evil")],
        vec![(evil(b"x/../../victim/file"), b"evil")],
        vec![(evil(absolute.as_bytes()), b"evil")],
        vec![(symlink(b"l", b"../victim"), b""), (evil(b"l/file"), b"evil")],
        vec![(symlink(b"m", victim.as_bytes()), b""), (evil(b"m/file"), b"evil")],
        vec![
            (symlink(b"d", b"../victim"), b""),
            (Member::new(Kind::Dir, b"d", 0o700), b""),
            (evil(b"d/file"), b"evil"),
        ],
        vec![(hard(b"../victim/file"), b""), (evil(b"hard"), b"evil")],
        vec![(hard(absolute.as_bytes()), b""), (evil(b"hard"), b"evil")],
    ];
    for trick in tricks {
        let unpacked = rig.unpack_at("box", &trick).await;
        assert!(unpacked.is_err(), "{:?} was accepted", trick.iter().map(|(member, _)| member).collect::<Vec<_>>());
        assert_eq!(rig.get("victim/file").await, "kept");
    }
}

/// Devices and FIFOs have no place in an archive of files.
pub async fn an_archive_cannot_bring_devices(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    for flag in [b'3', b'4', b'6'] {
        let unpacked = rig.unpack(&[(Member::new(Kind::Other(flag), b"special", 0o666), b"")]).await;
        unpacked.expect_err("it is refused");
        assert_eq!(rig.stat("special").await, None);
    }
}

/// Set-id bits of a member are dropped, or the member is refused.
pub async fn an_archive_cannot_bring_set_id_bits(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let _refused =
        rig.unpack(&[(file(b"tool", 0o6755, b"x"), b"x"), (Member::new(Kind::Dir, b"dir", 0o2777), b"")]).await;
    for name in ["tool", "dir"] {
        assert_eq!(rig.stat(name).await.map_or(0, |entry| entry.mode & 0o6000), 0);
    }
}

/// An archive that breaks off is an error, not a smaller archive.
pub async fn a_torn_archive_is_refused(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let whole = archive(&[(file(b"file", 0o644, &[1; 2000]), &[1; 2000])]);
    for end in [300, 1000] {
        let torn = soon("unpack", rig.machine.unpack(&rig.at(""), once(whole.slice(..end)))).await;
        torn.expect_err("the rest is missing");
    }
    let nonsense = soon("unpack", rig.machine.unpack(&rig.at(""), once(vec![b'z'; 2048]))).await;
    nonsense.expect_err("it is no archive");
}
