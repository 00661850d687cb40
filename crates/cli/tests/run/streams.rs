//! Standard streams: the answer on standard output, everything else on standard error, and colours on request.

use std::io::{BufRead, BufReader};

use super::{
    play::{patch, run, say, script, shell, told},
    rig::{PATIENCE, Run, Sandbar, each, finish, marked, nap, naps, until},
};

const ADD: &str = "*** Begin Patch\n*** Add File: a.txt\n+one\n*** End Patch\n";

#[test]
fn only_the_answer_is_on_standard_output() {
    each(|sandbar| {
        let turns = [vec![say("I look.")], vec![say("never")]];
        let model = script(sandbar, "answer.json", turns);
        let Run { code, stdout, stderr } = sandbar.run(&["run", "do it", "--model", &model]);
        assert_eq!((code, stdout.as_str()), (0, "I look.\n"), "{stderr}");
        assert!(stderr.contains("The model is scripted; what it does is real.") && stderr.contains("completed"));
        let model =
            script(sandbar, "work.json", [vec![say("first"), shell("echo seen")], vec![patch(ADD)], vec![say("a\nb")]]);
        let source = sandbar.make_dir("source");
        let words = ["run", "do it", "--model", &model, "--workspace", source.to_str().unwrap()];
        let Run { code, stdout, stderr } = sandbar.run(&words);
        assert_eq!((code, stdout.as_str()), (0, "a\nb\n"), "{stderr}");
        for said in ["first", "$ echo seen", "\n  seen\n", "+one", "sandbar apply ", "audit.jsonl"] {
            assert!(stderr.contains(said), "{said:?} in {stderr}");
        }
        let spent = sandbar.run(&["run", "do it", "--model", &model, "--max-turns", "1"]);
        assert_eq!((spent.code, spent.stdout.as_str()), (4, ""), "{spent:?}");
        let told = run(sandbar, &["--model", &model]);
        assert_eq!((told.run.code, told.run.stderr.as_str()), (0, ""), "{told:?}");
        assert_eq!(told.lines[0]["type"], "run_started");
    });
}

#[test]
fn output_is_coloured_on_terminals_or_on_request() {
    let sandbar = Sandbar::own();
    let source = sandbar.make_dir("source");
    let model = script(&sandbar, "work.json", [vec![patch(ADD)], vec![say("done")]]);
    let words = ["run", "do it", "--model", &model, "--workspace", source.to_str().unwrap()];
    let plain = sandbar.run(&words);
    assert!(!plain.stderr.contains('\x1b') && !plain.stdout.contains('\x1b'), "{plain:?}");
    let insisting: Vec<&str> = ["--color", "always"].iter().chain(&words).copied().collect();
    let coloured = sandbar.run(&insisting);
    assert!(coloured.stderr.contains("\x1b[32m+one"), "{coloured:?}");
    let json: Vec<&str> = insisting.iter().copied().chain(["--json"]).collect();
    assert!(!sandbar.run(&json).stdout.contains('\x1b'));
}

#[test]
fn a_run_stops_when_its_reader_closes_the_pipe() {
    let sandbar = Sandbar::own();
    let talk = format!("while :; do echo x; sleep 0.1; done; {}", nap(8181));
    let turns = [vec![shell(&talk)], vec![say("done")]];
    let model = script(&sandbar, "talk.json", turns);
    let mut child = sandbar.command(&["run", "do it", "--json", "--model", &model]).spawn().expect("spawn");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("stdout")).read_line(&mut line).expect("a line");
    assert!(line.contains("run_started"), "{line}");
    let ended = finish(child);
    assert_eq!((ended.code, ended.stderr.as_str()), (141, ""), "{ended:?}");
    sandbar.leaves_nothing(&naps());
}

#[test]
fn an_unread_answer_is_not_a_success() {
    let sandbar = Sandbar::own();
    let model = script(&sandbar, "done.json", [vec![shell("sleep 0.2")], vec![say("done")]]);
    let mut child = sandbar.command(&["run", "do it", "--model", &model]).spawn().expect("spawn");
    drop(child.stdout.take());
    assert_eq!(finish(child).code, 141);
}

#[test]
fn lines_are_written_immediately() {
    let sandbar = Sandbar::own();
    let slow = format!("echo early; {}", nap(8282));
    let model = script(&sandbar, "slow.json", [vec![shell(&slow)], vec![say("done")]]);
    let mut child = sandbar.command(&["run", "do it", "--json", "--model", &model]).spawn().expect("spawn");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    let early = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("tool_progress"))).expect("some");
    assert!(early.expect("text").contains("early"));
    until("it still runs", PATIENCE, || !marked(&nap(8282)).is_empty());
    super::stops::send(&child, rustix::process::Signal::TERM);
    let last = lines.last().expect("a line").expect("text");
    assert!(last.contains("\"status\":\"cancelled\""), "{last}");
    let ended = told(child).run;
    assert_eq!(ended.code, 143, "{ended:?}");
    sandbar.leaves_nothing(&naps());
}
