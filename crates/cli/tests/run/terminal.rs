//! Runs on a terminal: the screen, approvals, and restoring the mode.

use std::{thread, time::Duration};

use rustix::termios::{LocalModes, tcgetattr};
use serde_json::Value;

use super::{
    play::{patch, say, script, shell},
    rig::{PATIENCE, Sandbar, each, marked, nap, naps, until},
    screen::{Terminal, resize},
};

const ASK: &str = "allow it? [y]es, [a]ll exec_command calls from now on, [n]o REASON, [v]iew, [q]uit, [?]: ";

const SPINNER: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// What stands on a screen of this size after all that was shown.
fn screen(shown: &str, rows: u16, cols: u16) -> String {
    let mut parser = vt100::Parser::new(rows, cols, 0);
    parser.process(shown.as_bytes());
    parser.screen().contents()
}

/// A command that is in the middle of something until `go` is there.
fn held(sandbar: &Sandbar) -> (Value, [&'static str; 3]) {
    sandbar.make_dir("held");
    (shell("echo begun; until test -e go; do sleep 0.1; done; echo ended"), ["--workspace", "held", "--in-place"])
}

fn asking(sandbar: &Sandbar) -> String {
    let turns = [
        vec![say("I need two."), shell("touch one"), shell("touch two")],
        vec![shell("touch three")],
        vec![say("done")],
    ];
    script(sandbar, "ask.json", turns)
}

#[test]
fn the_user_is_asked_and_every_answer_works() {
    each(|sandbar| {
        let model = asking(sandbar);
        for (answers, code, seen) in [
            (["y\n", "y\n", "y\n"].as_slice(), 0, "approved by you"),
            (&["a\n"], 0, "approved, and every later exec_command, by you"),
            (&["n not today\n", "n\n", "y\n"], 0, "rejected by you: not today"),
            (&["what?\n", "yes please\n", "\n", "a\n"], 0, "completed"),
            (&["?\n", "v\n", "a\n"], 0, "every later call of exec_command in this run"),
            (&["y\n", "q\n"], 130, "cancelled"),
            (&["\x03"], 130, "cancelled"),
            (&["y\n", "\x04"], 3, "waits for an approval"),
        ] {
            let mut terminal = Terminal::open(sandbar, &["run", "do it", "--model", &model, "--ask", "always"]);
            for (place, answer) in answers.iter().enumerate() {
                until("it asks", PATIENCE, || terminal.shown().matches(ASK).count() > place);
                terminal.types(answer);
            }
            let (run, shown) = terminal.ends();
            assert_eq!(run.code, code, "{answers:?}: {shown}");
            assert!(screen(&shown, 200, 100).contains(seen), "{answers:?}: {shown}");
            sandbar.leaves_nothing("no such words");
        }
    });
}

#[test]
fn input_before_a_question_is_discarded() {
    let sandbar = Sandbar::own();
    let rule = "[[ask]]\ntool = \"exec_command\"\nmatches = \"rm *\"\n";
    sandbar.make_file("agent.toml", rule);
    let (command, there) = held(&sandbar);
    let model = script(&sandbar, "ahead.json", [vec![command], vec![shell("rm -rf x")], vec![say("done")]]);
    let words = [&["run", "do it", "--model", &model, "--agent", "agent.toml"], there.as_slice()].concat();
    let mut terminal = Terminal::open(&sandbar, &words);
    terminal.shows("begun");
    terminal.types("y\ny\nqqq");
    thread::sleep(Duration::from_millis(300));
    sandbar.make_file("held/go", "");
    terminal.shows(ASK);
    thread::sleep(Duration::from_millis(300));
    assert!(!terminal.shown().contains("approved"), "{}", terminal.shown());
    terminal.types("n\n");
    let (run, shown) = terminal.ends();
    assert_eq!(run.code, 0, "{shown}");
    assert!(!shown.contains("qqq") && shown.contains("rejected by you"), "{shown}");
}

#[test]
fn keys_pressed_during_a_run_are_not_shown() {
    let sandbar = Sandbar::own();
    let (command, there) = held(&sandbar);
    let model = script(&sandbar, "slow.json", [vec![command], vec![say("done")]]);
    let mut terminal = Terminal::open(&sandbar, &[&["run", "do it", "--model", &model], there.as_slice()].concat());
    terminal.shows("begun");
    let modes = tcgetattr(&terminal.keyboard).expect("tcgetattr").local_modes;
    assert!(!modes.contains(LocalModes::ECHO) && modes.contains(LocalModes::ISIG | LocalModes::ICANON));
    terminal.types("garbage\r\n\x1b[A");
    thread::sleep(Duration::from_millis(300));
    sandbar.make_file("held/go", "");
    let (run, shown) = terminal.ends();
    assert_eq!(run.code, 0, "{shown}");
    assert!(!shown.contains("garbage") && !shown.contains("^["), "{shown}");
}

#[test]
fn ctrl_c_shows_a_notice_and_a_second_one_stops() {
    each(|sandbar| {
        let (command, there) = held(sandbar);
        let model = script(sandbar, "once.json", [vec![command], vec![say("never")]]);
        let mut terminal = Terminal::open(sandbar, &[&["run", "do it", "--model", &model], there.as_slice()].concat());
        terminal.shows("begun");
        terminal.types("\x03");
        terminal.shows("stopping after this turn; press Ctrl-C again to stop immediately");
        sandbar.make_file("held/go", "");
        let (run, shown) = terminal.ends();
        assert_eq!(run.code, 130, "{shown}");
        assert!(shown.contains("ended") && !shown.contains("never") && !shown.contains("^C"), "{shown}");
        let model = script(sandbar, "twice.json", [vec![shell(&nap(6161))], vec![say("never")]]);
        let mut terminal = Terminal::open(sandbar, &["run", "do it", "--model", &model]);
        until("it sleeps", PATIENCE, || marked(&nap(6161)).iter().any(|line| line.starts_with("sleep")));
        terminal.types("\x03");
        terminal.shows("stopping after this turn");
        terminal.types("\x03");
        let (run, shown) = terminal.ends();
        assert_eq!(run.code, 130, "{shown}");
        assert!(shown.contains("cancelled"), "{shown}");
        sandbar.leaves_nothing(&naps());
    });
}

#[test]
fn the_final_screen_is_clean_at_every_width_and_after_a_resize() {
    let sandbar = Sandbar::own();
    sandbar.make_dir("source");
    sandbar.make_file("source/a.txt", "one\n");
    let change = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch\n";
    let talk =
        "for i in 1 2 3 4 5; do echo \"line $i of some words that are wider than forty columns\"; sleep 0.2; done";
    let turns = [
        vec![say("I begin with a sentence that is longer than forty columns."), shell(talk)],
        vec![patch(change)],
        vec![say("done")],
    ];
    let model = script(&sandbar, "view.json", turns);
    let words = ["run", "do it", "--model", &model, "--workspace", "source"];
    for (rows, cols) in [(24, 80), (12, 40), (5, 20)] {
        let terminal = Terminal::of_size(&sandbar, &words, (rows, cols));
        terminal.shows("line 2");
        // The lines keep their length, so that the test knows what the screen shows.
        resize(&terminal.keyboard, rows + 6, cols);
        let (run, shown) = terminal.ends();
        assert_eq!(run.code, 0, "{shown}");
        let last = screen(&shown, 200, cols);
        assert!(!last.contains(SPINNER), "{rows}x{cols}: {last}");
        assert!(last.contains("+two") && last.contains("completed"), "{rows}x{cols}: {last}");
        assert!(shown.contains("\x1b[?25h") || !shown.contains("\x1b[?25l"), "the cursor is back: {shown:?}");
    }
}

/// How wide the last row is that tells what is going on, of those that were drawn to their end.
fn width_of_status(shown: &str) -> usize {
    let rows: Vec<&str> = shown.split(SPINNER).collect();
    let row = rows.iter().rev().nth(1).filter(|_| rows.len() > 2).copied().unwrap_or_default();
    let mut parser = vt100::Parser::new(5, 500, 0);
    parser.process(row.split(['\r', '\n']).next().unwrap_or_default().as_bytes());
    parser.screen().contents().trim_end().chars().count() + 1
}

#[test]
fn the_view_follows_the_width_of_the_terminal() {
    let sandbar = Sandbar::own();
    let (command, there) = held(&sandbar);
    let model = script(&sandbar, "held.json", [vec![command], vec![say("done")]]);
    let terminal = Terminal::open(&sandbar, &[&["run", "do it", "--model", &model], there.as_slice()].concat());
    terminal.shows("begun");
    for (cols, fits) in [(100, 40..=100), (20, 5..=20), (60, 21..=60), (10, 1..=10)] {
        resize(&terminal.keyboard, 30, cols);
        let is_so = || fits.contains(&width_of_status(&terminal.shown()));
        until(&format!("the last row is drawn for {cols} columns"), PATIENCE, is_so);
    }
    sandbar.make_file("held/go", "");
    let (run, shown) = terminal.ends();
    assert_eq!(run.code, 0, "{shown}");
}

#[test]
fn without_a_prompt_a_terminal_gets_an_example() {
    let sandbar = Sandbar::own();
    let (run, shown) = Terminal::open(&sandbar, &["run"]).ends();
    assert_eq!(run.code, 2, "{shown}");
    assert!(shown.contains("there is no prompt; pass a prompt: sandbar run \"fix the failing test\""), "{shown}");
}

#[test]
fn a_dumb_terminal_gets_lines_and_the_answer_once() {
    let sandbar = Sandbar::own();
    let model = script(&sandbar, "done.json", [vec![shell("echo seen")], vec![say("the only answer")]]);
    let (run, shown) = Terminal::open(&sandbar, &["run", "do it", "--model", &model]).ends();
    assert_eq!((run.code, screen(&shown, 100, 100).matches("the only answer").count()), (0, 1), "{shown}");
    let (run, shown) = Terminal::open(&sandbar, &["--color", "never", "run", "do it", "--model", &model]).ends();
    assert_eq!(run.code, 0, "{shown}");
    assert!(!shown.contains("\x1b[32m"), "{shown:?}");
}
