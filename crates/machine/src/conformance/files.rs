//! Promises about files and directories, none of which needs a command.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use bytes::Bytes;
use futures::stream;

use super::rig::{Rig, soon};
use crate::{
    ByteStream, EntryKind, Expected, Hashes, MachineError, SandboxClient, ScanOptions, Stamp, TreeIndex, once,
};

/// Names that break careless programs: spaces, newlines, dashes, quotes, patterns, and bytes that are not text.
pub(super) const NAMES: [&[u8]; 12] = [
    b"two words",
    b" ",
    b"new\nline",
    b"ends in newline\n",
    b"-rf",
    b"--help",
    b"'\"`$(touch injected)`",
    b"*?[a]\\",
    b"\xff\xfe not text",
    b"...",
    b"~",
    b"\\n",
];

/// Bytes come back as they went in, whatever their number.
pub async fn what_is_written_is_read_back(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let all: Bytes = (0..=255u8).cycle().take(5 << 20).collect();
    for size in [0, 1, 256, 1024, 65_537, 5 << 20] {
        rig.put("file", all.slice(..size)).await;
        let read = rig.get("file").await;
        assert!(read == all.slice(..size), "{} of {size} bytes came back, or others", read.len());
        assert_eq!(rig.stat("file").await.expect("it is there").size, size as u64);
    }
    let pieces: ByteStream = Box::pin(stream::iter(["in ", "", "pieces"].map(|piece| Ok(Bytes::from(piece)))));
    soon("write", rig.machine.write(&rig.at("file"), pieces)).await.expect("it is written");
    assert_eq!(rig.get("file").await, "in pieces");
}

/// Nothing there: the error says so, and names the path.
pub async fn a_missing_file_is_not_found(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    for path in ["missing", "missing/below"] {
        match rig.read(&rig.at(path)).await {
            Err(MachineError::NotFound(named)) => assert_eq!(named, rig.path(path)),
            other => panic!("{other:?}"),
        }
    }
    let listed = soon("list", rig.machine.list(&rig.at("missing"))).await;
    assert_eq!(listed.expect_err("nothing to list").code(), "not_found");
}

/// A directory has no bytes of its own, and is not replaced by a file.
pub async fn a_directory_cannot_be_read(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("dir/file", "kept").await;
    let refused = rig.read(&rig.at("dir")).await.expect_err("a directory has no bytes");
    assert!(matches!(refused.code(), "file" | "denied"), "{refused}");
    rig.put_fails(&rig.at("dir")).await;
    assert_eq!(rig.get("dir/file").await, "kept");
}

/// A path through a file is an error of the file system, or simply not there.
pub async fn nothing_can_be_below_a_file(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("file", "kept").await;
    let refused = rig.read(&rig.at("file/below")).await.expect_err("nothing is below a file");
    assert!(matches!(refused.code(), "file" | "not_found"), "{refused}");
    rig.put_fails(&rig.at("file/below")).await;
    soon("make_dir", rig.machine.make_dir(&rig.at("file/below"))).await.expect_err("a file is in the way");
    soon("list", rig.machine.list(&rig.at("file"))).await.expect_err("a file has no entries");
    assert_eq!(rig.get("file").await, "kept");
}

/// Writing a file makes the directories above it.
pub async fn missing_parents_are_made(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("a/b/c/file", "deep").await;
    assert_eq!(rig.get("a/b/c/file").await, "deep");
    let made = rig.stat("a/b").await.expect("it was made");
    assert_eq!((made.kind, made.mode), (EntryKind::Dir, 0o755));
}

/// A new file has 0644; one that is replaced keeps what it had.
pub async fn a_replaced_file_keeps_its_mode(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("plain", "1").await;
    assert_eq!(rig.stat("plain").await.expect("it is there").mode, 0o644);
    for mode in [0o755, 0o640, 0o600] {
        let target = rig.at("tool").mode(mode);
        soon("write", rig.machine.write(&target, once("1"))).await.expect("it is written");
        rig.put("tool", "2").await;
        assert_eq!(rig.stat("tool").await.expect("it is there").mode, mode);
        assert_eq!(rig.get("tool").await, "2");
    }
}

