//! The same commands on machines at E2B, against a fake of the service that runs real processes.

use std::{fs, process::Command, time::Duration};

use sandbar_fakes::{Fault, On, e2b::Server};
use serde_json::{Value, json};

use super::{
    play::{patch, say, script, shell, told},
    rig::{Run, Sandbar, finish},
};

/// A command with a service to use.
fn command(sandbar: &Sandbar, server: &Server, words: &[&str]) -> Command {
    let mut command = sandbar.command(words);
    command.envs(server.env()).env("DOCKER_HOST", "unix:///no/such/docker.sock");
    command
}

fn sandbar_at(sandbar: &Sandbar, server: &Server, words: &[&str]) -> Run {
    finish(command(sandbar, server, words).spawn().expect("spawn"))
}

fn document(run: &Run) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"))
}

#[test]
fn an_agent_works_on_a_copy_that_is_uploaded_and_downloaded() {
    let (sandbar, server) = (Sandbar::own(), Server::start().expect("a server"));
    let source = sandbar.make_dir("source");
    sandbar.make_file("source/a.txt", "one\n");
    sandbar.make_file("source/run.sh", "#!/bin/sh\necho ran\n");
    std::os::unix::fs::symlink("a.txt", source.join("link")).expect("symlink");
    let change = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch\n";
    let look = "pwd; cat link; sh run.sh; echo made > b.txt; chmod 755 run.sh; ln -s b.txt out";
    let model = script(&sandbar, "work.json", [vec![shell(look)], vec![patch(change)], vec![say("done")]]);
    let words = ["run", "do it", "--json", "--model", &model, "--workspace", "source", "--sandbox", "e2b:base"];
    let told = told(command(&sandbar, &server, &words).spawn().expect("spawn"));
    assert_eq!((told.run.code, told.status()), (0, "completed"), "{told:?}");
    let outputs = told.outputs();
    for words in ["/home/user/workspace", "one", "ran"] {
        assert!(outputs.contains(words), "{words}: {outputs}");
    }
    assert_eq!(fs::read(source.join("a.txt")).expect("a"), b"one\n", "the source is untouched");
    let shown = sandbar.run(&["diff", told.id()]);
    for words in ["-one", "+two", "b.txt", "out"] {
        assert!(shown.stdout.contains(words), "{words}: {shown:?}");
    }
    assert!(!shown.stdout.contains("link"), "what was not changed is not shown: {shown:?}");
    assert_eq!(sandbar.run(&["apply", told.id()]).code, 0);
    assert_eq!(fs::read(source.join("a.txt")).expect("a"), b"two\n");
    assert_eq!(fs::read(source.join("b.txt")).expect("b"), b"made\n");
    assert_eq!(fs::read_link(source.join("out")).expect("a link").to_str(), Some("b.txt"));
    assert!(server.sandboxes().is_empty(), "the machine is gone");
}

#[test]
fn files_of_a_manifest_are_not_changes_of_the_agent() {
    let (sandbar, server) = (Sandbar::own(), Server::start().expect("a server"));
    sandbar.make_dir("source");
    sandbar.make_file("source/a.txt", "one\n");
    let manifest = json!({"entries": {"given.txt": {"type": "file", "content": "given\n"}}}).to_string();
    sandbar.make_file("manifest.json", manifest);
    let model =
        script(&sandbar, "work.json", [vec![shell("cat a.txt given.txt; echo new > c.txt")], vec![say("done")]]);
    let words = ["run", "x", "--json", "--model", &model, "--workspace", "source", "--manifest", "manifest.json"];
    let words: Vec<&str> = words.into_iter().chain(["--sandbox", "e2b"]).collect();
    let told = told(command(&sandbar, &server, &words).spawn().expect("spawn"));
    assert_eq!((told.run.code, told.status()), (0, "completed"), "{told:?}");
    assert!(told.outputs().contains("one\ngiven"), "{told:?}");
    let shown = sandbar.run(&["diff", told.id()]);
    assert!(shown.stdout.contains("c.txt") && !shown.stdout.contains("given.txt"), "{shown:?}");
}

#[test]
fn a_hosted_machine_refuses_in_place() {
    let (sandbar, server) = (Sandbar::own(), Server::start().expect("a server"));
    sandbar.make_dir("source");
    let model = script(&sandbar, "none.json", [vec![say("done")]]);
    let words = ["run", "x", "--model", &model, "--workspace", "source", "--in-place", "--sandbox", "e2b"];
    let refused = sandbar_at(&sandbar, &server, &words);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("--in-place") && refused.stderr.contains("sandbar apply"), "{refused:?}");
    let refused = sandbar_at(&sandbar, &server, &["exec", "--workspace", "source", "--sandbox", "e2b", "--", "true"]);
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(refused.stderr.contains("directories of the host; copy them"), "{refused:?}");
    assert!(server.requests().is_empty(), "nothing was asked for");
}

