//! The suite that every client passes, on images that have little in common.

use futures::StreamExt;
use sandbar_clients::Docker;
use sandbar_machine::conformance::{Group, Needs, Promise, promises};

use crate::bench::{BUSYBOX, DEBIAN, EMPTY, client, has_engine, nonroot};

/// Machines that are tried at the same time.
const AT_ONCE: usize = 3;

/// Promises whose far end is a program in Python.
const PYTHON: [&str; 5] = [
    "a_port_is_reached_by_every_holder",
    "a_declared_port_is_reachable",
    "either_side_of_a_connection_can_close_first",
    "a_port_dies_with_its_machine",
    "a_port_nobody_listens_on_closes",
];

/// Checks some promises, and says of every broken one how.
async fn keep(client: Docker, wanted: impl Fn(&Promise) -> bool) {
    if !has_engine().await {
        return;
    }
    let checked = promises().into_iter().filter(wanted).map(|promise| {
        let client = client.clone();
        async move { (promise.name, tokio::spawn(async move { promise.check(&client).await }).await) }
    });
    let outcomes: Vec<_> = futures::stream::iter(checked).buffer_unordered(AT_ONCE).collect().await;
    let broken: Vec<_> = outcomes.iter().filter(|(_, outcome)| outcome.is_err()).map(|(name, _)| *name).collect();
    assert!(broken.is_empty(), "broken: {broken:?}");
    println!("{} promises kept", outcomes.len());
    assert!(!outcomes.is_empty());
}

/// One test for each group of promises, so that they run side by side.
macro_rules! suite {
    ($name:ident, $client:expr, $wanted:expr) => {
        mod $name {
            use super::*;

            async fn keep_all(group: Group) {
                let wanted: fn(&Promise) -> bool = $wanted;
                keep($client, |promise| promise.group == group && wanted(promise)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn processes() {
                keep_all(Group::Processes).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn files() {
                keep_all(Group::Files).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn terminals() {
                keep_all(Group::Terminals).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn ports() {
                keep_all(Group::Ports).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn lifetime() {
                keep_all(Group::Lifetime).await;
            }
        }
    };
}

suite!(debian, client(DEBIAN), |_| true);
suite!(debian_as_root, client(DEBIAN).user("root"), |_| true);
suite!(busybox, client(BUSYBOX), |promise| !PYTHON.contains(&promise.name));
suite!(another_user, nonroot(), |_| true);
suite!(read_only, client(DEBIAN).read_only(), |_| true);

/// Nothing can be run where there is nothing; files, lifetimes and errors are the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_image_keeps_what_needs_no_commands() {
    keep(client(EMPTY), |promise| promise.needs == Needs::Files).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_image_keeps_what_needs_no_commands() {
    keep(client(EMPTY).read_only(), |promise| promise.needs == Needs::Files).await;
}
