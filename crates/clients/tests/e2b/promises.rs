//! The suite that every client passes; the conformance page lists what this service cannot do.

use futures::StreamExt;
use sandbar_fakes::e2b::Server;
use sandbar_machine::conformance::{Group, promises};

use crate::{
    bench::client,
    page::{Finding, Suite, judge},
};

/// Number of machines that are tried at the same time.
const AT_ONCE: usize = 2;

async fn keep(group: Group) {
    let server = Server::start().expect("a server");
    let checked = promises().into_iter().filter(|promise| promise.group == group).map(|promise| {
        let client = client(&server);
        async move {
            // A broken promise panics, and prints how.
            let verdict = tokio::spawn(async move { promise.check(&client).await }).await.ok();
            (promise.name, Finding::new(promise.name, verdict))
        }
    });
    let found: Vec<_> = futures::stream::iter(checked).buffer_unordered(AT_ONCE).collect().await;
    assert!(!found.is_empty());
    judge(Suite::Machines, &found);
    assert_eq!(server.sandboxes(), Vec::<String>::new(), "every machine was deleted");
}

/// One test for each group of promises, so that they run in parallel.
macro_rules! groups {
    ($($name:ident $group:ident)*) => {
        const GROUPS: &[Group] = &[$(Group::$group),*];

        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                keep(Group::$group).await;
            }
        )*
    };
}

groups! { processes Processes files Files terminals Terminals ports Ports lifetime Lifetime }

#[test]
fn every_promise_is_in_a_group_that_is_tested() {
    for promise in promises() {
        assert!(GROUPS.contains(&promise.group), "{promise:?}");
    }
}
