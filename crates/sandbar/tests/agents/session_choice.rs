//! The choice and the ownership of the session that an agent works in.

use std::sync::Arc;

use sandbar::{Manifest, Snapshot, prelude::*};

use crate::rig::{Rig, done, exec, exited, full, news};

#[tokio::test]
async fn a_fresh_workspace_follows_the_manifest_of_the_run_then_of_the_agent() {
    let of_agent = Manifest::new().file("of_agent", "");
    let of_run = Manifest::new().file("of_run", "");
    let rig = Rig::turns([exec("ls"), done()]);
    for (agent, sandbox, found) in [
        (rig.agent().manifest(of_agent.clone()), rig.sandbox().manifest(of_run), "of_run\n"),
        (rig.agent().manifest(of_agent), rig.sandbox(), "of_agent\n"),
        (rig.agent(), rig.sandbox(), ""),
    ] {
        run(&agent, "Go.").sandbox(sandbox).await.expect("it ends well");
        assert_eq!(news(&rig.texts()[0]), exited(0, found));
    }
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_live_session_comes_first_is_shared_by_runs_and_ended_only_by_its_caller() {
    let rig = Rig::turns([exec("echo more >> log; cat log"), done()]);
    let session = rig.session(Manifest::new().file("log", "begun\n")).await;
    let other = rig.session(Manifest::new().file("log", "other\n")).await;
    let everything = rig
        .sandbox()
        .session(session.clone())
        .session_state(other.state())
        .manifest(Manifest::new().file("log", "of the run\n"));
    for expected in ["begun\nmore\n", "begun\nmore\nmore\n"] {
        run(rig.agent().manifest(Manifest::new().file("log", "x")), "Go.")
            .sandbox(&everything)
            .await
            .expect("it ends well");
        assert_eq!(news(&rig.texts()[0]), exited(0, expected));
        assert!(session.running().await.expect("it answers"));
    }
    assert_eq!(session.owner(), sandbar::sandbox::Owner::Caller);
    other.delete().await.expect("it ends");
    session.delete().await.expect("it ends");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_live_session_that_was_not_started_is_started() {
    let rig = Rig::turns([exec("cat log"), done()]);
    let manifest = Manifest::new().file("log", "begun\n");
    let session =
        SandboxSession::create(Arc::new(rig.client()), SessionOptions::new(manifest)).await.expect("a session");
    run(rig.agent(), "Go.").sandbox(&session).await.expect("it ends well");
    assert_eq!(news(&rig.texts()[0]), exited(0, "begun\n"));
    session.delete().await.expect("it ends");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_given_state_is_found_again_and_a_lost_one_is_named() {
    let rig = Rig::turns([exec("cat log"), done()]);
    let machine = MachineSpec::default().lifetime(Lifetime::Detached);
    let options = SessionOptions::new(Manifest::new().file("log", "kept\n")).machine(machine.clone());
    let session = SandboxSession::open(Arc::new(rig.client()), options).await.expect("a session");
    let state = session.state();
    drop(session);
    let sandbox =
        rig.sandbox().machine(machine).session_state(state.clone()).manifest(Manifest::new().file("log", "fresh\n"));
    run(rig.agent(), "Go.").sandbox(&sandbox).await.expect("it ends well");
    assert_eq!(news(&rig.texts()[0]), exited(0, "kept\n"));
    // The run attached to the session, so the run ended it.
    let message = rig.failure(&rig.agent(), sandbox).await;
    assert!(message.contains(&state.session_id) && message.contains("its machine is gone"), "{message}");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn runs_at_the_same_time_have_a_machine_each() {
    let rig = Rig::turns([exec("ls; touch made; sleep 0.2; ls"), done()]);
    let (agent, sandbox) = (rig.agent(), rig.sandbox());
    let runs = (0..8).map(|_| run(&agent, "Go.").sandbox(&sandbox).into_future());
    for result in futures::future::join_all(runs).await {
        let items = result.expect("it ends well").new_items().to_vec();
        let output = items[1].raw.fields()["output"].as_str().expect("a text").to_owned();
        assert_eq!(news(&output), exited(0, "made\n"));
    }
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn the_error_of_a_run_without_a_sandbox_names_what_is_missing() {
    let rig = Rig::turns([done()]);
    let error = run(rig.agent(), "Go.").await.expect_err("it fails");
    let message = full(&error);
    assert!(message.contains("\"worker\"") && message.contains(".sandbox("), "{message}");
    let message = rig.failure(&rig.agent(), SandboxRunConfig::default()).await;
    assert!(message.contains("neither a client to make machines with nor a live session"), "{message}");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_closed_session_is_refused_with_a_message() {
    let rig = Rig::turns([done()]);
    let session = rig.session(Manifest::new()).await;
    session.delete().await.expect("it ends");
    let message = rig.failure(&rig.agent(), (&session).into()).await;
    assert!(message.contains("closed"), "{message}");
    rig.leaves_nothing().await;
}

/// A capability that changes the manifest in one way.
#[derive(Debug)]
struct Wants(Change);

type Change = fn(&mut Manifest);

#[async_trait]
impl Capability for Wants {
    fn kind(&self) -> &str {
        "wants"
    }

    fn shape(&self, manifest: &mut Manifest) -> Result<(), SandboxError> {
        (self.0)(manifest);
        Ok(())
    }

    async fn equip(&self, _agent_session: &AgentSession) -> Result<CapabilityKit, SandboxError> {
        Ok(CapabilityKit::new())
    }
}

#[tokio::test]
async fn a_running_session_accepts_new_entries_and_refuses_all_other_changes() {
    let rig = Rig::turns([exec("cat added/new.txt"), done()]);
    let session = rig.session(Manifest::new().file("a", "1")).await;
    let add: Change = |manifest| manifest.ensure("added/new.txt", File::new("added\n"));
    let agent = rig.agent().capability(Wants(add));
    for _ in 0..2 {
        run(&agent, "Go.").sandbox(&session).await.expect("it ends well");
        assert_eq!(news(&rig.texts()[0]), exited(0, "added\n"));
    }
    let refused: [(Change, &str); 4] = [
        (|manifest| *manifest = std::mem::take(manifest).env("X", "1"), "the environment"),
        (|manifest| *manifest = std::mem::take(manifest).root("/elsewhere"), "the root"),
        (|manifest| *manifest = Manifest::new(), "the entry \"a\", which would be removed,"),
        (|manifest| *manifest = std::mem::take(manifest).entry("m", Mount::new("/srv")), "mounts"),
    ];
    for (change, what) in refused {
        let message = rig.failure(&rig.agent().capability(Wants(change)), (&session).into()).await;
        assert!(
            message.contains(what) && message.contains("cannot be changed on a session that is running"),
            "{message}"
        );
    }
    session.delete().await.expect("it ends");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_fresh_workspace_begins_with_a_snapshot_over_its_manifest() {
    use futures::StreamExt as _;

    let rig = Rig::turns([exec("cat log extra; ls"), done()]);
    let session = rig.session(Manifest::new().file("log", "saved\n")).await;
    let mut pieces = session.persist_workspace().await.expect("an archive");
    let mut archive = Vec::new();
    while let Some(piece) = pieces.next().await {
        archive.extend_from_slice(&piece.expect("a piece"));
    }
    session.delete().await.expect("it ends");
    let file = rig.path().with_extension("tar");
    std::fs::write(&file, &archive).expect("written");
    let manifest = Manifest::new().file("log", "declared\n").file("extra", "extra\n");
    let sandbox = rig.sandbox().manifest(manifest).snapshot(Snapshot::Archive(file.clone()));
    let result = run(rig.agent(), "Go.").sandbox(sandbox.clone()).await;
    std::fs::remove_file(&file).expect("removed");
    result.expect("it ends well");
    assert_eq!(news(&rig.texts()[0]).lines().nth(2), Some("saved"));
    let message = rig.failure(&rig.agent(), sandbox).await;
    assert!(message.contains("the snapshot"), "{message}");
    rig.leaves_nothing().await;
}
