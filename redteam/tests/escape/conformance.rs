//! The conformance suite of machines, on kernels with an older Landlock.

use std::sync::Arc;

use futures::StreamExt;
use sandbar_machine::{
    SandboxClient,
    conformance::{Promise, promises},
};

use crate::escape::rig::{Mode, Rig, claimed_landlock, docker};

/// Promises that are checked at the same time: an engine does more for each.
const AT_ONCE: usize = 4;
const AT_ONCE_IN_CONTAINERS: usize = 2;
/// What a container whose commands are root cannot promise with version 1: its layers, and the error, say that renames between
/// directories are refused.
const RENAMES: [&str; 1] = ["a_rename_replaces_a_file"];

/// Every promise.
pub(crate) async fn run(rig: &Rig) {
    check(rig, |_| true).await;
}

/// Those that Landlock may have a part in, and that cost little.
pub(crate) async fn run_part(rig: &Rig) {
    let words = ["rename", "link", "beneath", "archive", "users_", "features", "terminal_is", "port_is"];
    check(rig, |promise| words.iter().any(|word| promise.name.contains(word))).await;
}

async fn check(rig: &Rig, is_wanted: impl Fn(&Promise) -> bool) {
    let version = claimed_landlock().expect("a version");
    let client: Arc<dyn SandboxClient> = match rig.mode {
        // A workspace of root's makes commands root elsewhere; these machines have their own.
        Mode::DockerRoot => Arc::new(docker().user("root")),
        _ => rig.client.clone(),
    };
    let checked = promises().into_iter().filter(is_wanted).map(|promise| {
        let client = client.clone();
        let checked = tokio::spawn(async move { promise.check(client.as_ref()).await });
        async move { (promise.name, checked.await.is_ok()) }
    });
    let at_once = if rig.mode.in_container() { AT_ONCE_IN_CONTAINERS } else { AT_ONCE };
    let outcomes: Vec<_> = futures::stream::iter(checked).buffer_unordered(at_once).collect().await;
    let broken: Vec<&str> = outcomes.iter().filter(|(_, is_kept)| !is_kept).map(|(name, _)| *name).collect();
    println!("{} conformance (landlock {version}): {} promises, broken {broken:?}", rig.mode.name(), outcomes.len());
    let refused = if version == 1 && rig.mode == Mode::DockerRoot { &RENAMES[..] } else { &[] };
    assert_eq!(broken, refused, "the others are kept");
    assert!(outcomes.len() > 10, "there are promises");
}
