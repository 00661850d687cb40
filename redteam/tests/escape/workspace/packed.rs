//! Numbers 66 and 67 for every format a session unpacks.

use std::{fs, num::NonZeroU64, os::unix::fs::MetadataExt, path::Path, time::Instant};

use sandbar_machine::once;
use sandbar_redteam::sys;
use sandbar_sandbox::{
    ArchiveLimits, Extract,
    archive::{self, Format, Links, Policy},
};

use super::{
    stage::{Stage, brief, everything, prompt, refused, soon},
    tarball::{
        BLOCK, CHAR, DIR, FIFO, FILE, HARD, LINK, LONG_NAME, Member, PAX, PAX_GLOBAL, gzip, gzip_bomb, header, pax,
        tar, zeros_deflated, zstd, zstd_bomb,
    },
    zipped::{Zipped, zip, zip_of},
};
use crate::escape::{lifetime::rss, tally::Tally};

pub(super) async fn run(stage: &Stage<'_>, tally: &mut Tally) {
    let out = stage.canary.text();
    let names = Names::new(&out);
    for case in cases(&names) {
        tally.control(&format!("I66.{}", case.0), naive(stage, case.0), "a naive unpacker is led out");
        for (format, bytes) in packings(&case.1) {
            each(stage, tally, (case.0, format, &bytes)).await;
        }
    }
    zip_lies(stage, tally).await;
    set_id(stage, tally).await;
    planted(stage, tally).await;
    overlays(stage, tally).await;
    bombs(stage, tally).await;
    tally.expect("I67.session-canary-unchanged", stage.canary.untouched(), "the canary directory is as it was");
    soon(stage.session.delete()).await.expect("delete");
}

/// Paths outside, as text that lives long enough.
struct Names {
    out: String,
    absolute: String,
    leaf: String,
    long: String,
    pax: Vec<u8>,
    pax_link: Vec<u8>,
}

impl Names {
    fn new(out: &str) -> Self {
        Self {
            out: out.to_owned(),
            absolute: format!("{out}/absolute"),
            leaf: format!("{out}/f"),
            long: "../../escaped".to_owned(),
            pax: pax("path", "../../escaped"),
            pax_link: pax("linkpath", out),
        }
    }
}

fn cases(names: &Names) -> Vec<(&'static str, Vec<Member<'_>>)> {
    let file = |name| Member(FILE, name, "", 0o644, b"x");
    let link = |name, to| Member(LINK, name, to, 0o777, b"");
    let special = |kind, name| Member(kind, name, "", 0o666, b"");
    vec![
        ("climb", vec![file("../../escaped")]),
        ("climb-in-the-middle", vec![file("a/../../escaped")]),
        ("climb-behind-a-dot", vec![file("./.././../escaped")]),
        ("absolute", vec![file(&names.absolute)]),
        ("backslash", vec![file("..\\..\\escaped")]),
        ("drive", vec![file("C:\\escaped")]),
        ("link-then-file", vec![link("l", &names.out), file("l/through")]),
        ("relative-link-then-file", vec![link("l", "../.."), file("l/escaped")]),
        ("two-links-then-file", vec![link("a", "."), link("a/b", "../.."), file("b/escaped")]),
        ("link-then-over-it", vec![link("l", &names.leaf), file("l")]),
        ("link-then-directory", vec![link("l", &names.out), special(DIR, "l/made")]),
        ("hard-link-outside", vec![Member(HARD, "h", &names.leaf, 0o644, b"")]),
        ("hard-link-climbs", vec![Member(HARD, "h", "../../f", 0o644, b"")]),
        ("hard-link-through-link", vec![link("l", &names.out), Member(HARD, "h", "l/f", 0o644, b"")]),
        ("long-name-climbs", vec![Member(LONG_NAME, "././@LongLink", "", 0o644, names.long.as_bytes()), file("x")]),
        ("pax-name-climbs", vec![Member(PAX, "pax", "", 0o644, &names.pax), file("x")]),
        ("pax-global-name-climbs", vec![Member(PAX_GLOBAL, "pax", "", 0o644, &names.pax), file("x")]),
        ("pax-link-then-file", vec![Member(PAX, "pax", "", 0o644, &names.pax_link), link("l", "x"), file("l/through")]),
        ("character-device", vec![special(CHAR, "null")]),
        ("block-device", vec![special(BLOCK, "disk")]),
        ("fifo", vec![special(FIFO, "fifo")]),
        ("file-as-directory", vec![file("x"), file("x/y")]),
        ("duplicate-names", vec![file("twice"), file("twice")]),
        ("duplicate-names.other-spelling", vec![file("twice"), file("./twice")]),
    ]
}

