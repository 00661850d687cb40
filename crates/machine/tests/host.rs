//! The POSIX fallbacks on ordinary processes of this host, with GNU tools and, where it is installed, with busybox.
//!
//! The machine here is no sandbox and has no walls: it exists to give the fallbacks real tools to run.

#![allow(clippy::unwrap_used, reason = "a test's own machinery may fail by panicking")]

mod host {
    pub(crate) mod machine;
}

use std::{os::unix::fs::symlink, panic::AssertUnwindSafe, process::Command, sync::Arc};

use futures::FutureExt;
use host::machine::HostClient;
use sandbar_machine::{
    BareClient, SandboxClient, Traced,
    conformance::{Group, Promise, promises},
};

/// Promises that take walls, terminals or a process that adopts orphans, which ordinary processes do not have.
const TAKES_A_REAL_MACHINE: [&str; 6] = [
    "a_kill_reaches_daemons",
    "dropping_control_kills_the_tree",
    "a_deadline_kills_the_tree",
    "stopping_ends_every_process",
    "dropping_a_machine_ends_its_processes",
    "features_tell_the_truth",
];

async fn keeps(client: &dyn SandboxClient, chosen: impl Fn(&Promise) -> bool) {
    let kept = promises().into_iter().filter(|promise| !TAKES_A_REAL_MACHINE.contains(&promise.name));
    let mut broken = Vec::new();
    for promise in kept.filter(chosen) {
        if AssertUnwindSafe(promise.check(client)).catch_unwind().await.is_err() {
            broken.push(promise.name);
        }
    }
    assert!(broken.is_empty(), "broken promises: {broken:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fallbacks_keep_the_promises_about_files_with_gnu_tools() {
    keeps(&BareClient::new(HostClient::new()), |promise| promise.group == Group::Files).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fallbacks_keep_the_promises_about_files_with_busybox() {
    let Ok(found) = Command::new("sh").args(["-c", "command -v busybox"]).output() else { return };
    let busybox = String::from_utf8(found.stdout).unwrap();
    let Some(busybox) = busybox.lines().next() else {
        println!("skipped: there is no busybox here");
        return;
    };
    let tools = tempfile::tempdir().unwrap();
    let applets = Command::new(busybox).arg("--list").output().unwrap();
    for name in String::from_utf8(applets.stdout).unwrap().lines() {
        symlink(busybox, tools.path().join(name)).unwrap();
    }
    keeps(&BareClient::new(HostClient::with_tools(tools.path())), |promise| promise.group == Group::Files).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordinary_processes_keep_the_other_promises() {
    keeps(&HostClient::new(), |promise| promise.group != Group::Files).await;
}

#[tokio::test]
async fn a_traced_machine_is_the_same_machine() {
    let machine = HostClient::new().create(Default::default()).await.unwrap();
    let traced = Traced::new(Arc::clone(&machine));
    assert_eq!(sandbar_machine::Machine::handle(&traced), machine.handle());
}
