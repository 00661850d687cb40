//! What goes wrong around a session: a full disk, files that cannot be read, mounts that must hold, floods of output.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test")]

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command, sync::Arc, time::Duration};

use sandbar_clients::UnixLocal;
use sandbar_machine::{Access, MachinePath, MachineSpec, Workspace};
use sandbar_sandbox::{
    Exec, File, LocalDir, Manifest, Mount, PathGrant, SandboxSession, SessionLimits, SessionOptions, Symlinks,
    processes::{ExecCommandArgs, WriteStdinArgs},
};

async fn open(manifest: Manifest) -> Result<SandboxSession, sandbar_sandbox::SandboxError> {
    SandboxSession::open(Arc::new(UnixLocal::new()), SessionOptions::new(manifest)).await
}

/// A file system of a few megabytes, unmounted again at the end.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let options = ["-t", "tmpfs", "-o", "size=4m,mode=755", "tmpfs"];
        assert!(Command::new("mount").args(options).arg(place.path()).status().unwrap().success());
        Self(place)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

#[tokio::test]
async fn a_full_disk_is_an_error_and_leaves_no_session() {
    let disk = SmallDisk::new();
    let client = Arc::new(UnixLocal::new().state_dir(disk.path().join("state")));
    let manifest = (0..100).fold(Manifest::new(), |all, at| all.file(format!("f{at}"), vec![7; 100_000]));
    let error = SandboxSession::open(client, SessionOptions::new(manifest)).await.unwrap_err();
    assert_eq!(error.code(), "workspace_archive_write_error");
    assert_eq!(error.context()["reason"], "exhausted");
    let left: Vec<_> = fs::read_dir(disk.path().join("state")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_patch_on_a_full_disk_changes_nothing() {
    let disk = SmallDisk::new();
    let machine =
        MachineSpec::default().workspace(Workspace::Host { path: disk.path().to_owned(), access: Access::ReadWrite });
    let options = SessionOptions::new(Manifest::new().file("a", "old\n")).machine(machine);
    let session = SandboxSession::open(Arc::new(UnixLocal::new()), options).await.unwrap();
    session.write("filler", vec![1; 3_500_000]).await.unwrap();
    let large = "+0123456789012345678901234567890123456789\n".repeat(40_000);
    let patch = format!("*** Begin Patch\n*** Update File: a\n@@\n-old\n+new\n*** Add File: b\n{large}*** End Patch\n");
    let error = session.apply_patch(&patch, Default::default()).await.unwrap_err();
    assert_eq!((error.code(), &error.context()["undone"]), ("apply_patch_write_error", &true.into()), "{error:?}");
    assert_eq!(session.read("a").await.unwrap(), "old\n");
    assert!(session.stat("b").await.unwrap().is_none());
    session.delete().await.unwrap();
}

#[tokio::test]
async fn a_workspace_that_does_not_fit_stays_as_it_is() {
    let disk = SmallDisk::new();
    let machine =
        MachineSpec::default().workspace(Workspace::Host { path: disk.path().to_owned(), access: Access::ReadWrite });
    let options = SessionOptions::new(Manifest::new().file("a", "old").file("d/b", "too")).machine(machine);
    let session = SandboxSession::open(Arc::new(UnixLocal::new()), options).await.unwrap();
    session.write("large", vec![7; 2_500_000]).await.unwrap();
    // Both the old and the new do not fit beside each other.
    let packed = sandbar_machine::collect(session.persist_workspace().await.unwrap(), 8 << 20).await.unwrap();
    session.write("a", "edited").await.unwrap();
    let error = session.hydrate_workspace(sandbar_machine::once(packed)).await.unwrap_err();
    assert_eq!((error.code(), &error.context()["reason"]), ("workspace_archive_write_error", &"exhausted".into()));
    let names = session.exec(Exec::shell("find . -type f | sort")).await.unwrap().stdout_text();
    assert_eq!(names, "./a\n./d/b\n./large\n", "something is lost, or left behind");
    assert_eq!(session.read("a").await.unwrap(), "edited");
    session.delete().await.unwrap();
}

#[tokio::test]
async fn a_mount_is_read_only_because_the_kernel_says_so() {
    let host = tempfile::tempdir().unwrap();
    fs::create_dir(host.path().join("data")).unwrap();
    fs::write(host.path().join("data/f"), "kept").unwrap();
    fs::set_permissions(host.path().join("data"), fs::Permissions::from_mode(0o777)).unwrap();
    let manifest = Manifest::new()
        .mount("ro", Mount::new("data"))
        .mount("rw", Mount::new("data").writable())
        .base_dir(host.path());
    let session = open(manifest).await.unwrap();
    assert_eq!(session.read("ro/f").await.unwrap(), "kept");
    assert_eq!(session.write("ro/new", "x").await.unwrap_err().code(), "workspace_archive_write_error");
    let tries = "echo x > ro/f; rm ro/f; touch ro/new; mount -o remount,rw ro; chmod 777 ro/f";
    let tried = session.exec(Exec::shell(tries)).await.unwrap();
    assert!(tried.stderr_text().contains("Read-only"), "{tried:?}");
    assert_eq!(fs::read_to_string(host.path().join("data/f")).unwrap(), "kept");
    session.exec(Exec::shell("echo y > rw/new")).await.unwrap().check().unwrap();
    assert_eq!(fs::read_to_string(host.path().join("data/new")).unwrap(), "y\n");
    session.delete().await.unwrap();
    assert!(host.path().join("data/f").exists(), "what was mounted was removed");
}

#[tokio::test]
async fn a_granted_path_is_what_was_granted() {
    let host = tempfile::tempdir().unwrap();
    fs::create_dir(host.path().join("granted")).unwrap();
    fs::write(host.path().join("granted/f"), "x").unwrap();
    let grant = PathGrant::new(MachinePath::new("/data").unwrap()).host_path(host.path().join("granted")).read_only();
    let session = open(Manifest::new().grant(grant)).await.unwrap();
    assert_eq!(session.read("/data/f").await.unwrap(), "x");
    let refused = session.write("/data/f", "y").await.unwrap_err();
    assert_eq!(refused.context()["reason"], "read_only_extra_path_grant");
    assert!(!session.exec(Exec::shell("echo y > /data/f")).await.unwrap().success());
    assert_eq!(session.read("/etc/passwd").await.unwrap_err().code(), "invalid_manifest_path");
    let saved = serde_json::to_string(&session.state()).unwrap();
    assert!(!saved.contains(host.path().to_str().unwrap()), "a host path was saved: {saved}");
    session.delete().await.unwrap();
}

#[tokio::test]
async fn sources_outside_what_was_granted_are_refused() {
    let host = tempfile::tempdir().unwrap();
    fs::create_dir_all(host.path().join("base")).unwrap();
    fs::write(host.path().join("secret"), "x").unwrap();
    for manifest in [
        Manifest::new().local_dir("d", LocalDir::new("..")),
        Manifest::new().local_dir("d", LocalDir::new("/etc")),
        Manifest::new().mount("d", Mount::new("../secret")),
    ] {
        let error = open(manifest.base_dir(host.path().join("base"))).await.unwrap_err();
        assert!(error.context()["reason"].to_string().contains("outside_base_dir"), "{error:?}");
        assert!(error.to_string().contains("neither below") && !error.to_string().contains('_'), "{error}");
    }
}

#[tokio::test]
async fn a_link_that_leads_out_is_named() {
    let host = tempfile::tempdir().unwrap();
    fs::write(host.path().join("fine"), "x").unwrap();
    fs::create_dir(host.path().join("link")).unwrap();
    std::os::unix::fs::symlink("/etc/shadow", host.path().join("link/shadow")).unwrap();
    let entry = LocalDir::new(".").symlinks(Symlinks::Reject);
    let error = open(Manifest::new().local_dir("d", entry).base_dir(host.path())).await.unwrap_err();
    assert_eq!((error.code(), &error.context()["child"]), ("local_dir_read_error", &"link/shadow".into()));
}

#[tokio::test]
async fn a_flood_of_output_costs_little_and_ends_with_its_process() {
    let session = open(Manifest::new()).await.unwrap();
    let update = session.processes().exec_command(ExecCommandArgs::new("yes flood").yield_time_ms(1000)).await.unwrap();
    let id = update.process_id.expect("it runs on");
    assert!(update.output.len() <= 40_000, "{} bytes", update.output.len());
    let before = resident();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
    let mut update =
        session.processes().write_stdin(WriteStdinArgs::new(id, "\u{3}").yield_time_ms(30_000)).await.unwrap();
    if update.process_id.is_some() {
        update = session.processes().write_stdin(WriteStdinArgs::poll(id).yield_time_ms(60_000)).await.unwrap();
    }
    assert_eq!(update.exit_code, Some(130), "{:?}", update.exit_code);
    session.delete().await.unwrap();
}

/// Bytes of memory this process has.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[tokio::test]
async fn ten_gigabytes_from_one_command_are_bounded() {
    let session = open(Manifest::new()).await.unwrap();
    let before = resident();
    let result = session.exec(Exec::shell("head -c 10G /dev/zero").output_limit(1 << 20)).await.unwrap();
    assert_eq!(result.stdout_omitted + result.stdout.len() as u64, 10 << 30);
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
    session.delete().await.unwrap();
}

#[tokio::test]
async fn a_start_that_is_dropped_half_way_leaves_nothing() {
    let host = tempfile::tempdir().unwrap();
    for at in 0..2000 {
        fs::write(host.path().join(format!("f{at}")), vec![1; 20_000]).unwrap();
    }
    let state = tempfile::tempdir().unwrap();
    let client = Arc::new(UnixLocal::new().state_dir(state.path().join("s")));
    let manifest = Manifest::new().local_dir("d", LocalDir::new(".")).base_dir(host.path());
    for after in [1, 5, 20, 50] {
        let opening = SandboxSession::open(client.clone(), SessionOptions::new(manifest.clone()));
        let _cut_off = tokio::time::timeout(Duration::from_millis(after), opening).await;
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        loop {
            let left = fs::read_dir(state.path().join("s")).map_or(0, Iterator::count);
            if left == 0 {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "{left} machines are left after {after} ms");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn limits_of_time_hold_for_a_whole_start() {
    let host = tempfile::tempdir().unwrap();
    fs::File::create(host.path().join("large")).unwrap().set_len(8 << 30).unwrap();
    let manifest = Manifest::new().local_dir("d", LocalDir::new(".")).base_dir(host.path());
    let limits = SessionLimits { transfer: Duration::from_millis(200), ..SessionLimits::default() };
    let options = SessionOptions::new(manifest).limits(limits);
    let error = SandboxSession::open(Arc::new(UnixLocal::new()), options).await.unwrap_err();
    assert_eq!(error.code(), "operation_timeout");
}

#[tokio::test]
async fn an_entry_below_a_planted_link_is_refused() {
    let outside = tempfile::tempdir().unwrap();
    let workspace = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), workspace.path().join("d")).unwrap();
    std::os::unix::fs::symlink("/tmp", workspace.path().join("t")).unwrap();
    for path in ["d/file", "t/file"] {
        let machine = MachineSpec::default()
            .workspace(Workspace::Host { path: workspace.path().to_owned(), access: Access::ReadWrite });
        let options = SessionOptions::new(Manifest::new().entry(path, File::new("x"))).machine(machine);
        let error = SandboxSession::open(Arc::new(UnixLocal::new()), options).await.unwrap_err();
        assert_eq!(error.code(), "workspace_archive_write_error", "{path}: {error:?}");
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn cloud_mounts_are_refused_before_anything_is_made() {
    let text = r#"{"entries": {"b": {"type": "s3_mount", "bucket": "x", "mount_strategy": {"type": "in_container", "pattern": {"type": "rclone"}}}}}"#;
    let error = open(Manifest::from_json(text).unwrap()).await.unwrap_err();
    assert_eq!(error.code(), "mount_config_invalid");
}

#[tokio::test]
async fn users_and_groups_are_made_or_refused_with_the_reason() {
    let with = |isolation| {
        let manifest = Manifest::new().user(sandbar_sandbox::User::new("ada"));
        let machine = MachineSpec::default().isolation(isolation);
        SandboxSession::open(Arc::new(UnixLocal::new()), SessionOptions::new(manifest).machine(machine))
    };
    let weak = with(sandbar_machine::Demand::None).await.unwrap_err();
    assert_eq!(weak.code(), "account_unavailable");
    assert!(weak.to_string().contains("namespaces") && weak.to_string().contains("--isolation full"), "{weak}");
    match with(sandbar_machine::Demand::Full).await {
        Ok(session) => {
            assert!(rustix::process::geteuid().is_root());
            session.delete().await.unwrap();
        }
        Err(error) => {
            assert!(!rustix::process::geteuid().is_root(), "{error}");
            assert_eq!(error.code(), "account_unavailable");
            assert!(error.to_string().contains("\"ada\"") && error.to_string().contains("as root"), "{error}");
        }
    }
}
