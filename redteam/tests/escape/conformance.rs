//! The conformance suite of machines, on kernels with an older Landlock.

use std::sync::Arc;

use futures::StreamExt;
use sandbar_machine::{
    SandboxClient,
    conformance::{Promise, promises},
};

use crate::escape::{
    rig::{Mode, Rig, docker},
    tally::Tally,
};

/// Promises that are checked at the same time.
const AT_ONCE: usize = 4;
/// Promises that a container whose commands are root breaks with version 1: its layers say that renames between directories
/// are refused.
const RENAMES: [&str; 1] = ["a_rename_replaces_a_file"];

/// Every promise.
pub(crate) async fn run(rig: &Rig) {
    check(rig, |_| true).await;
}

/// Those that Landlock may have a part in, and that cost little.
pub(crate) async fn run_part(rig: &Rig) {
    let modules = ["rename", "link", "beneath", "archive", "users_", "features", "terminal_is", "port_is"];
    check(rig, |promise| modules.iter().any(|word| promise.name.contains(word))).await;
}

async fn check(rig: &Rig, is_wanted: impl Fn(&Promise) -> bool) {
    let mut tally = Tally::new(rig.mode);
    let version: u32 = std::env::var("REDTEAM_LANDLOCK").ok().and_then(|text| text.parse().ok()).expect("a version");
    let client: Arc<dyn SandboxClient> = match rig.mode {
        // A workspace of root's makes commands root elsewhere; these machines have their own.
        Mode::DockerRoot => Arc::new(docker().user("root")),
        _ => rig.client.clone(),
    };
    let refuses_renames = version == 1 && rig.mode == Mode::DockerRoot;
    let checked = promises().into_iter().filter(is_wanted).map(|promise| {
        let client = client.clone();
        let checked = tokio::spawn(async move { promise.check(client.as_ref()).await });
        async move { (promise.name, checked.await) }
    });
    let mut outcomes = futures::stream::iter(checked).buffer_unordered(AT_ONCE);
    while let Some((name, outcome)) = outcomes.next().await {
        let is_excepted = refuses_renames && RENAMES.contains(&name);
        let detail = outcome.as_ref().map_or_else(ToString::to_string, |()| "kept".to_owned());
        tally.expect(&format!("K79.conformance.{name}"), outcome.is_ok() != is_excepted, detail);
    }
    tally.finish(&format!("conformance (landlock {version})"));
}