/// Files and directories are made with the permissions that were asked for, whatever the umask.
pub async fn a_mode_is_given_on_request(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    for mode in [0o600, 0o666, 0o777, 0o400] {
        let name = format!("{mode:o}");
        soon("write", rig.machine.write(&rig.at(&name).mode(mode), once("x"))).await.expect("it is written");
        assert_eq!(rig.stat(&name).await.expect("it is there").mode, mode);
    }
    soon("make_dir", rig.machine.make_dir(&rig.at("up/private").mode(0o700))).await.expect("it is made");
    assert_eq!(rig.stat("up/private").await.expect("it is there").mode, 0o700);
    assert_eq!(rig.stat("up").await.expect("it is there").mode, 0o755);
}

/// Asking for set-user-id, set-group-id or sticky is refused, or the bits are dropped.
pub async fn set_id_bits_are_never_granted(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    for mode in [0o4755, 0o2755, 0o6777] {
        let target = rig.at("tool").mode(mode);
        let written = soon("write", rig.machine.write(&target, once("x"))).await;
        let stat = rig.stat("tool").await;
        assert!(written.is_err() || stat.is_some(), "{written:?}");
        assert_eq!(stat.map_or(0, |entry| entry.mode & 0o6000), 0);
        let _refused = soon("make_dir", rig.machine.make_dir(&rig.at("dir").mode(mode))).await;
        assert_eq!(rig.stat("dir").await.map_or(0, |entry| entry.mode & 0o6000), 0);
    }
}

/// A source that breaks off leaves the old file, or none, and nothing half-made beside it.
pub async fn a_failing_source_leaves_everything_as_it_was(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("dir/old", "old").await;
    for name in ["dir/old", "dir/new"] {
        let failure = MachineError::invalid("the source", "broke off");
        let broken: ByteStream = Box::pin(stream::iter([Ok(Bytes::from(vec![b'n'; 100_000])), Err(failure)]));
        let written = soon("write", rig.machine.write(&rig.at(name), broken)).await;
        written.expect_err("the source's failure is the write's");
    }
    assert_eq!(rig.get("dir/old").await, "old");
    let names: Vec<_> = list(&rig, "dir").await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [b"old"]);
}

async fn list(rig: &Rig, path: &str) -> Vec<(Vec<u8>, EntryKind)> {
    let listed = soon("list", rig.machine.list(&rig.at(path))).await.expect("it is listed");
    listed.into_iter().map(|entry| (entry.name.as_bytes().to_vec(), entry.kind)).collect()
}

/// Every operation takes every name a file system can hold.
pub async fn any_name_is_a_name(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.make_dir("dir").await;
    for name in NAMES {
        let path = OsStr::from_bytes(&[b"dir/", name].concat()).to_owned();
        rig.put(&path, name).await;
        assert_eq!(rig.get(&path).await, name);
        assert_eq!(rig.stat(&path).await.expect("it is there").name.as_bytes(), name);
        let moved = OsStr::from_bytes(&[b"dir/", name, b"2"].concat()).to_owned();
        soon("rename", rig.machine.rename(&rig.at(&path), &rig.at(&moved))).await.expect("it is renamed");
        soon("rename", rig.machine.rename(&rig.at(&moved), &rig.at(&path))).await.expect("and back");
    }
    let mut sorted = NAMES.map(<[u8]>::to_vec);
    sorted.sort();
    let listed: Vec<_> = list(&rig, "dir").await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(listed, sorted);
    let options = ScanOptions { hashes: Hashes::Sha256, ..ScanOptions::default() };
    let scanned = soon("scan", rig.machine.scan(&rig.at("dir"), &options)).await.expect("it is scanned");
    let scanned: Vec<_> = scanned.entries.iter().map(|entry| entry.path.as_bytes().to_vec()).collect();
    assert_eq!(scanned, sorted);
    for name in NAMES {
        let target = rig.at(OsStr::from_bytes(&[b"dir/", name].concat()));
        soon("remove", rig.machine.remove(&target)).await.expect("it is removed");
        let deep = rig.at(OsStr::from_bytes(&[b"dir/", name, b"/", name].concat()));
        soon("make_dir", rig.machine.make_dir(&deep)).await.expect("it is made");
        soon("list", rig.machine.list(&deep)).await.expect("it is listed");
        soon("remove", rig.machine.remove(&target)).await.expect("it is removed with what is below");
    }
    assert_eq!(list(&rig, "dir").await, []);
}

