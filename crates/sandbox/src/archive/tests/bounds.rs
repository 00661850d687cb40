//! Limits of archives, inputs that break off, and readers that disappear.

use super::*;

#[tokio::test]
async fn every_limit_holds_in_every_format() {
    let given = [file("a", &[0; 600]), file("b/c/d", &[0; 400]), dir("e")];
    let limit = |at: usize, limit: u64| {
        let mut limits = ArchiveLimits::NONE;
        let fields = [
            &mut limits.max_input_bytes,
            &mut limits.max_extracted_bytes,
            &mut limits.max_members,
            &mut limits.max_depth,
        ];
        *fields.into_iter().nth(at).unwrap() = NonZeroU64::new(limit);
        limits
    };
    for format in FORMATS {
        let archive = build(&given, format).unwrap();
        let exact = [archive.len() as u64, 1000, 3, 3];
        for (at, enough) in exact.into_iter().enumerate() {
            run(&archive, format, &limit(at, enough), &keep()).await.expect("exactly enough");
            let error = run(&archive, format, &limit(at, enough - 1), &keep()).await.expect_err("one too few");
            assert_eq!(error.code(), "limit_exceeded", "{format:?}: {error}");
            assert_eq!(error.context()["limit"], enough - 1);
        }
    }
    let copies = [file("a", &[0; 600]), hard("b", "a")];
    let error = run(&tar(&copies), Format::Tar, &limit(1, 1000), &keep()).await.expect_err("twice the size");
    assert_eq!(error.code(), "limit_exceeded");
}

#[tokio::test]
async fn a_bomb_stops_early() {
    let huge = 10u64 << 30;
    let mut header = Member::new(Kind::File, b"zeros", 0o644);
    let (deflated, packed) = (build::zeros(huge), build::zeros(huge).len());
    assert!((9 << 20..12 << 20).contains(&packed), "10 GiB are {packed} bytes");
    // With its real size: refused before anything is decompressed.
    let mut entry = Zipped { data: deflated.clone(), wide: Some(huge), ..Zipped::new(b"zeros", b"") };
    let limits = ArchiveLimits::default();
    let zip = zip_records(&[entry.clone()], true);
    let error = soon(check(once(zip), Format::Zip, &limits, &keep(), "a")).await.expect_err("a bomb");
    assert_eq!((error.code(), &error.context()["actual"]), ("limit_exceeded", &huge.into()));
    // With a false size: refused at the first byte too many.
    entry.wide = None;
    entry.size = 1000;
    let error = soon(check(once(zip_of(&[entry])), Format::Zip, &limits, &keep(), "a")).await.expect_err("a bomb");
    assert!(error.to_string().contains("larger than it says"), "{error}");
    // The second announces less, so its archive ends after a thousand zeros; the rest is more padding than is allowed.
    for size in [huge, 1000] {
        header.size = size;
        let bomb = build::gzip_of(&[&build::stored(&header.encode()), &deflated]);
        let error = soon(check(once(bomb), Format::TarGz, &limits, &keep(), "a")).await.expect_err("a bomb");
        assert_eq!(error.code(), "limit_exceeded", "{error}");
    }
}

#[tokio::test]
async fn endless_headers_are_refused() {
    let mut header = Member::new(Kind::Other(b'x'), b"pax", 0o644);
    header.size = 0;
    let endless = header.encode().repeat(100_000);
    let archive = compress(&endless, Format::TarZst);
    let error = run(&archive, Format::TarZst, &ArchiveLimits::NONE, &keep()).await.expect_err("endless");
    assert_eq!(error.code(), "limit_exceeded", "{error}");
}

#[tokio::test]
async fn an_error_of_the_input_is_returned() {
    for format in FORMATS {
        let archive = build(&[file("a", &[1; 3000])], format).unwrap();
        let input = || -> ByteStream {
            let head = Bytes::copy_from_slice(&archive[..archive.len() / 2]);
            Box::pin(stream::iter([Ok(head), Err(MachineError::Gone)]))
        };
        let limits = ArchiveLimits::default();
        let error = soon(check(input(), format, &limits, &keep(), "a")).await.expect_err("gone");
        assert_eq!((error.code(), &error.context()["reason"]), ("workspace_archive_read_error", &"gone".into()));
    }
}

#[tokio::test]
async fn a_dropped_reader_ends_the_work() {
    for format in [Format::Tar, Format::TarZst] {
        let endless: ByteStream = Box::pin(stream::pending());
        let (limits, policy) = (ArchiveLimits::default(), keep());
        let waiting = check(endless, format, &limits, &policy, "a");
        assert!(tokio::time::timeout(Duration::from_millis(20), waiting).await.is_err(), "nothing came");
    }
    let archive = tar(&[file("large", &vec![0; 8 << 20])]);
    let checked = soon(check(once(archive), Format::Tar, &ArchiveLimits::default(), &keep(), "a")).await.expect("fine");
    let mut stream = checked.into_tar();
    soon(stream.next()).await.expect("a piece").expect("fine");
    drop(stream);
    // The runtime waits for its threads when it ends, so this test hangs when one of them does not.
}

#[tokio::test]
async fn a_large_archive_is_kept_on_disk_and_passed_on_whole() {
    // A prime length: no two blocks are equal, and pieces hardly compress.
    let noise: Vec<u8> = (0..65_537u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let large = noise.repeat(270);
    for format in [Format::Tar, Format::Zip] {
        let archive = build(&[file("large", &large)], format).unwrap();
        let (tar, summary) = run(&archive, format, &ArchiveLimits::default(), &keep()).await.expect("fine");
        assert_eq!(summary.bytes, large.len() as u64);
        assert!(members(&tar)[0].1 == large);
    }
}
