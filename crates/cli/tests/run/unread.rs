//! Runs with unread output: they stop on signals, and a late reader gets complete output.

use std::io::Read as _;

use rustix::process::{Pid, Signal, kill_process};

use super::{
    play::{listed, say, script, shell},
    rig::{FRESH, Sandbar, each, ends_by_itself, fills, finish, naps, unread},
};

/// More output than any pipe or queue holds.
const MUCH: &str = "head -c 900000 /dev/zero | tr '\\0' x";

fn talkative(sandbar: &Sandbar) -> String {
    let long = || vec![say(&"so much to say ".repeat(20_000)), shell(MUCH)];
    script(sandbar, "much.json", [long(), long(), long(), long(), vec![say("done")]])
}

#[test]
fn a_run_with_unread_json_stops() {
    each(|sandbar| {
        let model = talkative(sandbar);
        for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
            let words = ["run", "do it", "--json", "--model", &model];
            let mut child = sandbar.behind(&FRESH, &words).spawn().expect("spawn");
            let out = unread(&mut child);
            kill_process(Pid::from_child(&child), signal).expect("kill");
            assert_eq!(ends_by_itself(child), code);
            drop(out);
            sandbar.leaves_nothing(&naps());
        }
    });
}

#[test]
fn a_run_with_unread_progress_stops() {
    let sandbar = Sandbar::own();
    let model = talkative(&sandbar);
    let mut child = sandbar.behind(&FRESH, &["run", "do it", "--model", &model]).spawn().expect("spawn");
    let progress = child.stderr.take().expect("stderr");
    fills(&progress);
    kill_process(Pid::from_child(&child), Signal::TERM).expect("kill");
    assert_eq!(ends_by_itself(child), 143);
    sandbar.leaves_nothing(&naps());
}

#[test]
fn a_late_reader_gets_every_line() {
    let sandbar = Sandbar::own();
    let model = talkative(&sandbar);
    let mut child = sandbar.command(&["run", "do it", "--json", "--model", &model]).spawn().expect("spawn");
    let mut out = unread(&mut child);
    let mut text = String::new();
    out.read_to_string(&mut text).expect("read");
    assert_eq!(finish(child).code, 0);
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a whole line")).collect();
    let end = lines.last().expect("a last line");
    assert_eq!((&end["type"], &end["status"]), (&"run_finished".into(), &"completed".into()));
    assert_eq!(listed(&sandbar, end["id"].as_str().expect("an id")), "completed");
    let said = lines.iter().filter(|line| line["type"] == "message_delta");
    let said: usize = said.filter_map(|line| line["text"].as_str()).map(str::len).sum();
    assert_eq!(said, 4 * 20_000 * "so much to say ".len() + "done".len());
}
