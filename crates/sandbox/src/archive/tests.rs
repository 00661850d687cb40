//! Attacks with every archive format, and archives that must be accepted.

mod bounds;
mod build;
mod property;
mod zips;

use std::{num::NonZeroU64, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream};
use sandbar_machine::{
    ByteStream, Files as _, Machine, MachineError, MachinePath, MemoryMachine, Target, collect, once,
    tar::{Event, Kind, Member, Reader},
};

use self::build::{Given, Zipped, compress, dir, file, hard, special, symlink, tar, zip, zip_of, zip_records};
use super::*;

const FORMATS: [Format; 4] = [Format::Tar, Format::TarGz, Format::TarZst, Format::Zip];
const PLENTY: usize = 64 << 20;

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("took longer than a minute")
}

fn keep() -> Policy {
    Policy { links: Links::KeepInside, ..Policy::default() }
}

/// Members of a clean stream with their content.
fn members(tar: &[u8]) -> Vec<(Member, Vec<u8>)> {
    let mut found: Vec<(Member, Vec<u8>)> = Vec::new();
    let mut reader = Reader::new();
    for event in reader.push(tar).expect("a tar archive") {
        match event {
            Event::Member(member) => found.push((member, Vec::new())),
            Event::Data(data) => found.last_mut().expect("a member").1.extend_from_slice(&data),
            Event::Done => {}
        }
    }
    reader.finish().expect("a whole archive");
    found
}

