//! `session`, `run --in-place` and `mcp` protect repositories as `exec` does.

use serde_json::json;

use super::{
    client::Client,
    play::{run, say, script, shell},
    repository::Repository,
    rig::each,
};

#[test]
fn a_session_does_not_change_repositories() {
    each(|sandbar| {
        let repository = Repository::make(sandbar, "worktrees");
        for (options, is_taken_over) in [(&[][..], false), (&["--git", "rw"], true)] {
            let made = sandbar.run(&[&["session", "create", "--workspace", "work"], options].concat());
            assert_eq!((made.code, made.stderr.as_str()), (0, ""), "{made:?}");
            let id = made.stdout.trim();
            let run = sandbar.run(&["session", "exec", id, "--", "sh", "-c", &repository.attack]);
            assert_eq!(run.stderr.contains("Read-only file system"), !is_taken_over, "{run:?}");
            // The same by way of its files.
            sandbar.make_file("evil", "[core]\n");
            let copied = sandbar.run(&["session", "cp", "evil", &format!("{id}:.bare/config.worktree")]);
            assert_eq!(copied.code == 0, is_taken_over, "{copied:?}");
            assert_eq!(sandbar.run(&["session", "rm", id]).code, 0);
            assert_eq!(repository.is_taken_over(sandbar), is_taken_over, "{options:?}");
        }
        assert_eq!(std::fs::read_dir(sandbar.dir().join("state/sandbar/repositories")).unwrap().count(), 0);
    });
}

#[test]
fn a_copy_out_of_a_session_does_not_change_repositories() {
    each(|sandbar| {
        let repository = Repository::make(sandbar, "separate");
        let made = sandbar.run(&["session", "create"]);
        let id = made.stdout.trim();
        let script =
            format!("mkdir .bare; touch .git fine; {}; rm .git; mkdir new; git init -q new", repository.attack);
        let run = sandbar.run(&["session", "exec", id, "--", "sh", "-c", &script]);
        assert_eq!(run.code, 0, "{run:?}");
        for (from, to) in [(".", "work"), (".bare", "work"), (".bare/config", "work/.bare/")] {
            let copied = sandbar.run(&["session", "cp", &format!("{id}:{from}"), to]);
            assert!(copied.code == 1 && copied.stderr.contains("--git rw"), "{from} to {to}: {copied:?}");
            assert!(!repository.is_taken_over(sandbar), "{from} to {to}");
        }
        let copied = sandbar.run(&["session", "cp", &format!("{id}:new"), "work"]);
        assert!(copied.code == 0 && copied.stderr.contains("work/new/.git appeared"), "{copied:?}");
        let copied = sandbar.run(&["session", "cp", &format!("{id}:fine"), "work"]);
        assert_eq!((copied.code, copied.stderr.as_str()), (0, ""), "{copied:?}");
        let words = ["session", "cp", "--git", "rw", &format!("{id}:.bare/config"), "work/.bare/"];
        assert_eq!(sandbar.run(&words).code, 0);
        sandbar.host(&repository.work, &["git", "config", "core.repositoryformatversion", "0"]);
        assert!(repository.is_taken_over(sandbar), "the control");
        assert_eq!(sandbar.run(&["session", "rm", id]).code, 0);
    });
}

#[test]
fn an_agent_in_place_does_not_change_repositories() {
    each(|sandbar| {
        let repository = Repository::make(sandbar, "worktrees");
        let model = script(sandbar, "attack.json", [vec![shell(&repository.attack)], vec![say("done")]]);
        for (options, is_taken_over) in [(&[][..], false), (&["--git", "rw"], true)] {
            let words = ["--model", &model, "--workspace", "work", "--in-place"];
            let told = run(sandbar, &[&words, options].concat());
            assert_eq!((told.run.code, told.status()), (0, "completed"), "{told:?}");
            assert_eq!(told.outputs().contains("Read-only file system"), !is_taken_over, "{told:?}");
            assert_eq!(repository.is_taken_over(sandbar), is_taken_over, "{options:?}");
        }
    });
}

#[test]
fn an_mcp_client_does_not_change_repositories() {
    each(|sandbar| {
        let repository = Repository::make(sandbar, "worktrees");
        let mut client = Client::start(sandbar, &["--workspace", "work"]);
        let refused = client.refused("write_file", json!({"path": ".bare/config", "content": "x"}));
        assert!(refused.contains("ead-only"), "{refused}");
        let said = client.exec(&repository.attack);
        assert!(said.contains("Read-only file system"), "{said}");
        // Nothing that a client says lifts it.
        let tried = client.call("exec_command", json!({"cmd": repository.attack, "git": "rw", "yield_time_ms": 30000}));
        assert!(tried.is_error || tried.text.contains("Read-only file system"), "{tried:?}");
        assert_eq!(client.close().stderr, "");
        assert!(!repository.is_taken_over(sandbar));
        let mut client = Client::start(sandbar, &["--workspace", "work", "--git", "rw"]);
        client.exec(&repository.attack);
        assert_eq!(client.close().stderr, "");
        assert!(repository.is_taken_over(sandbar), "the control");
    });
}
