//! Promises about several users in one session.

use std::{os::unix::fs::PermissionsExt, sync::Arc};

use sandbar_machine::{
    SandboxClient,
    conformance::{Need, Verdict},
};

use super::{PNG, lacking};
use crate::{
    Dir, Exec, File, Group, LocalDir, LocalFile, Manifest, SandboxSession, SessionOptions, User,
    image::{ImageOutcome, ViewImageArgs},
};

/// A session, or the verdict if the machine supports no users, or cannot give files to a group.
async fn open(client: &Arc<dyn SandboxClient>, manifest: Manifest) -> Result<SandboxSession, Verdict> {
    match SandboxSession::open(client.clone(), SessionOptions::new(manifest)).await {
        Ok(session) => Ok(session),
        Err(error) if error.code() == "account_unavailable" => {
            let plain = super::open(client, Manifest::new()).await;
            assert!(!plain.machine().features().users, "{}", error.full_message());
            plain.delete().await.unwrap();
            Err(lacking(Need::Users))
        }
        Err(error) => {
            let said = error.full_message();
            assert!(said.contains("cannot give what is made to a group"), "{said}");
            Err(Verdict::Lacking("a way to give files to a group".to_owned()))
        }
    }
}

async fn says(session: &SandboxSession, script: &str) -> String {
    session.exec(Exec::shell(script)).await.unwrap().stdout_text()
}

async fn succeeds(session: &SandboxSession, script: &str) -> bool {
    session.exec(Exec::shell(script)).await.unwrap().exit.success()
}

/// Two users share one live session: the second reads what the first writes, and cannot change it.
pub(super) async fn two_users_share_a_session(client: Arc<dyn SandboxClient>) -> Verdict {
    let manifest = Manifest::new()
        .user(User::new("coordinator"))
        .user(User::new("reviewer"))
        .entry("plans", Dir::new().mode(0o775).group("coordinator"));
    let session = match open(&client, manifest).await {
        Ok(session) => session,
        Err(lack) => return lack,
    };
    let (coordinator, reviewer) = (session.user("coordinator"), session.user("reviewer"));
    coordinator.write("plans/plan.md", "step one\n").await.unwrap();
    assert_eq!(says(&coordinator, "id -un; stat -c %U plans/plan.md").await, "coordinator\ncoordinator\n");
    assert_eq!(reviewer.read("plans/plan.md").await.unwrap(), "step one\n");
    assert_eq!(says(&reviewer, "id -un; cat plans/plan.md").await, "reviewer\nstep one\n");
    let patch = "*** Begin Patch\n*** Update File: plans/plan.md\n@@\n-step one\n+step 1\n*** End Patch\n";
    assert!(reviewer.write("plans/plan.md", "x").await.is_err());
    assert!(reviewer.apply_patch(patch, Default::default()).await.is_err());
    assert!(reviewer.remove("plans/plan.md").await.is_err());
    for attempt in
        ["echo x >>plans/plan.md", "rm -f plans/plan.md", "mv plans/plan.md plans/x", "chmod 777 plans/plan.md"]
    {
        assert!(!succeeds(&reviewer, attempt).await, "{attempt}");
    }
    assert_eq!(session.read("plans/plan.md").await.unwrap(), "step one\n");
    coordinator.apply_patch(patch, Default::default()).await.unwrap();
    assert_eq!(reviewer.read("plans/plan.md").await.unwrap(), "step 1\n");
    session.delete().await.unwrap();
    Verdict::Kept
}

