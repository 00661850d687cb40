//! The POSIX fallbacks on ordinary processes of this host, with GNU tools and, where it is installed, with busybox.
//!
//! The machine here is no sandbox and has no walls. It gives the fallbacks real tools to run, and shows that the suite
//! asks for nothing impossible.

#![allow(clippy::unwrap_used, reason = "a test's own machinery may fail by panicking")]

mod host {
    pub(crate) mod machine;
    pub(crate) mod process;
}

use std::{collections::BTreeMap, os::unix::fs::symlink, panic::AssertUnwindSafe, process::Command, time::Duration};

use futures::FutureExt;
use sandbar_machine::{
    BareClient, MachineSpec, Output, SandboxClient, Signal, Target,
    conformance::{Group, Need, Promise, Verdict, promises},
    posix,
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

/// A directory with every tool of busybox; `None` where it is not installed.
fn busybox() -> Option<tempfile::TempDir> {
    let found = Command::new("sh").args(["-c", "command -v busybox"]).output().ok()?;
    let busybox = String::from_utf8(found.stdout).unwrap().lines().next()?.to_owned();
    let tools = tempfile::tempdir().unwrap();
    let applets = Command::new(&busybox).arg("--list").output().unwrap();
    for name in String::from_utf8(applets.stdout).unwrap().lines() {
        symlink(&busybox, tools.path().join(name)).unwrap();
    }
    Some(tools)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fallbacks_keep_the_promises_about_files_with_busybox() {
    let Some(tools) = busybox() else {
        println!("skipped: there is no busybox here");
        return;
    };
    keeps(&BareClient::new(HostClient::with_tools(tools.path())), |promise| promise.group == Group::Files).await;
}

/// The groups that [`posix::launch`], [`posix::read`] and [`posix::place`] are about.
fn is_about_hosted(promise: &Promise) -> bool {
    matches!(promise.group, Group::Files | Group::Processes | Group::Terminals)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_hosted_clients_share_keeps_the_promises_with_gnu_tools() {
    keeps(&BareClient::new(HostClient::new().hosted()), is_about_hosted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_hosted_clients_share_keeps_the_promises_with_busybox() {
    let Some(tools) = busybox() else {
        println!("skipped: there is no busybox here");
        return;
    };
    let client = BareClient::new(HostClient::with_tools(tools.path()).hosted());
    keeps(&client, |promise| promise.group == Group::Files).await;
}

async fn a_tree_is_signalled(name: &str, client: HostClient) {
    let machine = client.create(MachineSpec::default()).await.unwrap();
    let tree = format!("{name}-{}", std::process::id());
    let daemon = "( setsid sh -c 'while :; do echo x >>beat; sleep 0.05; done' </dev/null >/dev/null 2>&1 & )";
    let launched = posix::launch(&sandbar_machine::Command::new(["sh", "-c", daemon]), &tree).unwrap();
    let command = sandbar_machine::Command { env: vec![], ..sandbar_machine::Command::new(launched.argv) };
    let command = launched.env.into_iter().fold(command, |command, (name, value)| command.env(name, value));
    let run = async |command| {
        let mut process = machine.spawn(command).await.unwrap();
        while let Some(output) = process.output.recv().await {
            if let Output::Exit(exit) = output.unwrap() {
                return exit.code;
            }
        }
        panic!("no exit");
    };
    assert_eq!(run(command).await, 0);
    let beat = Target::from(machine.features().workspace.join("beat").unwrap());
    let size = async || machine.stat(&beat).await.unwrap().map_or(0, |entry| entry.size);
    while size().await == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(run(posix::signal_tree("another", Signal::Kill)).await, 0);
    let before = size().await;
    while size().await == before {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(run(posix::signal_tree(&tree, Signal::Kill)).await, 0);
    let after = size().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(size().await, after, "it was killed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_is_found_by_its_environment_with_gnu_tools() {
    a_tree_is_signalled("gnu", HostClient::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_is_found_by_its_environment_with_busybox() {
    let Some(tools) = busybox() else {
        println!("skipped: there is no busybox here");
        return;
    };
    a_tree_is_signalled("busybox", HostClient::with_tools(tools.path())).await;
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
