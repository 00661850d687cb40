//! The POSIX fallbacks on ordinary processes of this host, with GNU tools and, where it is installed, with busybox.
//!
//! The machine here is no sandbox and has no walls. It gives the fallbacks real tools to run, and shows that the suite
//! asks for nothing impossible.

#![allow(clippy::unwrap_used, reason = "a test's own machinery may fail by panicking")]

mod host {
    pub(crate) mod machine;
    pub(crate) mod process;
}

use std::{collections::BTreeMap, os::unix::fs::symlink, panic::AssertUnwindSafe, process::Command};

use futures::FutureExt;
use sandbar_machine::{
    BareClient, SandboxClient,
    conformance::{Group, Need, Promise, Verdict, promises},
};

use self::host::machine::HostClient;

/// Ordinary processes are not isolated, and this machine does not pretend that they are.
const TAKES_WALLS: [&str; 1] = ["features_tell_the_truth"];

async fn keeps(client: &dyn SandboxClient, chosen: impl Fn(&Promise) -> bool) {
    let kept = promises().into_iter().filter(|promise| !TAKES_WALLS.contains(&promise.name));
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
async fn ordinary_processes_keep_all_other_promises() {
    keeps(&HostClient::new(), |promise| promise.group != Group::Files).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_without_input_and_terminals_keeps_the_rest_and_says_what_it_lacks() {
    let client = BareClient::new(HostClient::without_input());
    let mut lacking = BTreeMap::new();
    for promise in promises() {
        let is_short = promise.group == Group::Files || promise.needs.len() > 1 || promise.name.contains("lacks");
        if !is_short || TAKES_WALLS.contains(&promise.name) {
            continue;
        }
        if let Verdict::Lacking(what) = promise.check(&client).await {
            lacking.entry(what).or_insert_with(Vec::new).push(promise.name);
        }
    }
    let count = |what: &str| lacking.get(what).map_or(0, Vec::len);
    let of = |need| promises().iter().filter(|promise| promise.needs.get(1) == Some(&need)).count();
    assert_eq!(count("standard input"), of(Need::Stdin), "{lacking:#?}");
    assert_eq!(count("terminals"), of(Need::Terminals), "{lacking:#?}");
    assert!(lacking.values().flatten().all(|name| *name != "a_tree_survives_packing_and_unpacking"), "{lacking:#?}");
}
