//! The suite that every client passes, and what this service cannot do.

use futures::StreamExt;
use sandbar_fakes::e2b::Server;
use sandbar_machine::conformance::{Group, Promise, Verdict, promises};

use crate::bench::client;

/// Machines that are tried at the same time.
const AT_ONCE: usize = 2;

/// Promises that are broken here, and why.
const BROKEN: [(&str, &str); 1] = [(
    "the_exit_does_not_wait_for_background_children",
    "the service follows a command up to its exit: what its children print later is lost",
)];

/// What is lacking here, why, and how many promises of the group are not checked for it.
const LACKING: [(Group, &str, &str, usize); 8] = [
    (Group::Processes, "several users", "a sandbox has one user beside root, and makes no others", 4),
    (Group::Processes, "a limit on processes", "the template sets the limits", 1),
    (Group::Processes, "the client cannot limit memory", "the template sets the limits", 2),
    (Group::Processes, "the client cannot limit the disk", "the template sets the limits", 5),
    (Group::Ports, "ports that carry any protocol over TCP", "the edge forwards HTTP; see facets.rs", 5),
    (Group::Lifetime, "commands that outlive their client", "output that no client reads is lost", 13),
    (Group::Lifetime, "the client cannot show directories of the host", "the sandbox is on another host", 2),
    (Group::Files, "nothing", "every promise about files is kept", 0),
];

async fn keep(group: Group) {
    let server = Server::start().expect("a server");
    let is_asked = |promise: &Promise| promise.group == group && BROKEN.iter().all(|(name, _)| *name != promise.name);
    let checked = promises().into_iter().filter(is_asked).map(|promise| {
        let client = client(&server);
        async move { (promise.name, tokio::spawn(async move { promise.check(&client).await }).await) }
    });
    let outcomes: Vec<_> = futures::stream::iter(checked).buffer_unordered(AT_ONCE).collect().await;
    let broken: Vec<_> = outcomes.iter().filter(|(_, outcome)| outcome.is_err()).map(|(name, _)| *name).collect();
    assert!(broken.is_empty(), "broken: {broken:#?}");
    let known = |what: &str| LACKING.iter().any(|(of, lack, ..)| (*of, *lack) == (group, what));
    let mut lacking = Vec::new();
    for (name, outcome) in outcomes {
        if let Ok(Verdict::Lacking(what)) = outcome {
            assert!(known(&what), "{name} lacks {what}");
            lacking.push(what);
        }
    }
    for (_, what, why, count) in LACKING.iter().filter(|(of, ..)| *of == group) {
        assert_eq!(lacking.iter().filter(|lack| lack == what).count(), *count, "{what}: {why}");
    }
    assert_eq!(server.sandboxes(), Vec::<String>::new(), "every machine was deleted");
}

/// One test for each group of promises, so that they run side by side.
macro_rules! groups {
    ($($name:ident $group:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                keep(Group::$group).await;
            }
        )*
    };
}

groups! { processes Processes files Files terminals Terminals ports Ports lifetime Lifetime }

/// An exception is forgotten as soon as it is none any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_to_be_broken_is() {
    let server = Server::start().expect("a server");
    for (name, why) in BROKEN {
        let client = client(&server);
        let promise = promises().into_iter().find(|promise| promise.name == name).expect("a promise of that name");
        assert!(tokio::spawn(async move { promise.check(&client).await }).await.is_err(), "{name} is kept: {why}");
    }
}