/// The same members in every format that has them.
fn packings(members: &[Member<'_>]) -> Vec<(Format, Vec<u8>)> {
    let plain = tar(members);
    let mut all = vec![
        (Format::TarGz, gzip(&plain)),
        (Format::TarZst, zstd(&plain)),
        (Format::Zip, zip(members).unwrap_or_default()),
    ];
    all.retain(|(_, bytes)| !bytes.is_empty());
    all.insert(0, (Format::Tar, plain));
    all
}

/// What must be in an archive's place, and nothing outside of it.
fn intruders(stage: &Stage<'_>) -> Vec<String> {
    let names = fs::read_dir(&stage.workspace).expect("the workspace").flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(|name| name != "in").collect()
}

async fn each(stage: &Stage<'_>, tally: &mut Tally, given: (&str, Format, &[u8])) {
    let (name, format, bytes) = given;
    for (way, links) in [("refuse", Links::Refuse), ("inside", Links::KeepInside), ("all", Links::KeepAll)] {
        let policy = Policy { links, ..Policy::default() };
        let extract = Extract::new("a", once(bytes.to_vec())).format(format).policy(policy.clone());
        let got = prompt(stage.session.extract("in", extract)).await;
        // A global header that is ignored is as harmless as one that is refused.
        let unheeded = name == "pax-global-name-climbs" && got.is_ok();
        let held = (refused(&got) || unheeded) && intruders(stage).is_empty() && stage.canary.untouched();
        tally.expect(&format!("I66.{name}.{way}-{format:?}"), held, brief(&got));
        soon(stage.session.remove("in")).await.expect("cleared");
        if way == "inside" {
            // What a remote directory goes through before a machine sees any of it.
            let limits = ArchiveLimits::default();
            let got = prompt(archive::check(once(bytes.to_vec()), format, &limits, &policy, "a")).await;
            tally.expect(&format!("I66.{name}.check-{format:?}"), refused(&got) || unheeded, brief(&got));
        }
    }
}

/// An unpacker that joins paths and hopes, with these members and a place of its own; whether something landed outside.
fn naive(stage: &Stage<'_>, case: &str) -> bool {
    let place = tempfile::tempdir_in(stage.rig.scratch.path()).expect("a directory");
    let (root, outside) = (place.path().join("a/b/in"), place.path().join("a/out"));
    fs::create_dir_all(&root).expect("a directory");
    fs::create_dir_all(&outside).expect("a directory");
    for kept in [outside.join("f"), place.path().join("a/f")] {
        fs::write(kept, "kept").expect("a file");
    }
    let before = everything(place.path());
    let names = Names::new(&outside.display().to_string());
    let all = cases(&names);
    let (_, members) = all.iter().find(|(name, _)| *name == case).expect("a case");
    let (mut next_name, mut next_link) = (None, None);
    for Member(kind, name, link, _, bytes) in members {
        let text = String::from_utf8_lossy(bytes).into_owned();
        match *kind {
            LONG_NAME => next_name = Some(text),
            PAX | PAX_GLOBAL if text.contains("linkpath=") => next_link = value_of(&text),
            PAX | PAX_GLOBAL => next_name = value_of(&text),
            _ => {
                let name =
                    next_name.take().unwrap_or_else(|| (*name).to_owned()).replace('\\', "/").replace("C:/", "/");
                let name = if name == "/escaped" { outside.join("escaped").display().to_string() } else { name };
                let link = next_link.take().unwrap_or_else(|| (*link).to_owned());
                put(&root, *kind, &name, &link);
            }
        }
    }
    let after = everything(place.path());
    after.iter().any(|found| !found.0.starts_with(&root) && !before.contains(found))
}

fn value_of(record: &str) -> Option<String> {
    record.split_once('=').map(|(_, value)| value.trim_end().to_owned())
}

fn put(root: &Path, kind: u8, name: &str, link: &str) {
    let path = root.join(name);
    let _may_fail = match kind {
        FILE => fs::create_dir_all(path.parent().expect("a parent")).and_then(|()| fs::write(&path, "x")),
        DIR => fs::create_dir_all(&path),
        LINK => std::os::unix::fs::symlink(link, &path),
        HARD => fs::hard_link(root.join(link), &path).and_then(|()| fs::write(&path, "changed")),
        _ => Ok(()),
    };
}

/// Zip archives that say one thing in front and another at the end.
async fn zip_lies(stage: &Stage<'_>, tally: &mut Tally) {
    let plain = || Zipped::new("x", b"xxxx");
    let cases = [
        ("zip-two-names", Zipped { other_name: Some(b"../../escaped".to_vec()), ..plain() }),
        ("zip-other-two-names", Zipped { name: b"../../escaped".to_vec(), other_name: Some(b"x".to_vec()), ..plain() }),
        ("zip-smaller-than-it-is", Zipped { size: 1, ..plain() }),
        ("zip-larger-than-it-is", Zipped { size: 1 << 30, ..plain() }),
        ("zip-wrong-checksum", Zipped { crc: 7, ..plain() }),
        ("zip-unknown-method", Zipped { method: 99, ..plain() }),
        ("zip-name-with-nul", Zipped { name: b"x\0/../../escaped".to_vec(), ..plain() }),
        ("zip-empty-name", Zipped { name: Vec::new(), ..plain() }),
        ("zip-deflate-bomb-that-says-4", Zipped { bytes: zeros_deflated(200 << 20), method: 8, size: 4, ..plain() }),
    ];
    for (name, member) in cases {
        let got = prompt(stage.session.extract("in", Extract::new("a.zip", once(zip_of(&[member]))))).await;
        let held = refused(&got) && intruders(stage).is_empty() && stage.canary.untouched();
        tally.expect(&format!("I67.{name}"), held, brief(&got));
    }
    let mut torn = zip(&[Member(FILE, "x", "", 0o644, b"x")]).expect("a zip");
    torn.truncate(torn.len() - 4);
    let got = prompt(stage.session.extract("in", Extract::new("a.zip", once(torn)))).await;
    tally.expect("I67.zip-torn", refused(&got) && intruders(stage).is_empty(), brief(&got));
}

/// Set-id and sticky bits never arrive.
async fn set_id(stage: &Stage<'_>, tally: &mut Tally) {
    for (format, bytes) in packings(&[Member(FILE, "suid", "", 0o6755, b"x"), Member(DIR, "sgid", "", 0o7777, b"")]) {
        let got = prompt(stage.session.extract("in", Extract::new("a", once(bytes)).format(format))).await;
        let mode = |name: &str| fs::symlink_metadata(stage.workspace.join("in").join(name)).map(|found| found.mode());
        let modes = [mode("suid"), mode("sgid")];
        let held = modes.iter().all(|mode| mode.as_ref().is_ok_and(|mode| mode & 0o7000 == 0));
        tally.expect(&format!("I66.set-id-member.session-{format:?}"), got.is_ok() && held, format!("{modes:?}"));
        soon(stage.session.remove("in")).await.expect("cleared");
    }
}

/// The archive is good, the place it is unpacked in is not.
async fn planted(stage: &Stage<'_>, tally: &mut Tally) {
    let out = stage.canary.text();
    let works = std::os::unix::fs::symlink(&out, stage.workspace.join("n")).is_ok()
        && fs::write(stage.workspace.join("n/naive"), "x").is_ok()
        && fs::remove_file(stage.canary.dir.join("naive")).is_ok()
        && fs::remove_file(stage.workspace.join("n")).is_ok();
    tally.control("I66.planted", works, "a naive unpacker goes through links that are there");
    for (name, script) in [
        ("parent", format!("mkdir in; ln -s {out} in/d")),
        ("climbing-parent", format!("mkdir in; ln -s ../../../../../../..{out} in/d")),
        ("leaf", format!("mkdir -p in/d; ln -s {out}/f in/d/f")),
        ("root", format!("ln -s {out} in")),
    ] {
        stage.plant(&script).await;
        for (format, bytes) in packings(&[Member(FILE, "d/f", "", 0o644, b"x"), Member(FILE, "d/new", "", 0o644, b"x")])
        {
            let got = prompt(stage.session.extract("in", Extract::new("a", once(bytes)).format(format))).await;
            // A leaf may be replaced: it is the archive's own place.
            let held = (refused(&got) || name == "leaf") && stage.canary.untouched();
            tally.expect(&format!("I66.planted.{name}-{format:?}"), held, brief(&got));
        }
        soon(stage.session.remove("in")).await.expect("cleared");
    }
}

/// Number 68: what an overlay would obey, names and attributes, is only names, and no attributes.
async fn overlays(stage: &Stage<'_>, tally: &mut Tally) {
    let file = stage.workspace.join("attribute");
    fs::write(&file, "x").expect("a file");
    let word = |text: &str| sys::text(text);
    let (path, name) = (word(&file.display().to_string()), word("user.overlay.redirect"));
    let set = [sys::at(&path), sys::at(&name), sys::addr(b"/etc".as_slice()), 4, 0];
    let shown = sys::call(libc::SYS_setxattr, set).is_ok() && attributes(&file) > 0;
    tally.control("I68", shown, "an unpacker that sets attributes sets them");
    fs::remove_file(file).expect("it goes");
    let records: Vec<u8> = [
        "SCHILY.xattr.user.overlay.redirect",
        "SCHILY.xattr.trusted.overlay.redirect",
        "SCHILY.xattr.security.capability",
        "LIBARCHIVE.xattr.user.overlay.opaque",
    ]
    .into_iter()
    .flat_map(|key| pax(key, "/etc"))
    .collect();
    let members = [
        Member(PAX, "pax", "", 0o644, &records),
        Member(FILE, "attributed", "", 0o644, b"x"),
        Member(PAX, "pax", "", 0o644, &records),
        Member(DIR, "d", "", 0o755, b""),
        Member(FILE, ".wh.kept", "", 0o644, b""),
        Member(FILE, "d/.wh..wh..opq", "", 0o644, b""),
    ];
    for way in ["extract", "hydrate"] {
        stage.plant("mkdir -p in/d; echo x > in/kept; echo x > in/d/kept").await;
        let bytes = once(tar(&members));
        let (got, root) = match way {
            "extract" => (prompt(stage.session.extract("in", Extract::new("a.tar", bytes))).await, "in"),
            _ => (prompt(stage.session.hydrate_workspace(bytes)).await, "."),
        };
        let at = stage.workspace.join(root);
        let plain = attributes(&at.join("attributed")) == 0 && attributes(&at.join("d")) == 0;
        let kept = way == "hydrate" || (at.join("kept").exists() && at.join("d/kept").exists());
        tally.expect(&format!("I68.overlay-{way}"), plain && kept && stage.canary.untouched(), brief(&got));
        stage.plant("rm -rf ..?* .[!.]* *").await;
    }
}

/// How long the list of a file's extended attributes is.
fn attributes(path: &Path) -> i64 {
    sys::call(libc::SYS_llistxattr, [sys::at(&sys::text(&path.display().to_string())), 0, 0]).unwrap_or(0)
}

const ZEROS: u64 = 512 << 20;

/// Bombs against small limits: a typed answer, soon, and no memory to speak of.
async fn bombs(stage: &Stage<'_>, tally: &mut Tally) {
    let limits = ArchiveLimits {
        max_input_bytes: NonZeroU64::new(32 << 20),
        max_extracted_bytes: NonZeroU64::new(16 << 20),
        max_members: NonZeroU64::new(1000),
        max_depth: NonZeroU64::new(64),
    };
    let large = Member(FILE, "large", "", 0o644, b"");
    let (honest, small) = (header(&large, ZEROS), header(&large, 4));
    let deep = "d/".repeat(100) + "f";
    let (long, longer) = (vec![b'n'; 3 << 20], pax("path", &"n/".repeat(200_000)));
    let lying = pax("size", "99999999999999999999");
    let named = |kind, bytes| tar(&[Member(kind, "h", "", 0o644, bytes), Member(FILE, "x", "", 0o644, b"x")]);
    let names: Vec<String> = (0..1001).map(|at| format!("f{at}")).collect();
    let many = tar(&names.iter().map(|name| Member(FILE, name, "", 0o644, b"")).collect::<Vec<_>>());
    let nested: Vec<u8> = (0..60).fold(b"x".to_vec(), |inner, _| gzip(&inner));
    let cases: Vec<(&str, Format, Vec<u8>)> = vec![
        ("gzip-bomb", Format::TarGz, gzip_bomb(&honest, ZEROS)),
        ("gzip-bomb-behind-a-small-file", Format::TarGz, gzip_bomb(&small, ZEROS)),
        ("zstd-bomb", Format::TarZst, zstd_bomb(&honest, ZEROS)),
        ("zstd-bomb-behind-a-small-file", Format::TarZst, zstd_bomb(&small, ZEROS)),
        ("zstd-bomb-of-ends", Format::TarZst, zstd_bomb(&tar(&[]), 8 * ZEROS)),
        ("members", Format::Tar, many.clone()),
        ("members-gzip", Format::TarGz, gzip(&many)),
        ("depth", Format::Tar, named(LONG_NAME, deep.as_bytes())),
        ("long-name", Format::Tar, named(LONG_NAME, &long)),
        ("pax-header", Format::Tar, named(PAX, &long)),
        ("pax-name", Format::Tar, named(PAX, &longer)),
        ("pax-size", Format::Tar, named(PAX, &lying)),
        ("pax-nothing-else", Format::Tar, (0..2000).flat_map(|_| header(&Member(PAX, "p", "", 0, b""), 0)).collect()),
        ("input", Format::Tar, vec![0; 33 << 20]),
        ("garbage", Format::Tar, vec![0xa5; 1 << 20]),
        ("garbage-gzip", Format::TarGz, vec![0xa5; 1 << 20]),
        ("garbage-zstd", Format::TarZst, vec![0xa5; 1 << 20]),
        ("garbage-zip", Format::Zip, vec![0xa5; 1 << 20]),
        ("gzip-in-gzip", Format::TarGz, nested),
    ];
    let before = rss();
    for (name, format, bytes) in cases {
        let (start, length) = (Instant::now(), bytes.len());
        let got =
            prompt(stage.session.extract("in", Extract::new("a", once(bytes)).format(format).limits(limits))).await;
        let (took, grown) = (start.elapsed(), rss().saturating_sub(before) >> 10);
        let held = refused(&got) && intruders(stage).is_empty() && grown < 512;
        tally.expect(
            &format!("I67.session-{name}"),
            held,
            format!("{} after {took:?}, {length} bytes, {grown} MiB more", brief(&got)),
        );
        soon(stage.session.remove("in")).await.expect("cleared");
    }
    let alive = prompt(stage.session.write("in", "x")).await;
    tally.expect("I67.session-lives-on", alive.is_ok(), brief(&alive));
}
