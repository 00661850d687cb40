//! Promises about the files of a session.

use std::{os::unix::fs::PermissionsExt, sync::Arc};

use sandbar_machine::{
    SandboxClient, collect, once,
    tar::{Kind, Member, end, padding},
};

use super::open;
use crate::{Dir, Exec, Extract, File, LocalDir, Manifest, SandboxSession, Scope, SessionOptions};

pub(super) async fn files_come_back_as_they_were_written(client: Arc<dyn SandboxClient>) {
    let session = open(&client, Manifest::new()).await;
    let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    session.write("deep/er/file", bytes.clone()).await.unwrap();
    let workspace = session.machine().features().workspace.to_string();
    assert_eq!(session.read(format!("{workspace}/deep/er/file")).await.unwrap(), bytes);
    let streamed = collect(session.read_stream("deep/er/file").await.unwrap(), 1 << 20).await.unwrap();
    assert_eq!(streamed, bytes);
    assert_eq!(session.read("nothing").await.unwrap_err().code(), "workspace_read_not_found");
    assert_eq!(session.read("deep").await.unwrap_err().code(), "workspace_archive_read_error");
    assert!(session.stat("nothing").await.unwrap().is_none());
    let names: Vec<_> = session.list("deep").await.unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["er"]);
    session.remove("deep").await.unwrap();
    session.remove("deep").await.unwrap();
    assert!(session.stat("deep").await.unwrap().is_none());
    assert!(session.remove(".").await.is_err() && session.remove(workspace).await.is_err());
    session.delete().await.unwrap();
}

pub(super) async fn paths_stay_inside(client: Arc<dyn SandboxClient>) {
    let session = open(&client, Manifest::new()).await;
    for path in ["../x", "/etc/passwd", "a/../../x", "/workspace/../etc/passwd", "", "/"] {
        assert_eq!(session.read(path).await.unwrap_err().code(), "invalid_manifest_path", "read {path:?}");
        assert_eq!(session.write(path, "x").await.unwrap_err().code(), "invalid_manifest_path", "write {path:?}");
        assert_eq!(session.remove(path).await.unwrap_err().code(), "invalid_manifest_path", "remove {path:?}");
        assert_eq!(session.list(path).await.unwrap_err().code(), "invalid_manifest_path", "list {path:?}");
    }
    session.write("a/../fine", "x").await.unwrap();
    session.delete().await.unwrap();
}

pub(super) async fn links_that_lead_out_are_refused(client: Arc<dyn SandboxClient>) {
    let session = open(&client, Manifest::new()).await;
    let links = "ln -s /etc out && ln -s /etc/passwd leaf && mkdir in && ln -s in inside";
    session.exec(Exec::shell(links)).await.unwrap().check().unwrap();
    for path in ["out/passwd", "leaf"] {
        assert_eq!(session.read(path).await.unwrap_err().code(), "workspace_archive_read_error", "{path}");
        assert_eq!(session.write(path, "x").await.unwrap_err().code(), "workspace_archive_write_error", "{path}");
    }
    assert_eq!(session.write("out/new", "x").await.unwrap_err().code(), "workspace_archive_write_error");
    session.write("inside/file", "x").await.unwrap();
    assert_eq!(session.read("in/file").await.unwrap(), "x");
    session.remove("leaf").await.unwrap();
    session.exec(Exec::new(["test", "-s", "/etc/passwd"])).await.unwrap().check().unwrap();
    session.delete().await.unwrap();
}

pub(super) async fn a_patch_changes_all_or_nothing(client: Arc<dyn SandboxClient>) {
    let session = open(&client, Manifest::new().file("a.txt", "one\ntwo\n").file("b.txt", "old\n")).await;
    let bad = "*** Begin Patch\n*** Update File: a.txt\n@@\n-two\n+2\n*** Add File: new.txt\n+x\n*** Update File: b.txt\n@@\n-gone\n+x\n*** End Patch\n";
    let error = session.apply_patch(bad, Default::default()).await.unwrap_err();
    assert_eq!(error.code(), "apply_patch_invalid_diff");
    assert_eq!(session.read("a.txt").await.unwrap(), "one\ntwo\n");
    assert!(session.stat("new.txt").await.unwrap().is_none());
    let good = bad.replace("-gone", "-old");
    session.apply_patch(&good, Default::default()).await.unwrap();
    assert_eq!(session.read("a.txt").await.unwrap(), "one\n2\n");
    assert_eq!(session.read("b.txt").await.unwrap(), "x\n");
    session.delete().await.unwrap();
}