/// A listing has each entry once, by name, with its kind and size; hidden ones too, and nothing from below.
pub async fn a_listing_is_sorted_and_complete(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    for (name, bytes) in [("d/b", "12345"), ("d/B", ""), ("d/.hidden", "x"), ("d/a/below", "y"), ("d/ab", "z")] {
        rig.put(name, bytes).await;
    }
    rig.link("d/link", "b").await;
    let listed = soon("list", rig.machine.list(&rig.at("d"))).await.expect("it is listed");
    let seen: Vec<_> = listed.iter().map(|entry| (entry.name.to_str().unwrap(), entry.kind)).collect();
    let (file, dir, link) = (EntryKind::File, EntryKind::Dir, EntryKind::Symlink);
    assert_eq!(seen, [(".hidden", file), ("B", file), ("a", dir), ("ab", file), ("b", file), ("link", link)]);
    assert_eq!((listed[4].size, listed[1].size), (5, 0));
    assert_eq!(listed[5].link.as_deref(), Some(OsStr::new("b")));
    assert_eq!(soon("stat", rig.machine.stat(&rig.at("d/b"))).await.unwrap().as_ref(), Some(&listed[4]));
    rig.make_dir("empty").await;
    assert_eq!(list(&rig, "empty").await, []);
}

/// Nothing there is an answer, not an error.
pub async fn what_is_not_there_has_no_stat(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    assert_eq!(rig.stat("missing").await, None);
    assert_eq!(rig.stat("missing/below").await, None);
    assert_eq!(rig.stat("").await.expect("the workspace is there").kind, EntryKind::Dir);
    let root = soon("stat", rig.machine.stat(&crate::MachinePath::root().into())).await.expect("it can be looked at");
    assert_eq!(root.map(|entry| (entry.name, entry.kind)), Some(("/".into(), EntryKind::Dir)));
}

/// A directory that is there already is as good as one that was made, and keeps what it has.
pub async fn making_a_directory_twice_is_fine(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("a/b/file", "kept").await;
    for path in ["a/b/c", "a/b/c", "a/b", "a", ""] {
        rig.make_dir(path).await;
    }
    assert_eq!(rig.get("a/b/file").await, "kept");
}

/// A file in the way is not replaced by a directory.
pub async fn a_directory_is_not_made_over_a_file(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("file", "kept").await;
    soon("make_dir", rig.machine.make_dir(&rig.at("file"))).await.expect_err("a file is in the way");
    assert_eq!(rig.get("file").await, "kept");
}

/// A file, a tree, and what was never there: afterwards there is nothing.
pub async fn removing_is_complete_and_idempotent(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("tree/a/b/file", "x").await;
    rig.put("tree/a/other", "x").await;
    rig.put("sibling", "kept").await;
    for path in ["tree/a/other", "tree", "tree", "never/there"] {
        soon("remove", rig.machine.remove(&rig.at(path))).await.expect("it is removed");
        assert_eq!(rig.stat(path).await, None);
    }
    assert_eq!(rig.get("sibling").await, "kept");
}

/// A write that expects something finds exactly that, or does nothing at all.
pub async fn a_write_that_expects_something_else_does_nothing(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("file", "first").await;
    let stamp = rig.stat("file").await.expect("it is there").stamp();
    let nothing = Expected::Nothing;
    let as_it_was = Expected::File(stamp);
    soon("write", rig.machine.write(&rig.at("file").expecting(as_it_was), once("second"))).await.expect("as it was");
    soon("write", rig.machine.write(&rig.at("new/file").expecting(nothing), once("made"))).await.expect("nothing was");
    let larger = Expected::File(Stamp { size: stamp.size + 10, ..stamp });
    rig.make_dir("dir").await;
    for (place, expected) in
        [("file", nothing), ("file", larger), ("gone", as_it_was), ("no/dir/gone", as_it_was), ("dir", as_it_was)]
    {
        let error = rig.put_fails(&rig.at(place).expecting(expected)).await;
        assert!(matches!(error, MachineError::Changed(_)), "{place}: {error:?}");
    }
    assert_eq!((rig.get("file").await, rig.get("new/file").await), ("second".into(), "made".into()));
    assert_eq!((rig.stat("gone").await, rig.stat("no").await), (None, None));
    let left: Vec<_> = soon("list", rig.machine.list(&rig.at(""))).await.expect("a listing");
    assert_eq!(left.len(), 3, "nothing is left behind: {left:?}");
}

/// A renamed file takes the place of one with that name; a directory brings what is in it.
pub async fn a_rename_replaces_a_file(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("from", "new").await;
    rig.put("to", "old").await;
    soon("rename", rig.machine.rename(&rig.at("from"), &rig.at("to"))).await.expect("it is renamed");
    assert_eq!((rig.stat("from").await, rig.get("to").await), (None, "new".into()));
    rig.put("dir/file", "inside").await;
    rig.make_dir("elsewhere").await;
    soon("rename", rig.machine.rename(&rig.at("dir"), &rig.at("elsewhere/moved"))).await.expect("it is renamed");
    assert_eq!((rig.stat("dir").await, rig.get("elsewhere/moved/file").await), (None, "inside".into()));
    soon("rename", rig.machine.rename(&rig.at("to"), &rig.at("to"))).await.expect("its own name is fine");
    assert_eq!(rig.get("to").await, "new");
}

