//! Promises about how sessions begin and end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use sandbar_machine::{Lifetime, SandboxClient};

use super::{Verdict, detached, open};
use crate::{
    Dir, EnvValue, Exec, LocalFile, Manifest, SandboxSession, SecretStore, SessionOptions,
    audit::{Callback, Event},
};

pub(super) async fn a_session_starts_with_what_its_manifest_says(client: Arc<dyn SandboxClient>) {
    let manifest = Manifest::new()
        .file("brief.md", "# Northwind\n")
        .file("src/deep/a.bin", vec![0, 255, 10])
        .dir("empty", Dir::new());
    let session = open(&client, manifest).await;
    assert_eq!(session.read("brief.md").await.unwrap(), "# Northwind\n");
    assert_eq!(session.read("src/deep/a.bin").await.unwrap(), vec![0_u8, 255, 10]);
    assert!(session.list("empty").await.unwrap().is_empty());
    assert_eq!(session.stat("brief.md").await.unwrap().unwrap().mode & 0o777, 0o755);
    session.delete().await.unwrap();
}

pub(super) async fn declared_variables_are_there(client: Arc<dyn SandboxClient>) {
    let manifest = Manifest::new().env("GREETING", "hello there").env("EMPTY", "");
    let session = open(&client, manifest).await;
    let result = session.exec(Exec::shell("echo \"$GREETING|${EMPTY-unset}\"")).await.unwrap();
    assert_eq!(result.stdout_text(), "hello there|\n");
    session.delete().await.unwrap();
}

pub(super) async fn a_secret_reaches_commands_and_nothing_that_is_saved(client: Arc<dyn SandboxClient>) {
    let manifest =
        Manifest::new().env("TOKEN", EnvValue::secret("token")).env("NOW", EnvValue::new("only-now").ephemeral());
    let missing = SandboxSession::create(client.clone(), SessionOptions::new(manifest.clone())).await;
    assert_eq!(missing.unwrap_err().code(), "secret_not_found");
    let options = SessionOptions::new(manifest).secrets(SecretStore::new().with("token", "hunter22"));
    let session = SandboxSession::open(client, options).await.unwrap();
    let result = session.exec(Exec::shell("echo $TOKEN $NOW")).await.unwrap();
    assert_eq!(result.stdout_text(), "hunter22 only-now\n");
    let saved = serde_json::to_string(&session.state()).unwrap();
    assert!(!saved.contains("hunter22") && !saved.contains("only-now"), "{saved}");
    assert!(!format!("{session:?}").contains("hunter22"));
    session.delete().await.unwrap();
}

pub(super) async fn a_session_that_cannot_start_leaves_nothing(client: Arc<dyn SandboxClient>) {
    let manifest = Manifest::new().file("a", "x").entry("b", LocalFile::new("no/such/file"));
    let session = SandboxSession::create(client.clone(), SessionOptions::new(manifest)).await.unwrap();
    let handle = session.machine().handle();
    assert_eq!(session.start().await.unwrap_err().code(), "local_file_read_error");
    assert!(client.attach(&handle).await.unwrap().is_none(), "the machine is still there");
    assert_eq!(session.read("a").await.unwrap_err().code(), "session_closed");
}

pub(super) async fn starting_twice_is_fine(client: Arc<dyn SandboxClient>) {
    let session = open(&client, Manifest::new().file("a", "declared")).await;
    session.write("a", "edited").await.unwrap();
    session.start().await.unwrap();
    assert_eq!(session.read("a").await.unwrap(), "edited");
    session.delete().await.unwrap();
}

pub(super) async fn a_closed_session_refuses_everything(client: Arc<dyn SandboxClient>) {
    let session = open(&client, Manifest::new()).await;
    assert!(session.running().await.unwrap());
    session.close().await.unwrap();
    session.close().await.unwrap();
    assert!(!session.running().await.unwrap());
    let closed = "session_closed";
    assert_eq!(session.read("a").await.unwrap_err().code(), closed);
    assert_eq!(session.write("a", "x").await.unwrap_err().code(), closed);
    assert_eq!(session.exec(Exec::new(["true"])).await.unwrap_err().code(), closed);
    assert_eq!(session.start().await.unwrap_err().code(), closed);
    assert_eq!(session.stop().await.unwrap_err().code(), closed);
    session.delete().await.unwrap();
}

pub(super) async fn deleting_twice_is_fine(client: Arc<dyn SandboxClient>) {
    let session = open(&client, Manifest::new()).await;
    let handle = session.machine().handle();
    session.delete().await.unwrap();
    session.delete().await.unwrap();
    assert!(client.attach(&handle).await.unwrap().is_none());
}

