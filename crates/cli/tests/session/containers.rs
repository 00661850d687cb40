//! Sessions in containers.

use std::process::Command;

use super::{
    made::Made,
    rig::{Sandbar, has_engine},
};

const NAME: &str = "sandbar-test:bookworm";
const IMAGE: &str = "docker:sandbar-test:bookworm";

/// The container that a session's record names.
fn container(sandbar: &Sandbar, id: &str) -> String {
    let record = std::fs::read_dir(sandbar.dir().join("state/sandbar/sessions"))
        .expect("sessions")
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path()).ok())
        .find(|text| text.contains(id))
        .expect("a record");
    let record: serde_json::Value = serde_json::from_str(&record).expect("json");
    record["machine"]["state"]["container"].as_str().expect("a name").to_owned()
}

fn exists(container: &str) -> bool {
    Command::new("docker").args(["inspect", container]).output().expect("docker").status.success()
}

#[test]
fn a_session_keeps_its_container_until_it_is_removed() {
    if !has_engine(NAME) {
        return;
    }
    let sandbar = Sandbar::own();
    sandbar.make_file("m.yaml", "users: [ada]\nentries: {note: {type: file, content: hello}}\n");
    let made = Made::new(&sandbar, &["--sandbox", IMAGE, "--manifest", "m.yaml", "--env", "A=b"]);
    let container = container(&sandbar, &made.id);
    assert!(exists(&container));
    // Each of these is another process.
    let run = made.sh("cat note; echo; echo $A; cat /etc/debian_version | cut -c1-2; echo kept > left");
    assert_eq!((run.code, run.stdout.as_str()), (0, "hello\nb\n12\n"), "{run:?}");
    assert_eq!(made.does(&["read", &made.at("left")]), "kept\n");
    let run = sandbar.run(&["session", "exec", "--user", "ada", &made.id, "--", "id", "-un"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "ada\n"), "{run:?}");
    assert_eq!(made.listed().expect("it is listed")["state"], "running");
    made.does(&["rm", &made.id]);
    assert!(!exists(&container) && made.listed().is_none());
}

#[test]
fn a_session_is_gone_if_its_container_was_removed() {
    if !has_engine(NAME) {
        return;
    }
    let sandbar = Sandbar::own();
    let made = Made::new(&sandbar, &["--sandbox", IMAGE]);
    let container = container(&sandbar, &made.id);
    let killed = Command::new("docker").args(["rm", "--force", "--volumes", &container]).output().expect("docker");
    assert!(killed.status.success(), "{killed:?}");
    assert_eq!(made.listed().expect("it is listed")["state"], "gone");
    let run = made.sh("true");
    assert!(run.code != 0 && run.stderr.contains("is gone; its machine ended"), "{run:?}");
    made.does(&["rm", &made.id]);
}

#[test]
fn without_its_engine_a_session_is_unknown_and_retained() {
    if !has_engine(NAME) {
        return;
    }
    let sandbar = Sandbar::own();
    let made = Made::new(&sandbar, &["--sandbox", IMAGE]);
    let blind = |words: &[&str]| {
        let mut command = sandbar.command(words);
        super::rig::finish(command.env("DOCKER_HOST", "unix:///nowhere/docker.sock").spawn().expect("spawn"))
    };
    let listed = blind(&["session", "ls"]);
    assert!(listed.code == 0 && listed.stdout.contains("unknown"), "{listed:?}");
    let refused = blind(&["session", "rm", &made.id]);
    assert!(refused.code != 0 && refused.stderr.contains("/nowhere/docker.sock"), "{refused:?}");
    assert_eq!(made.listed().expect("it is listed")["state"], "running");
    made.does(&["rm", &made.id]);
}