/// Checks an archive that comes in pieces.
async fn run(archive: &[u8], format: Format, limits: &ArchiveLimits, policy: &Policy) -> Result<(Vec<u8>, Summary)> {
    let pieces: Vec<_> = archive.chunks(1000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let checked = soon(check(Box::pin(stream::iter(pieces)), format, limits, policy, "a")).await?;
    let summary = checked.summary();
    let tar = soon(collect(checked.into_tar(), PLENTY)).await.expect("what was checked is passed on");
    Ok((tar.to_vec(), summary))
}

fn build(given: &[Given], format: Format) -> Option<Vec<u8>> {
    match format {
        Format::Zip => zip(given),
        other => Some(compress(&tar(given), other)),
    }
}

async fn refused(given: &[Given], policy: &Policy, reason: &str) {
    for format in FORMATS {
        let Some(archive) = build(given, format) else { continue };
        let error = run(&archive, format, &ArchiveLimits::default(), policy).await.expect_err(reason);
        assert_eq!(error.code(), "archive_refused", "{format:?} {given:?}: {error}");
        assert!(error.to_string().contains(reason), "{format:?} {given:?}: {error}");
    }
}

#[test]
fn formats_are_known_by_name_and_by_their_first_bytes() {
    let table = [
        ("a.tar", Some(Format::Tar)),
        ("a.TAR.GZ", Some(Format::TarGz)),
        ("a.b.tgz", Some(Format::TarGz)),
        ("x/a.tar.zst", Some(Format::TarZst)),
        ("a.tzst", Some(Format::TarZst)),
        ("A.Zip", Some(Format::Zip)),
        ("a.gz", None),
        ("tar", None),
        ("a.tar.xz", None),
    ];
    for (name, format) in table {
        assert_eq!(Format::from_name(name), format, "{name}");
    }
    let given = [file("a", b"x")];
    for format in FORMATS {
        assert_eq!(Format::from_magic(&build(&given, format).unwrap()), Some(format));
    }
    assert_eq!(Format::from_magic(&zip(&[]).unwrap()), Some(Format::Zip));
    assert_eq!(Format::from_magic(b""), None);
    assert_eq!(Format::of("a.tar.xz", None).unwrap_err().context()["scheme"], "tar.xz");
    assert_eq!(Format::of("noname", Some("rar")).unwrap_err().code(), "invalid_compression_scheme");
    assert_eq!(Format::of("noname", Some("tar.gz")).unwrap(), Format::TarGz);
}

#[test]
fn limits_are_read_with_their_defaults_and_zero_is_none() {
    let read = |json| serde_json::from_str::<ArchiveLimits>(json);
    assert_eq!(read("{}").unwrap(), ArchiveLimits::default());
    let limits = read(r#"{"max_members": 5, "max_input_bytes": null}"#).unwrap();
    assert_eq!((limits.max_members, limits.max_input_bytes), (NonZeroU64::new(5), None));
    assert_eq!(read(r#"{"maxMembers": 5}"#).unwrap().max_members, NonZeroU64::new(5));
    assert!(read(r#"{"max_members": 0}"#).is_err());
    assert!(read(r#"{"max_memberz": 1}"#).is_err());
    let back: ArchiveLimits = serde_json::from_value(serde_json::to_value(ArchiveLimits::NONE).unwrap()).unwrap();
    assert_eq!(back, ArchiveLimits::NONE);
}

#[tokio::test]
async fn a_valid_archive_passes_in_every_format() {
    let large = vec![7; 200_000];
    let long = format!("{}/{}", "d".repeat(200), "f".repeat(200));
    let given = [
        dir("./"),
        dir("dir/"),
        Given { mode: 0o4755, ..file("./dir//tool", b"#!") },
        file("implied/deep/file", b""),
        file("ü and space", b"x"),
        Given { mode: 0, ..file("locked", b"x") },
        file(&long, b"long"),
        file("large", &large),
        symlink("dir/link", "../large"),
        symlink("self", "."),
        dir("implied"),
    ];
    for format in FORMATS {
        let archive = build(&given, format).unwrap();
        let (tar, summary) = run(&archive, format, &ArchiveLimits::default(), &keep()).await.expect("it is fine");
        assert_eq!(summary, Summary { members: 10, bytes: 200_008 }, "{format:?}");
        let found = members(&tar);
        let names: Vec<_> =
            found.iter().map(|(member, _)| String::from_utf8_lossy(&member.path).into_owned()).collect();
        let expected = [
            "dir/",
            "dir/tool",
            "implied/deep/file",
            "ü and space",
            "locked",
            &long,
            "large",
            "dir/link",
            "self",
            "implied/",
        ];
        assert_eq!(names, expected);
        assert_eq!((found[1].0.mode, &found[1].1[..]), (0o755, b"#!".as_slice()), "{format:?}");
        assert!(found[4].0.mode & 0o600 == 0o600);
        assert!(found[6].1 == large);
        assert_eq!((found[7].0.kind, &found[7].0.link[..]), (Kind::Symlink, b"../large".as_slice()));
        let machine = MemoryMachine::new();
        let root = Target::from(MachinePath::workspace());
        machine.unpack(&root, once(tar)).await.expect("a machine takes it");
        let tool = Target::from(MachinePath::new("/workspace/dir/tool").unwrap());
        assert_eq!(machine.stat(&tool).await.unwrap().unwrap().mode, 0o755);
    }
}

#[tokio::test]
async fn hostile_members_are_refused_in_every_format() {
    let table: &[(&[Given], &str)] = &[
        (&[file("../x", b"")], "`..`"),
        (&[file("a/../../x", b"")], "`..`"),
        (&[file("a/..", b"")], "`..`"),
        (&[dir("..")], "`..`"),
        (&[file("/etc/passwd", b"")], "absolute"),
        (&[file("//etc/passwd", b"")], "absolute"),
        (&[file("C:/x", b"")], "drive"),
        (&[file("./c:/x", b"")], "drive"),
        (&[file("a\\..\\x", b"")], "backslash"),
        (&[file("\\\\host\\share", b"")], "backslash"),
        (&[file(".", b"")], "no name"),
        (&[file(&"x".repeat(256), b"")], "longer"),
        (&[file(&"x/".repeat(2001), b"")], "longer"),
        (&[special(b'6', "pipe")], "FIFO"),
        (&[special(b'3', "tty")], "device"),
        (&[symlink("l", "/etc")], "link"),
        (&[hard("h", "a")], "link"),
        (&[file("a", b"1"), file("./a", b"2")], "twice"),
        (&[file("a", b"1"), dir("a")], "twice"),
        (&[dir("a"), file("a", b"")], "twice"),
        (&[dir("a"), dir("a/")], "twice"),
        (&[file("a/b", b""), file("a", b"")], "twice"),
        (&[file("a", b""), file("a/b", b"")], "below"),
        (&[file("a", b""), dir("a/b/c")], "below"),
    ];
    for (given, reason) in table {
        refused(given, &Policy::default(), reason).await;
    }
}

#[tokio::test]
async fn links_are_kept_only_inside() {
    let table: &[(&[Given], &str)] = &[
        (&[symlink("l", "/etc/passwd")], "absolute"),
        (&[symlink("l", "..")], "out of"),
        (&[symlink("d/l", "../..")], "out of"),
        (&[symlink("d/l", "x/../../..")], "out of"),
        // The first leads to the top; from there two steps up are outside.
        (&[symlink("p/q/l", "../.."), symlink("z", "p/q/l/../..")], "out of"),
        (&[symlink("l", "d"), file("l/x", b"")], "below"),
        (&[symlink("l", "d"), file("l", b"")], "twice"),
        (&[symlink("l", "d"), dir("l")], "twice"),
        (&[symlink("l", "")], "empty"),
        (&[hard("h", "/etc/passwd")], "hard link"),
        (&[hard("h", "../x")], "hard link"),
        (&[hard("h", "missing")], "hard link"),
        (&[hard("h", "h")], "hard link"),
        (&[dir("d"), hard("h", "d")], "hard link"),
        (&[symlink("l", "x"), hard("h", "l")], "hard link"),
        (&[hard("h", "later"), file("later", b"")], "hard link"),
    ];
    for (given, reason) in table {
        refused(given, &keep(), reason).await;
    }
    let fine = [file("a/f", b"12345"), symlink("a/b/l", "../../a/./f"), symlink("a/top", ".."), symlink("x", "gone")];
    for format in FORMATS {
        run(&build(&fine, format).unwrap(), format, &ArchiveLimits::default(), &keep())
            .await
            .expect("they stay inside");
    }
    let copies = [file("a/f", b"12345"), hard("h", "./a/f"), hard("i", "h")];
    let (_, summary) =
        run(&tar(&copies), Format::Tar, &ArchiveLimits::default(), &keep()).await.expect("earlier files");
    assert_eq!(summary, Summary { members: 3, bytes: 15 }, "a hard link may become a copy, and costs one");
    let all = Policy { links: Links::KeepAll, names: Names::Any, modes: Modes::Exact, ..Policy::default() };
    let own = [symlink("bin/python", "/usr/bin/python"), Given { mode: 0o400, ..file("a\\b", b"") }, file("C:/x", b"")];
    let (cleaned, _) = run(&tar(&own), Format::Tar, &ArchiveLimits::default(), &all).await.expect("our own archive");
    assert_eq!(members(&cleaned)[1].0.mode, 0o400);
}

#[tokio::test]
async fn parts_of_an_archive_can_be_taken() {
    let given = [
        dir("repo-1"),
        file("repo-1/README", b"r"),
        file("repo-1/src/main", b"m"),
        symlink("repo-1/src/up", "../README"),
        file("repo-1/srcs", b""),
        file("top", b""),
    ];
    let names = |strip, subpath: Option<&str>, links| {
        let subpath = subpath.map(|path| WorkspacePath::new(path).unwrap());
        let policy = Policy { links, strip_components: strip, subpath, ..Policy::default() };
        let given = &given;
        async move {
            let (tar, _) = run(&tar(given), Format::Tar, &ArchiveLimits::default(), &policy).await?;
            Ok::<_, SandboxError>(
                members(&tar)
                    .into_iter()
                    .map(|(member, _)| String::from_utf8(member.path).unwrap())
                    .collect::<Vec<_>>(),
            )
        }
    };
    assert_eq!(names(1, None, Links::KeepInside).await.unwrap(), ["README", "src/main", "src/up", "srcs"]);
    assert_eq!(names(1, Some("src"), Links::KeepAll).await.unwrap(), ["main", "up"]);
    assert_eq!(names(0, Some("repo-1/src"), Links::KeepAll).await.unwrap(), ["main", "up"]);
    assert_eq!(names(9, None, Links::KeepInside).await.unwrap(), [""; 0]);
    for (subpath, reason) in [("src", "out of"), ("missing", "not in the archive"), ("README", "is not one")] {
        let error = names(1, Some(subpath), Links::KeepInside).await.unwrap_err();
        assert!(error.to_string().contains(reason), "{subpath}: {error}");
    }
    let policy = Policy { strip_components: 1, ..Policy::default() };
    refused(&[file("a/x", b"1"), file("b/x", b"2")], &policy, "twice").await;
    refused(&[file("../x", b"1")], &policy, "`..`").await;
    let policy = Policy { strip_components: 1, ..keep() };
    refused(&[file("x", b"1"), hard("a/h", "x")], &policy, "left out").await;
}

#[tokio::test]
async fn a_truncated_archive_and_one_with_data_after_its_end_are_refused() {
    let given = [file("a", &[1; 3000]), file("b", b"x")];
    for format in FORMATS {
        let whole = build(&given, format).unwrap();
        for end in [0, 1, 10, whole.len() / 2, whole.len() - 1] {
            // A tar reader does not need all of the second zero block.
            if format == Format::Tar && end == whole.len() - 1 {
                continue;
            }
            let error = run(&whole[..end], format, &ArchiveLimits::default(), &keep()).await.expect_err("torn");
            assert_eq!(error.code(), "archive_refused", "{format:?} {end}: {error}");
        }
        let more = [&whole[..], b"more"].concat();
        let error = run(&more, format, &ArchiveLimits::default(), &keep()).await.expect_err("more");
        assert_eq!(error.code(), "archive_refused", "{format:?}: {error}");
        for other in FORMATS.into_iter().filter(|other| *other != format) {
            let error = run(&whole, other, &ArchiveLimits::default(), &keep()).await.expect_err("another format");
            assert_eq!(error.code(), "archive_refused", "{format:?} as {other:?}: {error}");
        }
    }
    for size in [0, 100, 512] {
        let mut whole = tar(&[file("a", &vec![1; size])]);
        *whole.last_mut().unwrap() = 1;
        let error = run(&whole, Format::Tar, &ArchiveLimits::default(), &keep()).await.expect_err("not only zeros");
        assert!(error.to_string().contains("after its end"), "{error}");
    }
    let two = [tar(&[file("a", b"")]), tar(&[file("b", b"")])].concat();
    for format in [Format::Tar, Format::TarGz, Format::TarZst] {
        let error = run(&compress(&two, format), format, &ArchiveLimits::default(), &keep()).await.expect_err("two");
        assert!(error.to_string().contains("after its end"), "{error}");
    }
}

#[tokio::test]
async fn compressed_parts_may_follow_each_other() {
    let whole = tar(&[file("a", &[1; 3000]), file("b", b"x")]);
    for format in [Format::TarGz, Format::TarZst] {
        let parts = [compress(&whole[..700], format), compress(&[], format), compress(&whole[700..], format)].concat();
        let (_, summary) = run(&parts, format, &ArchiveLimits::default(), &keep()).await.expect("one archive");
        assert_eq!(summary.members, 2);
        let mut damaged = compress(&whole, format);
        let last = damaged.len() - 5;
        damaged[last] ^= 1;
        run(&damaged, format, &ArchiveLimits::default(), &keep()).await.expect_err("damaged");
    }
}

#[tokio::test]
async fn pax_headers_cannot_bypass_the_rules() {
    let pax = |record: &[u8], flag: u8| {
        let mut header = Member::new(Kind::Other(flag), b"pax", 0o644);
        header.size = record.len() as u64;
        let mut out = header.encode().to_vec();
        out.extend_from_slice(record);
        out.resize(out.len().next_multiple_of(512), 0);
        out.extend_from_slice(&tar(&[file("good", b"x")]));
        out
    };
    let table: &[(&[u8], u8, &str)] = &[
        (b"16 path=../evil\n", b'x', "`..`"),
        (b"14 path=a\0b/c\n", b'x', "NUL"),
        (b"8 path=\n", b'x', "no name"),
        (b"13 path=evil\n", b'g', "pax"),
        (b"22 GNU.sparse.major=1\n", b'x', "pax"),
    ];
    for (record, flag, reason) in table {
        let result = run(&pax(record, *flag), Format::Tar, &ArchiveLimits::default(), &keep()).await;
        let error = result.expect_err(reason);
        assert_eq!(error.code(), "archive_refused");
        assert!(error.to_string().contains(reason), "{error}");
    }
    run(&pax(b"12 comment=\n", b'g'), Format::Tar, &ArchiveLimits::default(), &keep()).await.expect("only a comment");
}

/// A change to a valid archive; the number is the offset of its end record.
type EndTwist = fn(&mut Vec<u8>, usize);
/// A change to a valid record.
type Twist = fn(&mut Zipped);