pub(super) async fn a_patch_never_goes_through_a_link(client: Arc<dyn SandboxClient>) {
    let session = open(&client, Manifest::new()).await;
    let scene = "mkdir -p /tmp/outside && echo old > /tmp/outside/file && ln -s /tmp/outside out && ln -s /tmp/outside/file leaf";
    session.exec(Exec::shell(scene)).await.unwrap().check().unwrap();
    for path in ["out/file", "leaf", "/tmp/outside/file", "../tmp/outside/file"] {
        for body in [
            format!("*** Update File: {path}\n@@\n-old\n+new\n"),
            format!("*** Add File: {path}\n+new\n"),
            format!("*** Delete File: {path}\n"),
        ] {
            let patch = format!("*** Begin Patch\n*** Add File: first.txt\n+x\n{body}*** End Patch\n");
            assert!(session.apply_patch(&patch, Default::default()).await.is_err(), "{patch}");
            assert!(session.stat("first.txt").await.unwrap().is_none(), "something was written: {patch}");
        }
    }
    let outside = session.exec(Exec::new(["cat", "/tmp/outside/file"])).await.unwrap();
    assert_eq!(outside.stdout_text(), "old\n");
    session.delete().await.unwrap();
}

fn tar(members: &[(Kind, &str, &str)]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (kind, path, content) in members {
        let mut member = Member::new(*kind, path.as_bytes(), 0o644);
        if *kind == Kind::Symlink {
            member.link = content.as_bytes().to_vec();
        } else {
            member.size = content.len() as u64;
        }
        archive.extend_from_slice(&member.encode());
        if member.size > 0 {
            archive.extend_from_slice(content.as_bytes());
            archive.resize(archive.len() + padding(member.size), 0);
        }
    }
    archive.extend_from_slice(&end());
    archive
}

pub(super) async fn an_archive_is_judged_before_it_is_unpacked(client: Arc<dyn SandboxClient>) {
    let session = open(&client, Manifest::new()).await;
    let good = tar(&[(Kind::Dir, "d", ""), (Kind::File, "d/a", "hello")]);
    session.extract("into", Extract::new("good.tar", once(good))).await.unwrap();
    assert_eq!(session.read("into/d/a").await.unwrap(), "hello");
    for bad in [("../x", "x"), ("/abs", "x"), ("a\\b", "x"), ("ok", "twice")] {
        let members = [(Kind::File, "ok", "first"), (Kind::File, bad.0, bad.1)];
        let archive = Extract::new("bad.tar", once(tar(&members)));
        assert_eq!(session.extract("fresh", archive).await.unwrap_err().code(), "archive_refused", "{bad:?}");
        assert!(session.stat("fresh").await.unwrap().is_none(), "{bad:?} left something");
    }
    // Existing entries count too: a link inside the workspace leads out of the target directory.
    session.exec(Exec::shell("mkdir into2 && ln -s /tmp into2/d")).await.unwrap().check().unwrap();
    let archive = Extract::new("good.tar", once(tar(&[(Kind::File, "d/a", "hello")])));
    assert!(session.extract("into2", archive).await.is_err());
    session.exec(Exec::new(["test", "!", "-e", "/tmp/a"])).await.unwrap().check().unwrap();
    let unknown = session.extract("x", Extract::new("x.rar", once("rar"))).await;
    assert_eq!(unknown.unwrap_err().code(), "invalid_compression_scheme");
    session.delete().await.unwrap();
}

