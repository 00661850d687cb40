//! Archives on a real machine: what is already there cannot lead one outside.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test")]

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use sandbar_clients::UnixLocal;
use sandbar_machine::{
    Access, ByteStream, Machine, MachinePath, MachineSpec, SandboxClient, Target, Workspace, collect, once,
    tar::{Kind, Member, end, padding},
};
use sandbar_sandbox::{
    ArchiveLimits,
    archive::{Format, Links, Policy, check},
};

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("took longer than a minute")
}

async fn machine_at(directory: &Path) -> Arc<dyn Machine> {
    let workspace = Workspace::Host { path: directory.to_owned(), access: Access::ReadWrite };
    soon(UnixLocal::new().create(MachineSpec::default().workspace(workspace))).await.expect("create")
}

/// A workspace in a directory that holds nothing else, so that whatever gets out of it is seen there.
fn workspace_below() -> (tempfile::TempDir, PathBuf) {
    let above = tempfile::tempdir().expect("tempdir");
    let workspace = above.path().join("workspace");
    std::fs::create_dir(&workspace).expect("create");
    (above, workspace)
}

fn root() -> Target {
    Target::from(MachinePath::workspace()).beneath(MachinePath::workspace())
}

fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (path, content) in files {
        let mut member = Member::new(Kind::File, path.as_bytes(), 0o644);
        member.size = content.len() as u64;
        out.extend_from_slice(&member.encode());
        out.extend_from_slice(content.as_bytes());
        out.resize(out.len() + padding(member.size), 0);
    }
    out.extend_from_slice(&end());
    out
}

async fn checked(archive: Vec<u8>) -> ByteStream {
    let policy = Policy { links: Links::KeepInside, ..Policy::default() };
    let checked = soon(check(once(archive), Format::Tar, &ArchiveLimits::default(), &policy, "a.tar")).await;
    checked.expect("the archive itself is fine").into_tar()
}

#[tokio::test]
async fn a_link_in_the_place_of_a_parent_is_not_followed() {
    let outside = tempfile::tempdir().expect("tempdir");
    let (above, workspace) = workspace_below();
    std::fs::write(outside.path().join("file"), "kept").expect("write");
    symlink("/etc", workspace.join("system")).expect("link");
    symlink(outside.path(), workspace.join("out")).expect("link");
    symlink("..", workspace.join("up")).expect("link");
    let machine = machine_at(&workspace).await;
    for path in ["system/passwd", "out/file", "out/new", "up/new"] {
        let archive = tar(&[("first", "x"), (path, "evil")]);
        soon(machine.unpack(&root(), checked(archive).await)).await.expect_err(path);
    }
    let inside = Target::from(MachinePath::new("/etc/passwd").expect("path"));
    let passwd = soon(async { collect(machine.read(&inside).await?, 1 << 20).await }).await.expect("read");
    assert!(!passwd.windows(4).any(|part| part == b"evil"));
    assert_eq!(std::fs::read_to_string(outside.path().join("file")).expect("read"), "kept");
    assert_eq!(std::fs::read_dir(outside.path()).expect("list").count(), 1);
    assert!(!above.path().join("new").exists());
    soon(machine.stop()).await.expect("stop");
}

#[tokio::test]
async fn a_link_in_the_place_of_a_file_is_replaced() {
    let (outside, workspace) = (tempfile::tempdir().expect("tempdir"), tempfile::tempdir().expect("tempdir"));
    let victim = outside.path().join("file");
    std::fs::write(&victim, "kept").expect("write");
    symlink(&victim, workspace.path().join("link")).expect("link");
    let machine = machine_at(workspace.path()).await;
    soon(machine.unpack(&root(), checked(tar(&[("link", "new")])).await)).await.expect("unpack");
    assert_eq!(std::fs::read_to_string(&victim).expect("read"), "kept");
    assert_eq!(std::fs::read_to_string(workspace.path().join("link")).expect("read"), "new");
    assert!(!workspace.path().join("link").is_symlink());
    soon(machine.stop()).await.expect("stop");
}

#[tokio::test]
async fn a_bad_archive_writes_nothing_when_it_is_checked_first_and_never_outside() {
    let (above, workspace) = workspace_below();
    let machine = machine_at(&workspace).await;
    let archive = tar(&[("good", "x"), ("../evil", "x")]);
    let (limits, policy) = (ArchiveLimits::default(), Policy::default());
    let error = soon(check(once(archive.clone()), Format::Tar, &limits, &policy, "a.tar")).await.expect_err("refused");
    assert_eq!((error.code(), &error.context()["member"]), ("archive_refused", &"../evil".into()));
    assert_eq!(std::fs::read_dir(&workspace).expect("list").count(), 0);
    // An archive that was not checked before is judged by the machine.
    soon(machine.unpack(&root(), once(archive))).await.expect_err("refused");
    assert!(!above.path().join("evil").exists());
    soon(machine.stop()).await.expect("stop");
}