#[test]
fn commands_and_sessions_run_on_a_hosted_machine_and_leave_nothing() {
    let (sandbar, server) = (Sandbar::own(), Server::start().expect("a server"));
    let at = |words: &[&str]| sandbar_at(&sandbar, &server, words);
    let ran = at(&["exec", "--sandbox", "e2b", "--env", "A=b", "--", "sh", "-c", "echo $A; exit 7"]);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (7, "b\n", ""), "{ran:?}");
    assert!(server.sandboxes().is_empty());
    let made = at(&["session", "create", "--sandbox", "e2b:base", "--name", "far", "--json"]);
    assert_eq!((made.code, &document(&made)["isolation"]), (0, &json!("vm")), "{made:?}");
    let ran = at(&["session", "exec", "far", "--", "sh", "-c", "echo kept > f"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(at(&["session", "read", "far:f"]).stdout, "kept\n");
    let count = server.requests().len();
    let listed = at(&["session", "ls"]).stdout;
    assert!(listed.contains("running") && listed.contains("/home/user/workspace"), "{listed}");
    let asked: Vec<String> =
        server.requests()[count..].iter().map(|one| format!("{} {}", one.method, one.path)).collect();
    assert!(asked.iter().all(|line| line.starts_with("GET ")), "looking resumes nothing: {asked:?}");
    let kept = document(&at(&["gc", "--json"]));
    assert_eq!((kept["removed"].clone(), kept["providers"]["e2b"]["reached"].clone()), (json!([]), json!(true)));
    assert_eq!(at(&["session", "rm", "far"]).code, 0);
    assert!(server.sandboxes().is_empty());
}

#[test]
fn gc_removes_an_unrecorded_machine_of_a_killed_creator() {
    let (sandbar, server) = (Sandbar::own(), Server::start().expect("a server"));
    let at = |words: &[&str]| sandbar_at(&sandbar, &server, words);
    assert_eq!(at(&["session", "create", "--sandbox", "e2b", "--name", "stays"]).code, 0);
    // The service has made the machine, and its maker is killed before the whole reply has come.
    let slow = Fault::SlowBytes { at_once: 1, every: Duration::from_secs(5) };
    server.fault(On::post("/sandboxes"), slow, 1);
    let mut lost = command(&sandbar, &server, &["session", "create", "--sandbox", "e2b"]);
    let mut lost = lost.spawn().expect("spawn");
    super::rig::until("a second machine", super::rig::PATIENCE, || server.sandboxes().len() == 2);
    lost.kill().expect("kill");
    lost.wait().expect("wait");
    let others = Sandbar::own();
    let foreign = sandbar_at(&others, &server, &["gc", "--sandbox", "e2b", "--json"]);
    assert_eq!(document(&foreign)["removed"], json!([]), "another list's machines are not looked at: {foreign:?}");
    let dry = document(&at(&["gc", "--sandbox", "e2b", "--json", "--dry-run"]));
    assert_eq!((dry["removed"].as_array().map(Vec::len), server.sandboxes().len()), (Some(1), 2), "{dry}");
    let removed = document(&at(&["gc", "--sandbox", "e2b", "--json"]));
    assert_eq!(removed["removed"][0]["why"], "no session has it", "{removed}");
    assert_eq!(
        (removed["kept"][0]["why"].clone(), server.sandboxes().len()),
        (json!("a session has it"), 1),
        "{removed}"
    );
    assert_eq!(at(&["session", "rm", "stays"]).code, 0);
}

#[test]
fn an_unconfigured_provider_is_checked_only_by_name() {
    let sandbar = Sandbar::own();
    let run = |words: &[&str]| {
        let mut command = sandbar.command(words);
        finish(command.env_remove("E2B_API_KEY").env("DOCKER_HOST", "unix:///no/such").spawn().expect("spawn"))
    };
    let silent = run(&["gc", "--json"]);
    assert!(document(&silent)["providers"].get("e2b").is_none(), "{silent:?}");
    assert!(!run(&["doctor"]).stdout.contains("e2b"));
    for words in [&["gc", "--sandbox", "e2b"][..], &["exec", "--sandbox", "e2b", "--", "true"]] {
        let refused = run(words);
        assert!(refused.code != 0 && refused.stderr.contains("E2B_API_KEY: is not set"), "{refused:?}");
    }
    let server = Server::start().expect("a server");
    let told = document(&sandbar_at(&sandbar, &server, &["doctor", "--json"]));
    assert_eq!(told["providers"]["e2b"]["reached"], true, "{told}");
    let mut refused = sandbar.command(&["doctor", "--json"]);
    refused.envs(server.env()).env("E2B_API_KEY", "e2b_0000000000000000000000000000000000000000");
    let told = document(&finish(refused.spawn().expect("spawn")));
    assert_eq!(told["providers"]["e2b"]["reached"], false, "{told}");
    assert!(told["providers"]["e2b"]["reason"].as_str().is_some_and(|reason| reason.contains("E2B_API_KEY")), "{told}");
}

#[test]
fn the_demo_works_on_a_hosted_machine() {
    let (sandbar, server) = (Sandbar::own(), Server::start().expect("a server"));
    // Its script gives the program a quarter of a second to answer: a busy machine may need another try.
    let play = || sandbar_at(&sandbar, &server, &["demo", "--sandbox", "e2b"]);
    let played = (0..4).map(|_| play()).find(|played| played.stderr.contains("5 words")).unwrap_or_else(play);
    assert_eq!(played.code, 0, "{played:?}");
    assert!(played.stderr.contains("all tests pass") && played.stderr.contains("5 words"), "{played:?}");
}