/// A directory with something in it is neither replaced nor moved into.
pub async fn a_rename_never_loses_a_directory(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("file", "1").await;
    rig.put("full/kept", "2").await;
    rig.put("other/kept", "3").await;
    for from in ["file", "other"] {
        let renamed = soon("rename", rig.machine.rename(&rig.at(from), &rig.at("full"))).await;
        renamed.expect_err("a full directory is in the way");
    }
    assert_eq!(list(&rig, "full").await, [(b"kept".to_vec(), EntryKind::File)]);
    assert_eq!((rig.get("file").await, rig.get("other/kept").await), ("1".into(), "3".into()));
}

/// The error of a rename names the path that is missing.
pub async fn renaming_what_is_missing_is_not_found(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let renamed = soon("rename", rig.machine.rename(&rig.at("missing"), &rig.at("to"))).await;
    let MachineError::NotFound(path) = renamed.expect_err("nothing to rename") else { panic!("not found") };
    assert_eq!(path, rig.path("missing"));
    assert_eq!(rig.stat("to").await, None);
}

async fn scan(rig: &Rig, skip: &[&str], hashes: Hashes) -> TreeIndex {
    let options = ScanOptions { skip: skip.iter().map(Into::into).collect(), hashes };
    soon("scan", rig.machine.scan(&rig.at("tree"), &options)).await.expect("it is scanned")
}

fn paths(index: &TreeIndex) -> Vec<&str> {
    index.entries.iter().map(|entry| entry.path.to_str().unwrap()).collect()
}

async fn tree(rig: &Rig) {
    for (name, bytes) in [("a/c", "hello"), ("a-b", ""), ("a/skip/x", "1"), ("b*[x]/y", "2"), ("bxx/y", "abc")] {
        rig.put(format!("tree/{name}"), bytes).await;
    }
    rig.link("tree/link", "a").await;
}

/// Everything below a directory: parents before children, siblings by name, links not followed, the root not listed.
pub async fn a_scan_is_a_complete_index(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    tree(&rig).await;
    let index = scan(&rig, &[], Hashes::Skip).await;
    assert_eq!(paths(&index), ["a", "a/c", "a/skip", "a/skip/x", "a-b", "b*[x]", "b*[x]/y", "bxx", "bxx/y", "link"]);
    let of = |path: &str| index.entries.iter().find(|entry| entry.path == path).expect("it is in the index");
    assert_eq!((of("a").entry.kind, of("a/c").entry.kind), (EntryKind::Dir, EntryKind::File));
    assert_eq!((of("a/c").entry.size, of("a/c").entry.name.to_str()), (5, Some("c")));
    assert_eq!(of("link").entry.link.as_deref(), Some(OsStr::new("a")));
    assert!(index.entries.iter().all(|entry| entry.sha256.is_none()));
    assert!(of("a/c").entry.modified_ns > 0);
    let missing = soon("scan", rig.machine.scan(&rig.at("missing"), &ScanOptions::default())).await;
    assert_eq!(missing.expect_err("nothing to scan").code(), "not_found");
}

/// Skipped paths are names, not patterns, and take what is below with them.
pub async fn a_scan_leaves_out_what_it_is_told_to(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    tree(&rig).await;
    let index = scan(&rig, &["a/skip", "b*[x]", "link", "not there"], Hashes::Sha256).await;
    assert_eq!(paths(&index), ["a", "a/c", "a-b", "bxx", "bxx/y"]);
}

/// The hashes are the files' SHA-256, and only files have one.
pub async fn a_scan_hashes_contents(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    tree(&rig).await;
    let index = scan(&rig, &[], Hashes::Sha256).await;
    let of = |path: &str| {
        let found = index.entries.iter().find(|entry| entry.path == path).expect("it is in the index");
        found.sha256.map(|sum| sum.to_string())
    };
    let hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(of("a/c").as_deref(), Some(hello));
    assert_eq!(of("bxx/y").as_deref(), Some(abc));
    assert_eq!(of("a-b").as_deref(), Some(empty));
    assert_eq!((of("a"), of("link")), (None, None));
}
