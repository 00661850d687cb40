//! The suite that every client passes, on very different images.

use futures::StreamExt;
use sandbar_clients::Docker;
use sandbar_machine::conformance::{Group, Need, Promise, Verdict, promises};

use crate::bench::{BUSYBOX, DEBIAN, EMPTY, client, has_engine, nonroot};

/// Number of machines that are tried at the same time.
const AT_ONCE: usize = 3;

/// What a container lacks if its user was chosen: other users.
const ONE_USER: [&str; 1] = ["several users"];

/// Promises whose test needs Python in the image.
const PYTHON: [&str; 5] = [
    "a_port_is_reached_by_every_holder",
    "a_declared_port_is_reachable",
    "either_side_of_a_connection_can_close_first",
    "a_port_dies_with_its_machine",
    "a_port_nobody_listens_on_closes",
];

/// Checks some promises on machines that may lack these features, and prints how each broken one fails.
async fn keep(client: Docker, lacks: &[&str], wanted: impl Fn(&Promise) -> bool) {
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
    let lack = |(name, outcome): &(&str, Result<Verdict, _>)| match outcome {
        Ok(Verdict::Lacking(what)) if !lacks.contains(&what.as_str()) => Some(format!("{name}: {what}")),
        _ => None,
    };
    let lacking: Vec<_> = outcomes.iter().filter_map(lack).collect();
    assert!(lacking.is_empty(), "lacking: {lacking:?}");
    println!("{} promises kept", outcomes.len());
    assert!(!outcomes.is_empty());
}

/// One test for each group of promises, so that they run in parallel.
macro_rules! groups {
    (#$attribute:tt $client:expr, $lacks:expr, $wanted:expr) => {
        async fn keep_all(group: Group) {
            let wanted: fn(&Promise) -> bool = $wanted;
            keep($client, $lacks, |promise| promise.group == group && wanted(promise)).await;
        }

        groups!(@ #$attribute processes Group::Processes);
        groups!(@ #$attribute files Group::Files);
        groups!(@ #$attribute terminals Group::Terminals);
        groups!(@ #$attribute ports Group::Ports);
        groups!(@ #$attribute lifetime Group::Lifetime);
    };
    (@ #$attribute:tt $name:ident $group:expr) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #$attribute
        async fn $name() {
            keep_all($group).await;
        }
    };
}

mod debian {
    use super::*;

    groups!(
        #[doc = "Every one."]
        client(DEBIAN),
        &[],
        |_| true
    );
}

/// Number of images that share the promises.
const SHARES: usize = 4;

/// The share of one image. Every promise is checked on Debian and on one other image.
fn share(of: usize) -> Vec<&'static str> {
    promises().into_iter().map(|promise| promise.name).skip(of).step_by(SHARES).collect()
}

/// An image that is checked with its share of the promises, and with all of them in `cargo xtask test --all`.
macro_rules! suite {
    ($name:ident, $share:literal, $client:expr, $wanted:expr) => {
        mod $name {
            use super::*;

            groups!(
                #[ignore = "slow: its share is kept each time; `cargo xtask test --all`"]
                $client,
                &ONE_USER,
                $wanted
            );

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn its_share() {
                let (wanted, share): (fn(&Promise) -> bool, _) = ($wanted, share($share));
                keep($client, &ONE_USER, |promise| wanted(promise) && share.contains(&promise.name)).await;
            }
        }
    };
}

suite!(debian_as_root, 0, client(DEBIAN).user("root"), |_| true);
suite!(busybox, 1, client(BUSYBOX), |promise| !PYTHON.contains(&promise.name));
suite!(another_user, 2, nonroot(), |_| true);
suite!(read_only, 3, client(DEBIAN).read_only(), |_| true);

#[test]
fn every_promise_is_in_one_share() {
    let mut shared: Vec<_> = (0..SHARES).flat_map(share).collect();
    let mut all: Vec<_> = promises().into_iter().map(|promise| promise.name).collect();
    shared.sort_unstable();
    all.sort_unstable();
    assert_eq!(shared, all);
}

/// An empty image cannot run commands; files, lifetimes and errors work as on every image.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_image_keeps_what_needs_no_commands() {
    keep(client(EMPTY), &ONE_USER, |promise| !promise.needs.contains(&Need::Commands)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_image_keeps_what_needs_no_commands() {
    keep(client(EMPTY).read_only(), &ONE_USER, |promise| !promise.needs.contains(&Need::Commands)).await;
}
