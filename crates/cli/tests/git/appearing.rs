//! Every command reports a repository that is new, or that replaced another one.

use serde_json::json;

use super::{
    client::Client,
    play::{say, script, shell},
    repository::{Repository, bare_layout, setting},
    rig::{Sandbar, each},
};

/// Whether git at a place of the host runs what was put there.
fn is_dangerous(sandbar: &Sandbar, dir: &str) -> bool {
    let used = sandbar.host(&sandbar.dir().join(dir), &["git", "status"]);
    let found = sandbar.dir().join("marker").exists();
    assert!(found, "{used:?}");
    std::fs::remove_file(sandbar.dir().join("marker")).unwrap();
    found
}

#[test]
fn every_command_reports_a_new_repository() {
    each(|sandbar| {
        let attack = format!("mkdir sub; cd sub; {}; cd ..; mkdir .git", bare_layout(sandbar));
        for name in ["one", "two", "three", "four"] {
            sandbar.make_dir(name);
        }
        let exec = sandbar.run(&["exec", "--workspace", "one", "--", "sh", "-c", &attack]);
        let model = script(sandbar, "attack.json", [vec![shell(&attack)], vec![say("done")]]);
        let run = sandbar.run(&["run", "x", "--model", &model, "--workspace", "two", "--in-place"]);
        let mut client = Client::start(sandbar, &["--workspace", "three"]);
        client.exec(&attack);
        let mcp = client.close();
        let made = sandbar.run(&["session", "create", "--workspace", "four"]);
        let id = made.stdout.trim();
        let session = sandbar.run(&["session", "exec", id, "--", "sh", "-c", &attack]);
        for (name, told) in [("one", &exec), ("two", &run), ("three", &mcp), ("four", &session)] {
            assert_eq!(told.code, 0, "{told:?}");
            for place in ["sub", ".git"] {
                let words = format!("{name}/{place} appeared during the work");
                assert!(told.stderr.contains(&words), "{words}: {told:?}");
            }
            assert!(is_dangerous(sandbar, &format!("{name}/sub")));
        }
        // It is said once, and what came later at the end.
        let again = sandbar.run(&["session", "exec", id, "--", "true"]);
        assert_eq!((again.code, again.stderr.as_str()), (0, ""), "{again:?}");
        let later = "mkdir later; mkdir later/.git; echo made";
        let started = sandbar.run(&["session", "exec", "--detach", id, "--", "sh", "-c", later]);
        assert_eq!((started.code, started.stderr.as_str()), (0, ""), "{started:?}");
        let file = sandbar.dir().join("four/later/.git");
        super::rig::until("it is made", super::rig::PATIENCE, || file.exists());
        let removed = sandbar.run(&["session", "rm", id]);
        assert!(removed.code == 0 && removed.stderr.contains("four/later/.git appeared"), "{removed:?}");
    });
}

#[test]
fn a_bare_repository_in_the_top_directory_is_reported() {
    each(|sandbar| {
        sandbar.make_dir("work");
        let run = sandbar.run(&["exec", "--workspace", "work", "--", "sh", "-c", &bare_layout(sandbar)]);
        assert!(run.code == 0 && run.stderr.contains("work appeared during the work"), "{run:?}");
        assert!(is_dangerous(sandbar, "work"));
    });
}

#[test]
fn a_replaced_repository_is_reported() {
    each(|sandbar| {
        let replace = "mv a old; mkdir -p a/b; cp -r old/b/.git a/b/.git";
        let attack = |repository: &Repository| format!("{replace}; {}", repository.attack);
        let repository = Repository::make(sandbar, "nested");
        let run = sandbar.run(&["exec", "--workspace", "work", "--", "sh", "-c", &attack(&repository)]);
        assert!(run.stderr.contains("work/a/b/.git was moved away and replaced during the work"), "{run:?}");
        assert!(!run.stderr.contains("work/old"), "what was moved is what it was: {run:?}");
        assert!(repository.is_taken_over(sandbar), "what is told of is a danger");
        let repository = Repository::make(sandbar, "nested");
        let made = sandbar.run(&["session", "create", "--workspace", "work"]);
        let id = made.stdout.trim();
        let run = sandbar.run(&["session", "exec", id, "--", "sh", "-c", &attack(&repository)]);
        assert!(run.stderr.contains("was moved away and replaced"), "{run:?}");
        assert_eq!(sandbar.run(&["session", "rm", id]).code, 0);
        let repository = Repository::make(sandbar, "nested");
        let mut client = Client::start(sandbar, &["--workspace", "work"]);
        client.done("exec_command", json!({"cmd": attack(&repository), "yield_time_ms": 30000}));
        let run = client.close();
        assert!(run.stderr.contains("was moved away and replaced"), "{run:?}");
        assert!(repository.is_taken_over(sandbar));
    });
}

#[test]
fn a_new_file_that_a_configuration_names_is_reported() {
    each(|sandbar| {
        let repository = Repository::make(sandbar, "directory");
        let named = sandbar.host(&repository.work, &["git", "config", "include.path", "../.shared"]);
        assert_eq!(named.code, 0, "{named:?}");
        let attack = setting(".shared", &sandbar.dir().join("marker"));
        let run = sandbar.run(&["exec", "--workspace", "work", "--", "sh", "-c", &attack]);
        assert!(run.code == 0 && run.stderr.contains("work/.shared appeared during the work"), "{run:?}");
        assert!(repository.is_taken_over(sandbar), "what is told of is a danger");
    });
}

#[test]
fn a_replaced_target_of_a_pointer_is_reported() {
    each(|sandbar| {
        sandbar.make_dir("work");
        let init = "cd work; mkdir deep; git init -q --separate-git-dir=deep/store .; echo 'gitdir: deep/store' > .git";
        let made = sandbar.host(sandbar.dir(), &["sh", "-ec", init]);
        assert_eq!(made.code, 0, "{made:?}");
        let attack = setting("deep/store/config", &sandbar.dir().join("marker"));
        let exchange = format!("mv deep old; mkdir deep; cp -r old/store deep/store; {attack}");
        let run = sandbar.run(&["exec", "--workspace", "work", "--", "sh", "-c", &exchange]);
        assert!(run.code == 0 && run.stderr.contains("deep/store was moved away and replaced"), "{run:?}");
        assert!(is_dangerous(sandbar, "work"));
    });
}