/// A file that only its owner may read is closed to other users in every tool.
pub(super) async fn one_users_file_is_closed_to_every_tool_of_another(client: Arc<dyn SandboxClient>) -> Verdict {
    let manifest = Manifest::new()
        .user(User::new("ada"))
        .user(User::new("bob"))
        .entry("room", Dir::new().mode(0o777))
        .entry("room/open.png", File::new(PNG).mode(0o644));
    let session = match open(&client, manifest).await {
        Ok(session) => session,
        Err(lack) => return lack,
    };
    let (ada, bob) = (session.user("ada"), session.user("bob"));
    assert!(succeeds(&ada, "umask 077; echo one >room/note && cp room/open.png room/shut.png").await);
    let patch = "*** Begin Patch\n*** Update File: room/note\n@@\n-one\n+two\n*** End Patch\n";
    assert!(bob.read("room/note").await.is_err());
    assert!(bob.write("room/note", "x").await.is_err());
    assert!(bob.apply_patch(patch, Default::default()).await.is_err());
    assert!(!succeeds(&bob, "cat room/note").await);
    let seen = async |who: &SandboxSession, path: &str| {
        matches!(who.view_image(&ViewImageArgs::new(path)).await, Ok(ImageOutcome::Image(_)))
    };
    assert!(!seen(&bob, "room/shut.png").await);
    assert!(seen(&bob, "room/open.png").await && seen(&ada, "room/shut.png").await, "images can be looked at");
    assert_eq!(ada.read("room/note").await.unwrap(), "one\n");
    ada.apply_patch(patch, Default::default()).await.unwrap();
    assert_eq!(ada.read("room/note").await.unwrap(), "two\n");
    assert!(session.read("room/note").await.is_err(), "the default user is another one too");
    session.delete().await.unwrap();
    Verdict::Kept
}

/// Entries have the group and the permissions that the manifest declares.
pub(super) async fn entries_have_their_group_and_permissions(client: Arc<dyn SandboxClient>) -> Verdict {
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(temp.path().join("tree/deep")).unwrap();
    std::fs::write(temp.path().join("tree/deep/file"), "x").unwrap();
    std::fs::set_permissions(temp.path().join("tree/deep/file"), std::fs::Permissions::from_mode(0o640)).unwrap();
    let manifest = Manifest::new()
        .user(User::new("bob"))
        .group(Group::new("staff").user("ada"))
        .entry("note", File::new("for staff").mode(0o640).group("staff"))
        .entry("shut", Dir::new().mode(0o550))
        .entry("shut/in", File::new("x").mode(0o440).group("staff"))
        .entry("shut/own", File::new("x").group("bob"))
        .entry("ours", Dir::new().mode(0o770).group("staff"))
        .entry("ours/plain", File::new("x").mode(0o600))
        .entry("tree", LocalDir::new("tree").mode(0o750).group("staff"))
        .entry("one", LocalFile::new("tree/deep/file").mode(0o604).group("staff"))
        .base_dir(temp.path());
    let session = match open(&client, manifest).await {
        Ok(session) => session,
        Err(lack) => return lack,
    };
    let places = "note shut shut/in shut/own ours ours/plain tree tree/deep tree/deep/file one";
    assert_eq!(
        says(&session, &format!("stat -c '%n %U %G %a' {places}")).await,
        "note agent staff 640\nshut agent agent 550\nshut/in agent staff 440\nshut/own agent bob 755\n\
         ours agent staff 770\nours/plain agent agent 600\ntree agent staff 750\ntree/deep agent staff 755\n\
         tree/deep/file agent staff 640\none agent staff 604\n"
    );
    for (user, may) in [("ada", true), ("bob", false)] {
        let user = session.user(user);
        assert_eq!(user.read("note").await.is_ok(), may);
        assert_eq!(user.read("tree/deep/file").await.is_ok(), may);
        assert_eq!(user.write("ours/new", "x").await.is_ok(), may);
        assert_eq!(succeeds(&user, "cat note && ls ours").await, may);
    }
    // A patch does not change the group of a file.
    let patch = "*** Begin Patch\n*** Update File: note\n@@\n-for staff\n+for all staff\n*** End Patch\n";
    session.apply_patch(patch, Default::default()).await.unwrap();
    assert_eq!(says(&session, "stat -c '%U %G %a' note").await, "agent staff 640\n");
    let stray = Manifest::new().entry("late", File::new("x").group("nowhere"));
    assert_eq!(session.add_entries(stray).await.unwrap_err().code(), "account_unavailable");
    session.add_entries(Manifest::new().entry("late", File::new("x").group("staff"))).await.unwrap();
    assert_eq!(says(&session, "stat -c %G late").await, "staff\n");
    session.delete().await.unwrap();
    Verdict::Kept
}
