//! Trees with all kinds of files, read into an in-memory machine.

use std::{
    fs::{self, File},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use futures::{StreamExt, stream};
use sandbar_machine::{Files as _, MachinePath, MemoryMachine, ScanOptions, Target};
use sha2::Digest;

use super::{Feed, Report, Roots, TreeOptions, file, tree};
use crate::Symlinks;

fn options() -> TreeOptions {
    TreeOptions { ignore: Vec::new(), gitignore: false, links: Symlinks::Preserve, max_bytes: 1 << 40, files: 4 }
}

fn write(root: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

async fn take(feed: Feed) -> (Result<Report, (Vec<u8>, String)>, Vec<String>) {
    let machine = MemoryMachine::new();
    let root = Target::from(MachinePath::workspace().join("in").unwrap());
    let unpacked = machine.unpack(&root, feed.tar).await;
    let report = feed.report.await.unwrap();
    assert_eq!(unpacked.is_ok(), report.is_ok(), "{unpacked:?}");
    if report.is_err() {
        return (report, Vec::new());
    }
    let index = machine.scan(&root, &ScanOptions::default()).await.unwrap();
    let lines = index.entries.iter().map(|found| {
        let link = found.entry.link.as_ref().map(|to| format!(" -> {}", to.display())).unwrap_or_default();
        format!("{:o} {}{link}", found.entry.mode & 0o777, found.path.display())
    });
    (report, lines.collect())
}

async fn copy(root: &Path, options: TreeOptions) -> (Result<Report, (Vec<u8>, String)>, Vec<String>) {
    take(tree(Roots::new(root).open(Path::new(".")).unwrap(), options)).await
}

fn fault(result: Result<Report, (Vec<u8>, String)>) -> (String, String) {
    let (path, reason) = result.unwrap_err();
    (String::from_utf8(path).unwrap(), reason)
}

#[tokio::test]
async fn modes_links_and_empty_directories_arrive() {
    let temp = tempfile::tempdir().unwrap();
    write(temp.path(), "bin/run", "#!");
    fs::set_permissions(temp.path().join("bin/run"), fs::Permissions::from_mode(0o755)).unwrap();
    write(temp.path(), "a.txt", "a");
    fs::set_permissions(temp.path().join("a.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::create_dir(temp.path().join("empty")).unwrap();
    symlink("../a.txt", temp.path().join("bin/link")).unwrap();
    let (report, lines) = copy(temp.path(), options()).await;
    assert_eq!(lines, ["640 a.txt", "755 bin", "777 bin/link -> ../a.txt", "755 bin/run", "755 empty"]);
    let report = report.unwrap();
    let digest = sandbar_machine::Sha256(sha2::Sha256::digest("a").into());
    assert_eq!(report.files[0], (b"a.txt".to_vec(), 1, digest));
    assert_eq!(report.files.len(), 2);
}

#[tokio::test]
async fn many_files_of_all_sizes_keep_their_bytes_and_their_order() {
    let temp = tempfile::tempdir().unwrap();
    for at in 0..300_usize {
        write(temp.path(), &format!("d{}/f{at:03}", at % 7), vec![at as u8; at * 37 % 3000]);
    }
    write(temp.path(), "large", vec![7; 3 << 20]);
    for files in [1, 4, 16] {
        let (report, lines) = copy(temp.path(), TreeOptions { files, ..options() }).await;
        assert_eq!(lines.len(), 308);
        let report = report.unwrap();
        for (path, size, digest) in report.files {
            let bytes = fs::read(temp.path().join(String::from_utf8(path).unwrap())).unwrap();
            assert_eq!((bytes.len() as u64, digest.0), (size, <[u8; 32]>::from(sha2::Sha256::digest(&bytes))));
        }
    }
}

#[tokio::test]
async fn ignored_files_are_left_out() {
    let temp = tempfile::tempdir().unwrap();
    for path in ["keep.rs", "target/x", "sub/target/y", "sub/a.log", "sub/keep.log", "secret.env", "sub/only.tmp"] {
        write(temp.path(), path, "x");
    }
    write(temp.path(), ".gitignore", "*.log\n/target\n");
    write(temp.path(), "sub/.gitignore", "!keep.log\n*.tmp\n");
    let (_, lines) = copy(temp.path(), TreeOptions { ignore: vec!["*.env".into()], ..options() }).await;
    assert_eq!(lines.iter().filter(|line| line.contains("env")).count(), 0);
    assert!(lines.iter().any(|line| line.ends_with("sub/a.log")), "{lines:?}");
    let all = TreeOptions { ignore: vec!["*.env".into()], gitignore: true, ..options() };
    let (_, lines) = copy(temp.path(), all).await;
    let names: Vec<&str> = lines.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(names, [".gitignore", "keep.rs", "sub", "sub/.gitignore", "sub/keep.log", "sub/target", "sub/target/y"]);
    let (report, _) = copy(temp.path(), TreeOptions { ignore: vec!["[z-a]".into()], ..options() }).await;
    assert!(fault(report).1.contains("[z-a]"));
}

#[tokio::test]
async fn leftovers_of_sandbar_are_left_out_and_reported() {
    let temp = tempfile::tempdir().unwrap();
    for path in [".sandbar-0123456789abcdef", "sub/.sandbar-apply-x/y", ".sandbar-notes", "sub/keep"] {
        write(temp.path(), path, "x");
    }
    let (report, lines) = copy(temp.path(), options()).await;
    assert_eq!(lines, ["644 .sandbar-notes", "755 sub", "644 sub/keep"]);
    let left_out = report.unwrap().left_out;
    let names: Vec<_> = left_out.iter().map(|(path, _)| String::from_utf8_lossy(path).into_owned()).collect();
    assert_eq!(names, [".sandbar-0123456789abcdef", "sub/.sandbar-apply-x"]);
}

#[tokio::test]
async fn links_that_lead_out_are_refused_or_left_out() {
    let temp = tempfile::tempdir().unwrap();
    write(temp.path(), "d/file", "x");
    symlink("/etc/passwd", temp.path().join("d/absolute")).unwrap();
    symlink("../../up", temp.path().join("d/up")).unwrap();
    symlink("file", temp.path().join("d/fine")).unwrap();
    symlink("d/../../up", temp.path().join("sneaky")).unwrap();
    let (report, lines) = copy(temp.path(), options()).await;
    assert_eq!(lines, ["755 d", "644 d/file", "777 d/fine -> file"]);
    let left: Vec<_> = report.unwrap().left_out.into_iter().map(|(path, _)| String::from_utf8(path).unwrap()).collect();
    assert_eq!(left, ["d/absolute", "d/up", "sneaky"]);
    let (path, reason) = fault(copy(temp.path(), TreeOptions { links: Symlinks::Reject, ..options() }).await.0);
    assert_eq!(path, "d/absolute");
    assert!(reason.contains("/etc/passwd") && reason.contains("preserve"), "{reason}");
    let (report, lines) = copy(temp.path(), TreeOptions { links: Symlinks::Drop, ..options() }).await;
    assert_eq!(lines, ["755 d", "644 d/file"]);
    assert_eq!(report.unwrap().left_out.len(), 4);
}

#[tokio::test]
async fn a_fifo_is_left_out_and_does_not_block() {
    let temp = tempfile::tempdir().unwrap();
    write(temp.path(), "file", "x");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        temp.path().join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let (report, lines) = copy(temp.path(), options()).await;
    assert_eq!(lines, ["644 file"]);
    assert_eq!(report.unwrap().left_out.len(), 1);
    let pipe = Roots::new(temp.path()).open(Path::new("pipe")).unwrap();
    let (report, _) = take(file(File::from(pipe), b"pipe".to_vec(), 0o644, 10)).await;
    assert!(fault(report).1.contains("not a regular file"));
}

#[tokio::test]
async fn a_sparse_terabyte_is_refused_before_it_is_read() {
    let temp = tempfile::tempdir().unwrap();
    File::create(temp.path().join("sparse")).unwrap().set_len(1 << 40).unwrap();
    let (path, reason) = fault(copy(temp.path(), TreeOptions { max_bytes: 1 << 34, ..options() }).await.0);
    assert!(path == "sparse" && reason.contains("max_bytes"), "{reason}");
}

#[tokio::test]
async fn a_file_that_shrinks_while_it_is_read_is_an_error() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("shrinks");
    fs::write(&path, vec![1; 8 << 20]).unwrap();
    let opened = Roots::new(temp.path()).open(Path::new("shrinks")).unwrap();
    let mut feed = file(File::from(opened), b"shrinks".to_vec(), 0o644, 1 << 30);
    // Only a few pieces are read ahead, so most of the file is not read yet, but its size is already known.
    let first = feed.tar.next().await.unwrap();
    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    let tar = Box::pin(stream::iter([first]).chain(feed.tar));
    let (report, _) = take(Feed { tar, report: feed.report }).await;
    assert!(fault(report).1.contains("path_changed_during_copy"));
}

#[tokio::test]
async fn dropping_the_stream_stops_reading() {
    let temp = tempfile::tempdir().unwrap();
    for at in 0..50 {
        write(temp.path(), &format!("f{at}"), vec![0; 1 << 20]);
    }
    let feed = tree(Roots::new(temp.path()).open(Path::new(".")).unwrap(), options());
    drop(feed.tar);
    assert!(feed.report.await.unwrap().is_err());
}
