//! `run --user`: an agent as one of the machine's users, who may read the workspace and not change it.

use std::fs;

use super::{
    play::{run, say, script, shell},
    rig::each,
};

#[test]
fn an_agent_works_as_the_user_that_is_asked_for_before_that_of_its_file() {
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
            (&["--agent", "agent.toml", "--user", "1000"], "agent", ""),
        ] {
            let told = run(sandbar, &[&["--model", &model, "--workspace", "source"], options].concat());
            assert_eq!((told.run.code, told.status()), (0, "completed"), "{options:?}: {told:?}");
            let outputs = told.outputs();
            assert!(outputs.contains(&format!("{user}\nstep one\n")), "{options:?}: {outputs}");
            assert!(outputs.contains(said) && outputs.contains("kept") != said.is_empty(), "{options:?}: {outputs}");
            assert!(outputs.ends_with(&format!("{user}\n")), "{options:?}: {outputs}");
        }
        assert_eq!(fs::read(sandbar.dir().join("source/plan")).expect("read"), b"step one\n");
        let wrong = sandbar.run(&["run", "x", "--model", &model, "--user", "a:b"]);
        assert!(wrong.code == 2 && wrong.stderr.contains("may not begin with"), "{wrong:?}");
    });
}