pub(super) async fn hooks_run_once_before_the_end(client: Arc<dyn SandboxClient>) {
    let session = open(&client, Manifest::new()).await;
    let ran = Arc::new(AtomicUsize::new(0));
    let counter = ran.clone();
    session.hooks().before_stop(move |session| async move {
        session.write("last", "words").await?;
        // A hook may call any operation of its session, even `stop`.
        session.stop().await?;
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    session.stop().await.unwrap();
    assert_eq!(session.read("last").await.unwrap(), "words");
    session.delete().await.unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

pub(super) async fn a_session_survives_being_saved_and_found_again(client: Arc<dyn SandboxClient>) {
    let session = open(&client, Manifest::new().file("a", "x")).await;
    session.write("b", "made later").await.unwrap();
    let saved = serde_json::to_string(&session.state()).unwrap();
    let state = serde_json::from_str(&saved).unwrap();
    let again = SandboxSession::attach(client.clone(), state, SessionOptions::default()).await.unwrap().unwrap();
    assert_eq!(again.id(), session.id());
    assert_eq!(again.read("b").await.unwrap(), "made later");
    again.start().await.unwrap();
    assert_eq!(again.read("a").await.unwrap(), "x");
    let state = again.state();
    session.delete().await.unwrap();
    assert!(SandboxSession::attach(client, state, SessionOptions::default()).await.unwrap().is_none());
}

pub(super) async fn a_detached_session_survives_its_last_client(client: Arc<dyn SandboxClient>) -> Verdict {
    let manifest = Manifest::new().file("a", "x").env("DECLARED", "kept");
    let options = SessionOptions::new(manifest).lifetime(Lifetime::Detached);
    let session = match detached(&client, options).await {
        Ok(session) => session,
        Err(lack) => return lack,
    };
    session.write("b", "made later").await.unwrap();
    let state = session.state();
    drop(session);
    let find = || SandboxSession::attach(client.clone(), state.clone(), SessionOptions::default());
    let (one, two) = (find().await.unwrap().unwrap(), find().await.unwrap().unwrap());
    assert_eq!(one.read("b").await.unwrap(), "made later");
    assert_eq!(two.exec(Exec::shell("cat a; echo $DECLARED")).await.unwrap().stdout_text(), "xkept\n");
    one.delete().await.unwrap();
    assert!(find().await.unwrap().is_none());
    Verdict::Kept
}

pub(super) async fn an_undeclared_port_is_refused(client: Arc<dyn SandboxClient>) {
    let session = open(&client, Manifest::new()).await;
    let error = session.ports().resolve(8000).await.unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("exposed_port_unavailable", Some(false)));
    assert_eq!(error.context()["reason"], "not_configured");
    session.delete().await.unwrap();
}

pub(super) async fn every_operation_is_audited(client: Arc<dyn SandboxClient>) {
    let events = Arc::new(Mutex::new(Vec::<Event>::new()));
    let heard = events.clone();
    let options = SessionOptions::new(Manifest::new().file("a", "x"))
        .audit(Callback::new(move |event: &Event| heard.lock().push(event.clone())));
    let session = SandboxSession::open(client, options).await.unwrap();
    session.exec(Exec::new(["true"])).await.unwrap();
    session.read("a").await.unwrap();
    session.write("b", "y").await.unwrap();
    session.list(".").await.unwrap();
    session.stat("a").await.unwrap();
    session.make_dir("d").await.unwrap();
    session.remove("d").await.unwrap();
    session.apply_patch("*** Begin Patch\n*** Delete File: b\n*** End Patch\n", Default::default()).await.unwrap();
    assert!(session.read("../etc/passwd").await.is_err());
    session.delete().await.unwrap();
    let has = |events: &[Event], op: &str, phase: &str, ok: Option<bool>| {
        let fits = |event: &Event| {
            let value = serde_json::to_value(event).unwrap();
            value["op"] == op && value["phase"] == phase && ok.is_none_or(|ok| value["ok"] == ok)
        };
        events.iter().any(fits)
    };
    // `delete` waits for a slow sink only for a limited time.
    while !has(&events.lock(), "delete", "finish", Some(true)) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let events = events.lock();
    let seen = |op: &str, phase: &str, ok: Option<bool>| has(&events, op, phase, ok);
    let ops = ["create", "start", "materialize", "exec", "read", "write", "list", "stat", "make_dir", "remove"];
    for op in ops.iter().chain(&["apply_patch", "stop", "shutdown", "delete"]) {
        assert!(seen(op, "start", None) && seen(op, "finish", Some(true)), "{op} is missing: {events:#?}");
    }
    assert!(seen("read", "finish", Some(false)), "a refused attempt is missing");
    let numbers: Vec<u64> = events.iter().map(|event| event.seq).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "out of order: {numbers:?}");
}
