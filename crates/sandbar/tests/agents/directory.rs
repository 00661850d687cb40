//! The working directory and the user of an agent.

use sandbar::{Manifest, mock::item, prelude::*, sandbox::User};
use serde_json::json;

use crate::{
    files::png_file,
    rig::{Rig, call, done, exec, exited, news, workspace},
};

#[tokio::test]
async fn every_tool_uses_the_working_directory_of_the_run() {
    let root = workspace();
    let patch = "*** Begin Patch\n*** Add File: made.txt\n+x\n*** End Patch";
    let rig = Rig::turns([
        exec("pwd"),
        call("exec_command", json!({ "cmd": "pwd", "workdir": "inner" })),
        call("exec_command", json!({ "cmd": "pwd", "workdir": root })),
        item::custom_tool_call("apply_patch", patch),
        call("view_image", json!({ "path": "inner/red.png" })),
        call("view_image", json!({ "path": "missing.png" })),
        exec(&format!("apply_patch <<'EOF'\n{}\nEOF\n", patch.replace("made", "typed"))),
        exec(&format!("ls {root} {root}/sub/deep")),
        done(),
    ]);
    let manifest = Manifest::new().entry("sub/deep/inner", Dir::new()).entry("sub/deep/inner/red.png", png_file());
    let sandbox = rig.sandbox().cwd("sub/deep");
    run(rig.agent().manifest(manifest), "Go.").sandbox(sandbox).max_turns(20).await.expect("it ends well");
    let answers = rig.answers();
    let text = |index: usize| answers[index]["output"].as_str().expect("a text").to_owned();
    assert_eq!(news(&text(0)), exited(0, &format!("{root}/sub/deep\n")));
    assert_eq!(news(&text(1)), exited(0, &format!("{root}/sub/deep/inner\n")));
    assert_eq!(news(&text(2)), exited(0, &format!("{root}\n")));
    assert_eq!(text(3), "Created made.txt");
    assert!(answers[4]["output"][0]["image_url"].is_string(), "{}", answers[4]);
    assert!(text(5).contains("missing.png") && !text(5).contains("sub/deep"), "{}", text(5));
    assert_eq!(news(&text(6)), exited(0, "Success. Updated the following files:\nA typed.txt\n"));
    let listed = format!("{root}:\nsub\n\n{root}/sub/deep:\ninner\nmade.txt\ntyped.txt\n");
    assert_eq!(news(&text(7)), exited(0, &listed));
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn the_working_directory_must_be_a_directory_of_the_workspace() {
    for (cwd, why) in [
        ("", "empty"),
        ("/workspace", "absolute"),
        ("../etc", ".."),
        ("missing", "is no directory of the workspace that the agent can work in"),
        ("file.txt", "is no directory of the workspace that the agent can work in"),
    ] {
        let rig = Rig::turns([done()]);
        let agent = rig.agent().manifest(Manifest::new().file("file.txt", "x"));
        let message = rig.failure(&agent, rig.sandbox().cwd(cwd)).await;
        assert!(message.contains(why), "{cwd:?}: {message}");
        assert!(rig.bodies().is_empty());
        rig.leaves_nothing().await;
    }
}

#[tokio::test]
async fn the_working_directory_must_be_accessible_to_the_agents_user() {
    let rig = Rig::turns([done()]);
    let closed = Dir::new().mode(0o700);
    let agent = rig.agent().manifest(Manifest::new().entry("closed", closed)).run_as("nobody");
    let message = rig.failure(&agent, rig.sandbox().cwd("closed")).await;
    assert!(message.contains("is no directory of the workspace that the agent can work in"), "{message}");
    assert!(rig.bodies().is_empty());
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn an_agent_acts_as_its_user_in_every_tool() {
    let patch = "*** Begin Patch\n*** Add File: home/made.txt\n+x\n*** End Patch";
    let rig = Rig::turns([
        exec("id -un; touch mine"),
        item::custom_tool_call("apply_patch", patch),
        exec("stat -c %U home/made.txt"),
        done(),
    ]);
    let manifest = Manifest::new().entry("home", Dir::new().mode(0o777));
    rig.run(&rig.agent().manifest(manifest.user(User::new("nobody"))).run_as("nobody")).await;
    let outputs = rig.texts();
    assert!(outputs[0].contains("Output:\nnobody\n") && outputs[0].contains("denied"), "{}", outputs[0]);
    assert_eq!(outputs[1], "Created home/made.txt");
    // tidy: allow(pronoun) — the name of an account
    assert_eq!(news(&outputs[2]), exited(0, "nobody\n"));
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn an_undeclared_user_cannot_be_added_to_a_running_session() {
    let rig = Rig::turns([exec("id -un"), done()]);
    let session = rig.session(Manifest::new()).await;
    let message = rig.failure(&rig.agent().run_as("nobody"), (&session).into()).await;
    assert!(message.contains("the users: cannot be changed on a session that is running"), "{message}");
    session.delete().await.expect("it ends");
    let session = rig.session(Manifest::new().user(User::new("nobody"))).await;
    run(rig.agent().run_as("nobody"), "Go.").sandbox(&session).await.expect("it ends well");
    // tidy: allow(pronoun) — the name of an account
    assert_eq!(news(&rig.texts()[0]), exited(0, "nobody\n"));
    session.delete().await.expect("it ends");
    // A fresh session gets the user.
    rig.run(&rig.agent().run_as("nobody")).await;
    // tidy: allow(pronoun) — the name of an account
    assert_eq!(news(&rig.texts()[0]), exited(0, "nobody\n"));
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_missing_user_is_created() {
    let rig = Rig::turns([exec("id -un; echo $HOME; cd && touch mine && stat -c '%U %G' mine"), done()]);
    rig.run(&rig.agent().run_as("ann")).await;
    assert_eq!(news(&rig.texts()[0]), exited(0, "ann\n/home/ann\nann ann\n"));
    let message = rig.failure(&rig.agent().run_as("no such; user"), rig.sandbox()).await;
    assert!(message.contains("no such; user"), "{message}");
    rig.leaves_nothing().await;
}
