//! Runs that are stopped by signals or killed, at every stage; nothing is orphaned.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use sandbar::mock::{Fault, MockServer, Script, Turn, item};

use super::{
    play::{JsonRun, count, kept, listed, runs, say, script, shell, told},
    rig::{PATIENCE, Sandbar, each, finish, insist, marked, nap, naps, until},
};

pub(crate) fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("kill");
}

/// A run with `--json`, which hears the signals that a shell's background jobs do not.
fn start(sandbar: &Sandbar, words: &[&str]) -> Child {
    let words: Vec<&str> = ["run", "do it", "--json"].iter().chain(words).copied().collect();
    listening(sandbar, &words).spawn().expect("spawn")
}

fn listening(sandbar: &Sandbar, words: &[&str]) -> Command {
    sandbar.behind(&["env", "--default-signal=INT,TERM,HUP,QUIT"], words)
}

fn runs_on(words: &str) {
    until(words, PATIENCE, || marked(words).iter().any(|line| line.starts_with("sleep")));
}

#[test]
fn ctrl_c_stops_after_the_turn_and_a_second_one_immediately() {
    each(|sandbar| {
        let workspace = sandbar.make_dir("work");
        let turn = "echo begun > begun; until test -e go; do sleep 0.1; done; touch ended";
        let model = script(sandbar, "once.json", [vec![say("I begin."), shell(turn)], vec![shell("touch more")]]);
        let mut child = start(sandbar, &["--model", &model, "--workspace", "work", "--in-place"]);
        until("the turn has begun", PATIENCE, || workspace.join("begun").exists());
        send(&child, Signal::INT);
        let mut lines = Vec::new();
        for line in BufReader::new(child.stdout.take().expect("stdout")).lines().map_while(Result::ok) {
            if line.contains("stopping after this turn") {
                sandbar.make_file("work/go", "");
            }
            lines.push(serde_json::from_str(&line).expect("a line of JSON"));
        }
        let told = JsonRun { run: finish(child), lines };
        ended(sandbar, &told, 130);
        assert!(workspace.join("ended").exists() && !workspace.join("more").exists(), "{told:?}");
        let notices = told.of("notice");
        assert_eq!(notices[0]["text"], "stopping after this turn; press Ctrl-C again to stop immediately");
        assert_eq!(told.end()["usage"]["total_tokens"], 110);
    });
}

fn ended(sandbar: &Sandbar, told: &JsonRun, code: i32) {
    assert_eq!((told.run.code, told.status()), (code, "cancelled"), "{told:?}");
    assert_eq!(listed(sandbar, told.id()), "cancelled");
    sandbar.leaves_nothing(&naps());
}

#[test]
fn a_second_ctrl_c_and_other_signals_stop_immediately() {
    each(|sandbar| {
        let long = format!("({} &); {}", nap(7171), nap(7172));
        let model = script(sandbar, "long.json", [vec![shell(&long)], vec![say("never")]]);
        for (signals, code) in [
            ([Signal::INT, Signal::INT].as_slice(), 130),
            (&[Signal::TERM], 143),
            (&[Signal::HUP], 129),
            (&[Signal::INT, Signal::INT, Signal::INT, Signal::INT], 130),
        ] {
            let mut child = start(sandbar, &["--model", &model]);
            runs_on(&nap(7172));
            let (last, before) = signals.split_last().expect("a signal");
            for signal in before {
                send(&child, *signal);
                std::thread::sleep(Duration::from_millis(30));
            }
            match before {
                [] => send(&child, *last),
                _ => insist(&mut child, *last),
            }
            let told = told(child);
            ended(sandbar, &told, code);
        }
    });
}

#[test]
fn a_run_whose_model_never_answers_can_be_stopped() {
    let sandbar = Sandbar::own();
    let hang = || Turn::new([item::text("never")]).fault(Fault::Hang);
    let server = MockServer::start(Script::new().turn(hang())).expect("a server");
    let mut child = start(&sandbar, &["--base-url", &server.base_url()]);
    until("it asks", PATIENCE, || !server.requests().is_empty());
    send(&child, Signal::INT);
    std::thread::sleep(Duration::from_millis(300));
    insist(&mut child, Signal::INT);
    ended(&sandbar, &told(child), 130);
}

#[test]
fn an_approval_without_a_terminal_does_not_delay_the_end() {
    let sandbar = Sandbar::own();
    let model = script(&sandbar, "ask.json", [vec![shell("true")], vec![say("done")]]);
    let told = told(start(&sandbar, &["--model", &model, "--ask", "always"]));
    assert_eq!((told.run.code, told.of("approval_requested").len()), (3, 1), "{told:?}");
    assert!(kept(&sandbar, told.id()).join("state.json").exists());
}

#[test]
fn a_killed_run_ends_its_machine_and_is_listed_as_lost() {
    each(|sandbar| {
        let turns = [vec![shell("echo first")], vec![shell(&nap(7272))], vec![say("never")]];
        let model = script(sandbar, "long.json", turns);
        let child = start(sandbar, &["--model", &model]);
        runs_on(&nap(7272));
        let id = fs::read_dir(runs(sandbar)).expect("runs").next().expect("one").expect("entry").file_name();
        // What has happened is on disk while the run goes on: the first call and what it cost, and the second's cost.
        let trace = runs(sandbar).join(&id).join("trace.jsonl");
        let spans = || fs::read_to_string(&trace).unwrap_or_default();
        until("the trace is written", PATIENCE, || spans().matches("\"input_tokens\":100").count() >= 2);
        assert!(spans().contains("echo first"), "{}", spans());
        send(&child, Signal::KILL);
        assert_eq!(finish(child).code, 137);
        sandbar.leaves_nothing(&naps());
        assert_eq!(listed(sandbar, id.to_str().unwrap()), "lost");
        assert_eq!(sandbar.run(&["runs", "rm", id.to_str().unwrap()]).code, 0);
        assert_eq!(count(sandbar), 0);
    });
}

#[test]
fn a_run_that_is_stopped_before_it_begins_leaves_nothing() {
    let sandbar = Sandbar::own();
    let model = script(&sandbar, "done.json", [vec![say("done")]]);
    // A download that never comes keeps the workspace from being filled.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    silent.set_nonblocking(true).expect("no waiting");
    let url = format!("http://127.0.0.1:{}/x", silent.local_addr().expect("address").port());
    let manifest = format!("entries:\n  x: {{type: remote_file, url: \"{url}\"}}\n");
    sandbar.make_file("slow.yaml", manifest);
    let child = start(&sandbar, &["--model", &model, "--manifest", "slow.yaml", "--allow-private-addresses"]);
    let mut asked = None;
    until("a run is begun", PATIENCE, || {
        asked = silent.accept().ok();
        asked.is_some()
    });
    assert!(count(&sandbar) == 1 && !sandbar.left().is_empty(), "the state directory is elsewhere");
    send(&child, Signal::INT);
    let told = told(child);
    assert_eq!((told.run.code, told.status(), told.lines.len()), (130, "cancelled", 1), "{told:?}");
    assert_eq!(count(&sandbar), 0);
    sandbar.leaves_nothing("no such words");
}
