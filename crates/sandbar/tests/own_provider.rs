//! The provider of the example `own_provider` in the conformance suite, and its documented length.
#![cfg(target_os = "linux")]

#[path = "../examples/own_provider/toy.rs"]
mod toy;

use futures::StreamExt;
use sandbar_machine::conformance::{Promise, Verdict, promises};

use self::toy::Toy;

/// Promises that are checked at the same time.
const CONCURRENCY: usize = 4;

/// Promises that the toy does not keep, so that it stays short.
const BROKEN: [(&str, &str); 4] = [
    ("a_live_machine_can_be_attached", "it keeps no list of its machines"),
    ("a_missing_working_directory_is_an_error", "it does not tell this error from others"),
    ("the_exit_comes_when_the_last_of_a_full_buffer_is_read", "it waits for background children, as below"),
    ("the_exit_does_not_wait_for_background_children", "it reads pipes to their ends, which children hold open"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_toy_keeps_every_promise_except_the_documented_ones() {
    let is_asked = |promise: &Promise| BROKEN.iter().all(|(name, _)| *name != promise.name);
    let checked = promises()
        .into_iter()
        .filter(is_asked)
        .map(|promise| async move { (promise.name, tokio::spawn(async move { promise.check(&Toy).await }).await) });
    let outcomes: Vec<_> = futures::stream::iter(checked).buffer_unordered(CONCURRENCY).collect().await;
    let broken: Vec<_> = outcomes.iter().filter(|(_, outcome)| outcome.is_err()).map(|(name, _)| *name).collect();
    assert!(broken.is_empty(), "broken: {broken:#?}");
    let kept = outcomes.iter().filter(|(_, outcome)| matches!(outcome, Ok(Verdict::Kept))).count();
    assert!(kept > 80, "the toy keeps only {kept} promises");
}

#[test]
fn the_toy_is_as_short_as_the_documentation_says() {
    let lines = include_str!("../examples/own_provider/toy.rs").lines().count();
    assert!(lines <= 120, "{lines} lines");
}
