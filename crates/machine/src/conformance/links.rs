//! Promises about symbolic links, and about the directory an operation must not leave.

use std::ffi::OsStr;

use super::rig::{Rig, archive, soon};
use crate::{EntryKind, MachineError, MachinePath, Result, SandboxClient, ScanOptions, once};

/// A link is shown as the link it is, even when it leads nowhere.
pub async fn a_link_is_described_not_followed(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.link("dangling", "no/where").await;
    rig.link("out", "/etc/../etc/passwd").await;
    let entry = rig.stat("dangling").await.expect("the link is there");
    assert_eq!((entry.kind, entry.link.as_deref()), (EntryKind::Symlink, Some(OsStr::new("no/where"))));
    assert_eq!(rig.stat("out").await.expect("the link is there").link, Some("/etc/../etc/passwd".into()));
}

/// Reading follows links, as the machine itself would.
pub async fn a_file_is_read_through_a_link(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("dir/file", "found").await;
    rig.link("to-file", "dir/file").await;
    rig.link("to-dir", "./dir").await;
    assert_eq!(rig.get("to-file").await, "found");
    assert_eq!(rig.get("to-dir/file").await, "found");
    let listed = soon("list", rig.machine.list(&rig.at("to-dir"))).await.expect("it is listed");
    assert_eq!(listed.len(), 1);
    rig.put("to-dir/new", "written").await;
    assert_eq!(rig.get("dir/new").await, "written");
}

/// A link where a file should be written is refused, and what it points to is not touched.
pub async fn a_link_is_never_written_through(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("file", "kept").await;
    rig.link("link", "file").await;
    rig.link("dangling", "nowhere").await;
    for name in ["link", "dangling"] {
        assert_eq!(rig.put_fails(&rig.at(name)).await.code(), "denied");
        assert_eq!(rig.stat(name).await.expect("it is there").kind, EntryKind::Symlink);
    }
    assert_eq!((rig.get("file").await, rig.stat("nowhere").await), ("kept".into(), None));
}

/// Removing a link removes the link.
pub async fn removing_a_link_spares_its_target(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("dir/file", "kept").await;
    rig.link("link", "dir").await;
    rig.link("tree/link", "../dir").await;
    for path in ["link", "tree"] {
        soon("remove", rig.machine.remove(&rig.at(path))).await.expect("it is removed");
        assert_eq!(rig.stat(path).await, None);
    }
    assert_eq!(rig.get("dir/file").await, "kept");
}

/// Renaming a link moves the link; renaming onto one replaces it.
pub async fn a_link_is_renamed_as_a_link(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("dir/file", "kept").await;
    rig.link("link", "dir").await;
    soon("rename", rig.machine.rename(&rig.at("link"), &rig.at("moved"))).await.expect("it is renamed");
    assert_eq!(rig.stat("moved").await.expect("it is there").link, Some("dir".into()));
    rig.put("new", "replaced").await;
    soon("rename", rig.machine.rename(&rig.at("new"), &rig.at("moved"))).await.expect("it is renamed");
    assert_eq!(rig.stat("moved").await.expect("it is there").kind, EntryKind::File);
    assert_eq!(rig.stat("dir/new").await, None);
}

/// Links that stay inside are no reason to refuse.
pub async fn beneath_allows_links_that_stay_inside(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("dir/deep/file", "found").await;
    rig.link("dir/back", "../dir/deep").await;
    assert_eq!(rig.read(&rig.beneath("dir/back/file")).await.expect("it stays inside"), "found");
    soon("write", rig.machine.write(&rig.beneath("dir/back/new"), once("x"))).await.expect("it stays inside");
    soon("make_dir", rig.machine.make_dir(&rig.beneath("dir/back/more/still"))).await.expect("it stays inside");
    let listed = soon("list", rig.machine.list(&rig.beneath("dir/back"))).await.expect("it stays inside");
    assert_eq!(listed.len(), 3);
    assert!(soon("stat", rig.machine.stat(&rig.beneath(""))).await.expect("the root itself is inside").is_some());
}

fn denied<T: std::fmt::Debug>(what: &str, result: Result<T>) {
    match result {
        Err(MachineError::Denied { .. }) => {}
        other => panic!("{what} should be denied: {other:?}"),
    }
}

/// A link out of the directory is refused by every operation, upwards or absolute, near or far along the path.
pub async fn beneath_refuses_links_that_lead_out(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("outside/secret/file", "kept").await;
    rig.put("root/mine", "mine").await;
    rig.link("root/up", "../outside").await;
    rig.link("root/hop", "up/secret").await;
    let outside = rig.path("outside");
    rig.link("root/absolute", outside.as_os_str()).await;
    let root = rig.path("root");
    for path in ["root/up/secret", "root/hop/file", "root/absolute/secret"] {
        every_operation_is_denied(&rig, &root, path).await;
    }
    rig.link("root/last", "up/secret/file").await;
    denied("read", rig.read(&rig.at("root/last").beneath(root)).await);
    assert_eq!((rig.get("outside/secret/file").await, rig.get("root/mine").await), ("kept".into(), "mine".into()));
}

/// Tries every operation on a target that must not be reached.
async fn every_operation_is_denied(rig: &Rig, root: &MachinePath, path: &str) {
    let target = rig.at(path).beneath(root.clone());
    let machine = &rig.machine;
    denied("read", rig.read(&target).await);
    denied("write", soon("write", machine.write(&target, once("x"))).await);
    denied("stat", soon("stat", machine.stat(&target)).await);
    denied("list", soon("list", machine.list(&target)).await);
    denied("make_dir", soon("make_dir", machine.make_dir(&target)).await);
    denied("remove", soon("remove", machine.remove(&target)).await);
    let mine = rig.at("root/mine").beneath(root.clone());
    denied("rename from", soon("rename", machine.rename(&target, &mine)).await);
    denied("rename to", soon("rename", machine.rename(&mine, &target)).await);
    denied("scan", soon("scan", machine.scan(&target, &ScanOptions::default())).await);
    denied("pack", soon("pack", machine.pack(&target, &[])).await.map(|_stream| ()));
    let empty = once(archive(&[]));
    denied("unpack", soon("unpack", machine.unpack(&target, empty)).await);
}

/// A path that is not below the directory by its letters is refused as well.
pub async fn beneath_refuses_paths_elsewhere(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("root/mine", "mine").await;
    rig.put("rootless", "kept").await;
    rig.put("elsewhere/file", "kept").await;
    for path in ["rootless", "elsewhere/file"] {
        every_operation_is_denied(&rig, &rig.path("root"), path).await;
    }
    assert_eq!((rig.get("rootless").await, rig.get("elsewhere/file").await), ("kept".into(), "kept".into()));
}

/// Links in a circle end in an error, soon.
pub async fn a_circle_of_links_is_an_error(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.link("one", "two").await;
    rig.link("two", "one").await;
    rig.read(&rig.at("one")).await.expect_err("it leads nowhere");
    rig.read(&rig.at("one/file")).await.expect_err("it leads nowhere");
    rig.put_fails(&rig.at("one/file")).await;
}