pub(super) async fn a_workspace_survives_leaving_and_coming_back(client: Arc<dyn SandboxClient>) {
    let session = open(&client, Manifest::new().file("a", "x")).await;
    let scene = "mkdir -p d/empty && echo hi > d/f && chmod 750 d/f && ln -s f d/link && ln d/f d/hard && ln -s /usr/bin/env venv";
    session.exec(Exec::shell(scene)).await.unwrap().check().unwrap();
    let packed = collect(session.persist_workspace().await.unwrap(), 1 << 20).await.unwrap();
    let look = || Exec::shell("ls -lRA --time-style=+ . | awk '{print $1, $5, $6, $7, $8}'; cat d/f d/link d/hard a");
    let before = session.exec(look()).await.unwrap().stdout_text();
    session.exec(Exec::shell("rm -r d; echo y > a; echo z > later")).await.unwrap().check().unwrap();
    session.hydrate_workspace(once(packed.clone())).await.unwrap();
    let after = session.exec(look()).await.unwrap().stdout_text();
    // Hard links come back as files of their own, with the same bytes.
    assert_eq!(before.replace("total 20", "total"), after.replace("total 20", "total"));
    let torn = packed.slice(..packed.len() / 2);
    assert!(session.hydrate_workspace(once(torn)).await.is_err());
    assert_eq!(session.read("a").await.unwrap(), "x", "a torn archive removed something");
    let escaping = tar(&[(Kind::File, "../out", "x")]);
    assert_eq!(session.hydrate_workspace(once(escaping)).await.unwrap_err().code(), "archive_refused");
    assert_eq!(session.read("a").await.unwrap(), "x");
    session.delete().await.unwrap();
}

pub(super) async fn what_is_ephemeral_stays_out_and_comes_again(client: Arc<dyn SandboxClient>) {
    let manifest = Manifest::new()
        .file("kept", "x")
        .entry("notes", Dir::new().entry("cache", File::new("c").ephemeral()).file("note", "n"));
    let session = open(&client, manifest).await;
    let packed = collect(session.persist_workspace().await.unwrap(), 1 << 20).await.unwrap();
    session.write("kept", "edited").await.unwrap();
    session.write("notes/cache", "edited").await.unwrap();
    session.hydrate_workspace(once(packed)).await.unwrap();
    assert_eq!(session.read("kept").await.unwrap(), "x");
    assert_eq!(session.read("notes/cache").await.unwrap(), "edited", "what is ephemeral is not touched");
    session.write("kept", "edited").await.unwrap();
    session.remove("notes/cache").await.unwrap();
    session.apply_manifest(Scope::EphemeralOnly).await.unwrap();
    assert_eq!(session.read("notes/cache").await.unwrap(), "c");
    assert_eq!(session.read("kept").await.unwrap(), "edited");
    session.apply_manifest(Scope::All).await.unwrap();
    assert_eq!(session.read("kept").await.unwrap(), "x");
    session.delete().await.unwrap();
}

pub(super) async fn a_host_directory_arrives_whole(client: Arc<dyn SandboxClient>) {
    let temp = tempfile::tempdir().unwrap();
    let at = |path: &str| temp.path().join(path);
    std::fs::create_dir_all(at("tree/empty")).unwrap();
    std::fs::write(at("tree/run.sh"), "#!/bin/sh\necho ran\n").unwrap();
    std::fs::set_permissions(at("tree/run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(at("tree/skip.log"), "x").unwrap();
    std::os::unix::fs::symlink("run.sh", at("tree/link")).unwrap();
    let entry = LocalDir::new("tree").ignore("*.log");
    let manifest = Manifest::new().entry("repo", entry).file("repo/extra", "over it").base_dir(temp.path());
    let session = SandboxSession::create(client, SessionOptions::new(manifest)).await.unwrap();
    let arrived = session.start().await.unwrap();
    let paths: Vec<_> = arrived.receipts.iter().map(|receipt| receipt.path.as_str()).collect();
    assert_eq!(paths, ["repo/run.sh", "repo/extra"]);
    let ran = session.exec(Exec::new(["./link"]).cwd("repo")).await.unwrap().check().unwrap();
    assert_eq!(ran.stdout_text(), "ran\n");
    let names: Vec<_> = session.list("repo").await.unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["empty", "extra", "link", "run.sh"]);
    session.delete().await.unwrap();
}
