//! `apply` asks before it writes files that tools run or read on their own.

use std::fs;

use rustix::termios::Action;
use serde_json::{Value, json};

use super::{
    play::{run, say, script, shell},
    rig::{PATIENCE, Sandbar, each, until},
    screen::Terminal,
};

/// A run that changed some of those, and something else.
fn changed(sandbar: &Sandbar) -> String {
    sandbar.make_dir("work");
    sandbar.make_file("work/package.json", "{\"version\": \"1\"}\n");
    let command = "echo 'touch marker' > .envrc; mkdir -p .vscode; echo {} > .vscode/tasks.json; echo x > fine; \
        echo '{\"scripts\": {\"postinstall\": \"x\"}}' > package.json";
    let model = script(sandbar, "work.json", [vec![shell(command)], vec![say("done")]]);
    let told = run(sandbar, &["--model", &model, "--workspace", "work"]);
    assert_eq!(told.run.code, 0, "{told:?}");
    told.id().to_owned()
}

#[test]
fn without_a_terminal_files_that_tools_run_are_not_written() {
    each(|sandbar| {
        let id = changed(sandbar);
        let work = sandbar.dir().join("work");
        let refused = sandbar.run(&["apply", &id]);
        assert_eq!((refused.code, refused.stdout.as_str()), (3, ""), "{refused:?}");
        for words in [".envrc: the shell obeys it", ".vscode/tasks.json: an editor", "package.json: npm runs", "--yes"]
        {
            assert!(refused.stderr.contains(words), "{words}: {refused:?}");
        }
        let document = sandbar.run(&["apply", &id, "--json"]);
        let text: Value = serde_json::from_str(&document.stdout).unwrap();
        assert_eq!((document.code, &text["status"]), (3, &json!("needs_consent")), "{text}");
        let paths: Vec<_> = text["obeyed"].as_array().unwrap().iter().map(|one| one["path"].clone()).collect();
        assert_eq!(paths, [".envrc", ".vscode/tasks.json", "package.json"], "{text}");
        assert_eq!(fs::read_dir(&work).unwrap().count(), 1, "nothing was written");
        let dry = sandbar.run(&["apply", &id, "--dry-run"]);
        assert!(dry.code == 0 && dry.stdout.contains("A .envrc  (the shell obeys it)\n"), "{dry:?}");
        assert!(dry.stdout.contains("A fine\n"), "{dry:?}");
        let done = sandbar.run(&["apply", &id, "--yes"]);
        assert!(done.code == 0 && done.stdout.contains("applied 4 changes"), "{done:?}");
        assert!(work.join(".envrc").exists());
    });
}

#[test]
fn on_a_terminal_the_user_is_asked() {
    let sandbar = Sandbar::own();
    let id = changed(&sandbar);
    let work = sandbar.dir().join("work");
    let mut terminal = Terminal::open(&sandbar, &["apply", &id]);
    terminal.shows("[y/N]");
    terminal.types("\r");
    let (run, shown) = terminal.ends();
    assert!(run.code == 3 && shown.contains("nothing was changed"), "{shown}");
    assert_eq!(fs::read_dir(&work).unwrap().count(), 1);
    let mut terminal = Terminal::open(&sandbar, &["apply", &id]);
    terminal.shows("[y/N]");
    terminal.types("y\r");
    let (run, shown) = terminal.ends();
    assert!(run.code == 0 && shown.contains("applied 4 changes"), "{shown}");
    assert!(work.join(".envrc").exists());
}

/// The answer to a question on the screen was discarded if it came before the command began to read.
#[test]
fn an_answer_counts_from_the_moment_the_question_is_shown() {
    let sandbar = Sandbar::own();
    let id = changed(&sandbar);
    let mut terminal = Terminal::open(&sandbar, &["apply", &id]);
    terminal.output(Action::OOff);
    until("it writes the question", PATIENCE, || terminal.is_writing());
    terminal.types("y\r");
    terminal.output(Action::OOn);
    let (run, shown) = terminal.ends();
    assert!(run.code == 0 && shown.contains("applied 4 changes"), "{shown}");
}
