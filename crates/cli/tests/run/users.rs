//! `run --user`: an agent as a user of the machine, who can read the workspace but not change it.

use std::{cell::Cell, fs, os::unix::fs::PermissionsExt};

use super::{
    play::{run, say, script, shell},
    rig::{Sandbar, each},
};

#[test]
fn the_user_option_overrides_the_user_of_the_agent_file() {
    each(|sandbar| {
        sandbar.make_dir("source");
        sandbar.make_file("source/plan", "step one\n");
        sandbar.make_file("agent.toml", "run_as = \"reviewer\"\n");
        let look = "id -un; cat plan; echo x >> plan || echo kept; touch ~/mine && stat -c %U ~/mine";
        let model = script(sandbar, "look.json", [vec![shell(look)], vec![say("done")]]);
        for (options, user, said) in [
            (&["--user", "ada"][..], "ada", "denied"),
            (&["--agent", "agent.toml"], "reviewer", "denied"),
            (&["--agent", "agent.toml", "--user", "ada"], "ada", "denied"),
            // The control: the workspace is the agent's.
            (&["--agent", "agent.toml", "--user", "agent"], "agent", ""),
        ] {
            let told = run(sandbar, &[&["--model", &model, "--workspace", "source"], options].concat());
            assert_eq!((told.run.code, told.status()), (0, "completed"), "{options:?}: {told:?}");
            let outputs = told.outputs();
            assert!(outputs.contains(&format!("{user}\nstep one\n")), "{options:?}: {outputs}");
            assert!(outputs.contains(said) && outputs.contains("kept") != said.is_empty(), "{options:?}: {outputs}");
            assert!(outputs.ends_with(&format!("{user}\n")), "{options:?}: {outputs}");
        }
        assert_eq!(fs::read(sandbar.dir().join("source/plan")).expect("read"), b"step one\n");
        for (user, said) in [("a:b", "may not begin with"), ("1001", "may not be a number")] {
            let wrong = sandbar.run(&["run", "x", "--model", &model, "--user", user]);
            assert!(wrong.code == 2 && wrong.stderr.contains(said), "{wrong:?}");
        }
    });
}

#[test]
fn files_of_another_user_can_be_read_applied_and_removed() {
    let applied = Cell::new(0);
    each(|sandbar| {
        let source = sandbar.make_dir("source");
        sandbar.make_dir("source/open");
        fs::set_permissions(source.join("open"), fs::Permissions::from_mode(0o777)).expect("chmod");
        // What root runs in a directory of the host leaves no other user room there.
        let work = "mkdir -m 700 open/x 2>/dev/null || exit 0; echo hi > open/x/f; chmod 0 open/x/f; mkdir -m 0 open/y";
        let model = script(sandbar, "work.json", [vec![shell(work)], vec![say("done")]]);
        let told = run(sandbar, &["--model", &model, "--workspace", "source", "--user", "bob"]);
        assert_eq!((told.run.code, told.status()), (0, "completed"), "{told:?}");
        let made = sandbar.run(&["diff", told.id()]);
        assert_eq!((made.code, made.stderr.contains("cannot read")), (0, false), "{made:?}");
        if made.stdout.contains("open/x/f") {
            assert!(made.stdout.contains("+hi"), "{made:?}");
            assert_eq!(sandbar.run(&["apply", told.id()]).code, 0);
            assert_eq!(fs::read(source.join("open/x/f")).expect("applied"), b"hi\n");
            applied.set(applied.get() + 1);
        }
        let removed = sandbar.run(&["runs", "rm", told.id()]);
        assert_eq!((removed.code, removed.stderr.as_str()), (0, ""), "{removed:?}");
        let left: Vec<_> = fs::read_dir(sandbar.dir().join("state/sandbar/runs")).expect("runs").collect();
        assert!(left.is_empty(), "{left:?}");
    });
    assert_eq!(applied.get(), 1, "an ordinary user's other users make files there");
}

#[test]
fn a_user_with_the_name_of_a_group_is_refused() {
    let sandbar = Sandbar::own();
    sandbar.make_file("m.yaml", "groups: [{name: team, users: [{name: bob}]}]\n");
    // An entry can bring one, too.
    sandbar.make_file("e.yaml", "entries: {d: {type: dir, group: {name: team, users: [{name: bob}]}}}\n");
    let model = script(&sandbar, "say.json", [vec![say("done")]]);
    for words in [&["run", "x", "--model", &model][..], &["exec"], &["mcp"]] {
        for manifest in ["m.yaml", "e.yaml"] {
            let tail: &[&str] = if words[0] == "exec" { &["--", "true"] } else { &[] };
            let wrong = sandbar.run(&[words, &["--manifest", manifest, "--user", "team"], tail].concat());
            assert!(wrong.code != 0 && wrong.stderr.contains("has a group of this name"), "{wrong:?}");
        }
    }
}
