//! Sessions that begin, end, are saved and are worked on by several at once.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::join_all;
use parking_lot::Mutex;
use sandbar_clients::UnixLocal;
use sandbar_machine::{Lifetime, MachinePath, collect, once};
use sandbar_sandbox::{
    Exec, File, Group, LocalDir, LocalFile, Manifest, Mount, PathGrant, SandboxSession, Scope, SecretStore,
    SessionOptions,
    audit::{AuditOptions, Callback, Event},
};

async fn open(manifest: Manifest) -> SandboxSession {
    SandboxSession::open(Arc::new(UnixLocal::new()), SessionOptions::new(manifest)).await.expect("a session")
}

/// Looks again and again, but not for ever.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "still not so: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn mounts_and_grants_are_neither_saved_nor_replaced() {
    let host = tempfile::tempdir().unwrap();
    for name in ["granted", "mounted"] {
        fs::create_dir(host.path().join(name)).unwrap();
        fs::write(host.path().join(name).join("f"), "of the host").unwrap();
    }
    let grant = PathGrant::new(MachinePath::new("/workspace/data").unwrap()).host_path(host.path().join("granted"));
    let mut mount = Mount::new("mounted");
    mount.attributes.ephemeral = false;
    let manifest = Manifest::new().file("a", "x").file("deep/b", "y").mount("deep/m", mount).grant(grant);
    let session = open(manifest.base_dir(host.path())).await;
    let packed = collect(session.persist_workspace().await.unwrap(), 1 << 20).await.unwrap();
    assert!(!packed.windows(11).any(|window| window == b"of the host"), "the host's bytes were saved");
    session.write("a", "edited").await.unwrap();
    session.write("new", "z").await.unwrap();
    session.write("deep/new", "z").await.unwrap();
    session.hydrate_workspace(once(packed)).await.unwrap();
    let names = session.exec(Exec::shell("find . | sort")).await.unwrap().stdout_text();
    assert_eq!(names, ".\n./a\n./data\n./data/f\n./deep\n./deep/b\n./deep/m\n./deep/m/f\n");
    assert_eq!(session.read("a").await.unwrap(), "x");
    session.delete().await.unwrap();
}

#[tokio::test]
async fn a_workspace_that_cannot_come_back_stays_as_it_is() {
    let session = open(Manifest::new().file("a", "x").file("d/b", "y")).await;
    let packed = collect(session.persist_workspace().await.unwrap(), 1 << 20).await.unwrap();
    // No file may be moved out of a directory without write permission.
    session.exec(Exec::shell("mkdir locked; touch locked/f; chmod 555 .")).await.unwrap().check().unwrap();
    let as_it_was = session.exec(Exec::shell("find . | sort")).await.unwrap().stdout_text();
    let error = session.hydrate_workspace(once(packed.clone())).await.unwrap_err();
    assert_eq!(error.code(), "workspace_archive_write_error");
    assert_eq!(session.exec(Exec::shell("find . | sort")).await.unwrap().stdout_text(), as_it_was);
    session.exec(Exec::shell("chmod 755 .")).await.unwrap().check().unwrap();
    session.hydrate_workspace(once(packed)).await.unwrap();
    assert!(session.stat("locked").await.unwrap().is_none());
    session.delete().await.unwrap();
}

