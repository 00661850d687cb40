//! False data that only zip archives can have: directories, offsets, and sizes that are stored twice.

use super::*;

#[tokio::test]
async fn a_zip_archive_that_contradicts_itself_is_refused() {
    let table: &[(Twist, &str)] = &[
        (|entry| entry.flags |= 1, "encrypted"),
        (|entry| entry.flags |= 1 << 6, "encrypted"),
        (|entry| entry.flags |= 1 << 13, "encrypted"),
        (|entry| entry.local_flags = Some(1), "encrypted"),
        (|entry| entry.crc ^= 1, "checksum"),
        (|entry| entry.local_crc = Some(5), "checksum"),
        (|entry| entry.size += 1, "smaller"),
        (|entry| entry.size -= 1, "larger"),
        (|entry| entry.size = 0, "larger"),
        (|entry| entry.local_size = Some(1), "another size"),
        (|entry| entry.data.push(0), "after its end"),
        (|entry| entry.data.truncate(5), "damaged"),
        (|entry| entry.data[0] = 0xff, "damaged"),
        (|entry| entry.method = 0, "says"),
        (|entry| entry.method = 14, "method 14"),
        (|entry| entry.local_name = Some(b"../x".to_vec()), "another name"),
        (|entry| entry.name = b"../x".to_vec(), "`..`"),
        (|entry| entry.name = b"a\0b".to_vec(), "NUL"),
        (|entry| entry.name = b"".to_vec(), "no name"),
        (|entry| entry.name = b"..\\..\\x".to_vec(), "backslash"),
        (|entry| (entry.name, entry.flags) = (b"\x81".to_vec(), 1 << 11), "UTF-8"),
        (|entry| entry.external = 0o120_777 << 16, "a link"),
        (|entry| entry.external = 0o010_644 << 16, "FIFO"),
        (|entry| entry.name = b"a/".to_vec(), "directory with content"),
        (|entry| entry.offset = Some(7), "no header"),
        (|entry| entry.offset = Some(0xffff_ffff), "zip64"),
        (|entry| entry.extra = vec![1, 0, 200, 0], ""),
        (|entry| entry.disk = 1, "several"),
    ];
    for (twist, reason) in table {
        let mut entry = Zipped::new(b"name", b"some content, some content, some content");
        twist(&mut entry);
        let result = run(&zip_of(&[entry]), Format::Zip, &ArchiveLimits::default(), &Policy::default()).await;
        if reason.is_empty() {
            result.expect("an extra field that is not read");
            continue;
        }
        let error = result.expect_err(reason);
        assert_eq!(error.code(), "archive_refused", "{reason}");
        assert!(error.to_string().contains(reason), "{reason}: {error}");
    }
    let fine = Zipped { late: true, ..Zipped::new(b"\x81", b"content") };
    let (tar, _) =
        run(&zip_of(&[fine]), Format::Zip, &ArchiveLimits::default(), &keep()).await.expect("sizes may be late");
    assert_eq!(members(&tar)[0].0.path, "ü".as_bytes());
}

#[tokio::test]
async fn zip_members_cannot_share_their_bytes_and_the_directory_must_fit() {
    let entry = || Zipped::new(b"a", b"content");
    let shared = Zipped { name: b"a".to_vec(), offset: Some(0), ..entry() };
    let limits = ArchiveLimits::default();
    let error = run(&zip_of(&[entry(), shared]), Format::Zip, &limits, &keep()).await.expect_err("they overlap");
    assert!(error.to_string().contains("share"), "{error}");
    let good = zip_of(&[entry(), Zipped::new(b"b", b"")]);
    let end = good.len() - 22;
    let twists: &[(&str, EndTwist)] = &[
        ("count up", |zip, end| (zip[end + 8], zip[end + 10]) = (9, 9)),
        ("count down", |zip, end| (zip[end + 8], zip[end + 10]) = (1, 1)),
        ("disk", |zip, end| zip[end + 4] = 1),
        ("directory size", |zip, end| zip[end + 12] += 1),
        ("directory offset", |zip, end| zip[end + 16] -= 1),
        ("comment length", |zip, end| zip[end + 20] = 1),
        ("something before", |zip, _end| {
            zip.splice(0..0, *b"#!/bin/x\n");
        }),
        ("two ends", |zip, end| {
            let mut fake = zip[end..].to_vec();
            (zip[end + 20], fake[20]) = (22, 0);
            zip.append(&mut fake);
        }),
    ];
    run(&good, Format::Zip, &limits, &keep()).await.expect("untouched it is fine");
    for (what, twist) in twists {
        let mut twisted = good.clone();
        twist(&mut twisted, end);
        let error = run(&twisted, Format::Zip, &limits, &keep()).await.expect_err(what);
        assert_eq!(error.code(), "archive_refused", "{what}: {error}");
    }
}

#[tokio::test]
async fn zip64_is_read_and_false_sizes_are_refused() {
    let wide = |size: u64| Zipped { wide: Some(size), ..Zipped::new(b"a", b"content") };
    let limits = ArchiveLimits::default();
    run(&zip_records(&[wide(7)], true), Format::Zip, &limits, &keep()).await.expect("zip64");
    let error = run(&zip_records(&[wide(8)], true), Format::Zip, &limits, &keep()).await.expect_err("a lie");
    assert_eq!(error.code(), "archive_refused", "{error}");
    let error = run(&zip_records(&[wide(u64::MAX)], true), Format::Zip, &limits, &keep()).await.expect_err("a lie");
    assert_eq!(error.code(), "limit_exceeded", "{error}");
    let two = [wide(u64::MAX), Zipped { wide: Some(u64::MAX), ..Zipped::new(b"b", b"content") }];
    let error = run(&zip_records(&two, true), Format::Zip, &limits, &keep()).await.expect_err("no overflow");
    assert_eq!(error.code(), "limit_exceeded", "{error}");
}