#[tokio::test]
async fn an_abandoned_hydration_still_completes() {
    let session = open(Manifest::new()).await;
    session.exec(Exec::shell("for i in $(seq 2000); do echo $i > f$i; done")).await.unwrap().check().unwrap();
    let packed = collect(session.persist_workspace().await.unwrap(), 16 << 20).await.unwrap();
    let _given_up = tokio::time::timeout(Duration::from_millis(60), session.hydrate_workspace(once(packed))).await;
    let look = || async { session.exec(Exec::shell("ls -A | wc -l")).await.unwrap().stdout_text() };
    let deadline = Instant::now() + Duration::from_secs(60);
    while look().await != "2000\n" {
        assert!(Instant::now() < deadline, "{} files are left", look().await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    session.delete().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patches_at_the_same_time_all_count() {
    let text: String = (0..40).map(|at| format!("line {at}\n")).collect();
    let session = open(Manifest::new().file("a", text)).await;
    let patches = (0..20).map(|at| {
        let (session, at) = (session.clone(), 2 * at);
        async move {
            let patch = format!("*** Begin Patch\n*** Update File: a\n@@\n-line {at}\n+changed {at}\n*** End Patch\n");
            session.apply_patch(&patch, Default::default()).await
        }
    });
    for applied in join_all(patches).await {
        applied.unwrap();
    }
    assert_eq!(session.read_text("a").await.unwrap().matches("changed").count(), 20);
    session.delete().await.unwrap();
}

#[tokio::test]
async fn a_patch_can_be_taken_back() {
    let session = open(Manifest::new().file("a", "one\n")).await;
    let patch = "*** Begin Patch\n*** Update File: a\n@@\n-one\n+two\n*** Add File: d/b\n+new\n*** End Patch\n";
    let applied = session.apply_patch(patch, Default::default()).await.unwrap();
    session.patches().undo(&applied).await.unwrap();
    assert_eq!(session.read("a").await.unwrap(), "one\n");
    assert!(session.stat("d").await.unwrap().is_none());
    session.delete().await.unwrap();
}

#[tokio::test]
async fn an_abandoned_start_leaves_no_machine() {
    let host = tempfile::tempdir().unwrap();
    for at in 0..3000 {
        fs::write(host.path().join(format!("f{at}")), vec![1; 10_000]).unwrap();
    }
    let state = tempfile::tempdir().unwrap();
    let client = Arc::new(UnixLocal::new().state_dir(state.path().join("s")));
    let manifest = Manifest::new().local_dir("d", LocalDir::new(".")).base_dir(host.path());
    for after in [20, 50, 100] {
        let options = SessionOptions::new(manifest.clone()).lifetime(Lifetime::Detached);
        let opening = SandboxSession::open(client.clone(), options);
        if let Ok(Ok(session)) = tokio::time::timeout(Duration::from_millis(after), opening).await {
            session.delete().await.unwrap();
        }
        let left = || fs::read_dir(state.path().join("s")).map_or(0, Iterator::count);
        until("no machine is left", || left() == 0).await;
    }
}

#[tokio::test]
async fn closing_ends_a_start_that_is_under_way() {
    let host = tempfile::tempdir().unwrap();
    fs::File::create(host.path().join("large")).unwrap().set_len(12 << 30).unwrap();
    let manifest = Manifest::new().local_dir("d", LocalDir::new(".")).base_dir(host.path());
    let session = SandboxSession::create(Arc::new(UnixLocal::new()), SessionOptions::new(manifest)).await.unwrap();
    let starting = tokio::spawn({
        let session = session.clone();
        async move { session.start().await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    tokio::time::timeout(Duration::from_secs(60), session.delete()).await.expect("it waits for the start").unwrap();
    assert_eq!(starting.await.unwrap().unwrap_err().code(), "session_closed");
}

#[tokio::test]
async fn a_hook_that_breaks_does_not_break_the_end() {
    let session = open(Manifest::new()).await;
    session.hooks().before_stop(|_| async { panic!("a broken hook") });
    let client = UnixLocal::new();
    let handle = session.machine().handle();
    assert_eq!(session.delete().await.unwrap_err().code(), "workspace_stop_error");
    assert!(!session.running().await.unwrap());
    assert!(sandbar_machine::SandboxClient::attach(&client, &handle).await.unwrap().is_none());
}

#[tokio::test]
async fn many_may_end_the_same_session() {
    let session = open(Manifest::new()).await;
    let ends = (0..6).map(|at| {
        let session = session.clone();
        async move { if at % 2 == 0 { session.close().await } else { session.delete().await } }
    });
    for ended in join_all(ends).await {
        ended.unwrap();
    }
}

#[tokio::test]
async fn entries_can_be_added_to_a_running_session() {
    let session = open(Manifest::new().file("a", "x")).await;
    session.write("a", "edited").await.unwrap();
    session.add_entries(Manifest::new().file("b", "y").entry("c", File::new("z").ephemeral())).await.unwrap();
    assert_eq!(session.read("b").await.unwrap(), "y");
    assert_eq!(session.read("a").await.unwrap(), "edited", "what was there is left alone");
    assert!(session.manifest().describe(1).contains("b"));
    session.remove("c").await.unwrap();
    session.apply_manifest(Scope::EphemeralOnly).await.unwrap();
    assert_eq!(session.read("c").await.unwrap(), "z");
    for refused in
        [Manifest::new().env("A", "b"), Manifest::new().mount("m", Mount::new("x")), Manifest::new().file("a", "again")]
    {
        assert!(session.add_entries(refused).await.is_err());
    }
    session.delete().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_kept_is_refused() {
    let read_only = PathGrant::new(MachinePath::new("/workspace/ro").unwrap()).read_only();
    for (manifest, code) in [
        (Manifest::new().grant(read_only), "mount_config_invalid"),
        (Manifest::new().entry("a", File::new("x").group("root")), "account_unavailable"),
        (Manifest::new().group(Group::new("staff")).entry("a", File::new("x").group("stuff")), "account_unavailable"),
        (Manifest::new().root("/data"), "workspace_start_error"),
    ] {
        let client = Arc::new(UnixLocal::new());
        let error = SandboxSession::open(client, SessionOptions::new(manifest)).await.unwrap_err();
        assert_eq!(error.code(), code, "{}", error.full_message());
    }
}

#[tokio::test]
async fn no_time_is_too_long() {
    let session = open(Manifest::new()).await;
    session.exec(Exec::new(["true"]).timeout(Duration::MAX)).await.unwrap().check().unwrap();
    session.delete().await.unwrap();
}

#[tokio::test]
async fn the_audit_hears_a_stream_to_its_end() {
    let events = Arc::new(Mutex::new(Vec::<Event>::new()));
    let heard = events.clone();
    let options = SessionOptions::new(Manifest::new().file("a", vec![b'x'; 1 << 20]))
        .audit(Callback::new(move |event: &Event| heard.lock().push(event.clone())));
    let session = SandboxSession::open(Arc::new(UnixLocal::new()), options).await.unwrap();
    let finished = |wanted: bool, bytes: Option<u64>| {
        let events = events.lock();
        let values = events.iter().map(|event| serde_json::to_value(event).unwrap());
        let ends: Vec<_> = values.filter(|value| value["op"] == "read" && value["phase"] == "finish").collect();
        ends.iter().any(|end| end["ok"] == wanted && bytes.is_none_or(|bytes| end["data"]["bytes"] == bytes))
    };
    let stream = session.read_stream("a").await.unwrap();
    assert!(!finished(true, None));
    collect(stream, 2 << 20).await.unwrap();
    until("its end is told", || finished(true, Some(1 << 20))).await;
    drop(session.read_stream("a").await.unwrap());
    until("its cancellation is told", || finished(false, None)).await;
    session.delete().await.unwrap();
}

#[tokio::test]
async fn what_was_not_saved_must_be_given_again() {
    let host = tempfile::tempdir().unwrap();
    fs::write(host.path().join("Cargo.toml"), "of the manifest's directory").unwrap();
    let made = Manifest::new().local_file("c", LocalFile::new("Cargo.toml")).base_dir(host.path());
    let client = Arc::new(UnixLocal::new());
    let session = SandboxSession::open(client.clone(), SessionOptions::new(made.clone())).await.unwrap();
    let saved = serde_json::to_string(&session.state()).unwrap();
    assert!(!saved.contains("Cargo.toml"), "{saved}");
    let attach = |manifest: Manifest| {
        let state = serde_json::from_str(&saved).unwrap();
        SandboxSession::attach(client.clone(), state, SessionOptions::new(manifest))
    };
    let alone = attach(Manifest::new()).await.unwrap().unwrap();
    assert_eq!(alone.apply_manifest(Scope::All).await.unwrap_err().code(), "manifest_invalid");
    let again = attach(made).await.unwrap().unwrap();
    again.write("c", "edited").await.unwrap();
    again.apply_manifest(Scope::All).await.unwrap();
    assert_eq!(session.read("c").await.unwrap(), "of the manifest's directory");
    session.delete().await.unwrap();
}

#[tokio::test]
async fn a_manifest_that_was_read_shows_nothing_writable() {
    let host = tempfile::tempdir().unwrap();
    let text = r#"{"entries": {"m": {"type": "mount", "source": ".", "read_only": false}}}"#;
    let client = Arc::new(UnixLocal::new());
    for (manifest, fine) in [
        (Manifest::from_json(text).unwrap(), false),
        (Manifest::from_json(text).unwrap().base_dir(host.path()), false),
        (Manifest::from_json(text).unwrap().base_dir(host.path()).trust_mounts(), true),
    ] {
        let opened = SandboxSession::open(client.clone(), SessionOptions::new(manifest)).await;
        match opened {
            Ok(session) => {
                assert!(fine);
                session.delete().await.unwrap();
            }
            Err(error) => assert!(!fine && error.code() == "mount_config_invalid", "{}", error.full_message()),
        }
    }
}

#[tokio::test]
async fn secrets_from_all_sides_stay_out_of_the_audit() {
    let events = Arc::new(Mutex::new(String::new()));
    let heard = events.clone();
    let given = AuditOptions { secrets: SecretStore::new().with("X", "hunter2222"), ..AuditOptions::default() };
    let options = SessionOptions::new(Manifest::new())
        .secrets(SecretStore::new().with("Y", "swordfish"))
        .audit_options(given)
        .audit(Callback::new(move |event: &Event| {
            heard.lock().push_str(&serde_json::to_string(event).unwrap());
        }));
    let session = SandboxSession::open(Arc::new(UnixLocal::new()), options).await.unwrap();
    session.exec(Exec::shell("echo hunter2222 swordfish")).await.unwrap();
    session.close().await.unwrap();
    assert!(session.read("a").await.is_err());
    session.delete().await.unwrap();
    // An end waits for a slow sink, but not for ever.
    let holds = |word: &str| events.lock().contains(word);
    until("the end is told", || holds("session_closed") && holds("\"delete\"")).await;
    let events = events.lock();
    assert!(!events.contains("hunter2222") && !events.contains("swordfish"), "{events}");
}
