//! Runs that are stopped: once, twice, by other signals, from behind; at every moment, and nothing is orphaned.

use std::{
    fs,
    process::{Child, Command},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use sandbar::mock::{Fault, MockServer, Script, Turn, item};

use super::{
    play::{Told, count, kept, listed, runs, say, script, shell, told},
    rig::{PATIENCE, Sandbar, each, marked, until},
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
fn ctrl_c_lets_the_turn_finish_and_again_does_not() {
    each(|sandbar| {
        let once = [vec![say("I begin."), shell("touch begun; sleep 1.7171; touch ended")], vec![shell("touch more")]];
        let model = script(sandbar, "once.json", once);
        let child = start(sandbar, &["--model", &model]);
        runs_on("sleep 1.7171");
        send(&child, Signal::INT);
        let told = told(child);
        ended(sandbar, &told, 130);
        let workspace = kept(sandbar, told.id()).join("workspace");
        assert!(workspace.join("ended").exists() && !workspace.join("more").exists(), "{told:?}");
        let notices = told.of("notice");
        assert_eq!(notices[0]["text"], "stopping after this turn; Ctrl-C again stops at once");
        assert_eq!(told.end()["usage"]["total_tokens"], 110);
    });
}

fn ended(sandbar: &Sandbar, told: &Told, code: i32) {
    assert_eq!((told.run.code, told.status()), (code, "cancelled"), "{told:?}");
    assert_eq!(listed(sandbar, told.id()), "cancelled");
    sandbar.leaves_nothing("sleep 7171", Duration::from_secs(5));
}

#[test]
fn a_second_ctrl_c_and_other_signals_stop_at_once() {
    each(|sandbar| {
        let model = script(sandbar, "long.json", [vec![shell("(sleep 7171.1 &); sleep 7171.2")], vec![say("never")]]);
        for (signals, code) in [
            ([Signal::INT, Signal::INT].as_slice(), 130),
            (&[Signal::TERM], 143),
            (&[Signal::HUP], 129),
            (&[Signal::INT, Signal::INT, Signal::INT, Signal::INT], 130),
        ] {
            let child = start(sandbar, &["--model", &model]);
            runs_on("sleep 7171.2");
            let begun = Instant::now();
            for signal in signals {
                send(&child, *signal);
                std::thread::sleep(Duration::from_millis(30));
            }
            let told = told(child);
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
            ended(sandbar, &told, code);
        }
    });
}

#[test]
fn a_model_that_never_answers_can_be_left() {
    let sandbar = Sandbar::own();
    let hang = || Turn::new([item::text("never")]).fault(Fault::Hang);
    let server = MockServer::start(Script::new().turn(hang())).expect("a server");
    let child = start(&sandbar, &["--base-url", &server.base_url()]);
    until("it asks", PATIENCE, || !server.requests().is_empty());
    send(&child, Signal::INT);
    std::thread::sleep(Duration::from_millis(300));
    send(&child, Signal::INT);
    ended(&sandbar, &told(child), 130);
}

#[test]
fn an_approval_that_waits_for_nobody_is_no_reason_to_wait() {
    let sandbar = Sandbar::own();
    let model = script(&sandbar, "ask.json", [vec![shell("true")], vec![say("done")]]);
    let told = told(start(&sandbar, &["--model", &model, "--ask", "always"]));
    assert_eq!((told.run.code, told.of("approval_requested").len()), (3, 1), "{told:?}");
    assert!(kept(&sandbar, told.id()).join("state.json").exists());
}

#[test]
fn killed_from_behind_the_machine_dies_and_the_run_is_listed_as_lost() {
    each(|sandbar| {
        let model = script(sandbar, "long.json", [vec![shell("sleep 7272.1")], vec![say("never")]]);
        let child = start(sandbar, &["--model", &model]);
        until("it runs", PATIENCE, || marked("sleep 7272.1").iter().any(|line| line.starts_with("sleep")));
        send(&child, Signal::KILL);
        assert_eq!(super::rig::finish(child).code, 137);
        sandbar.leaves_nothing("sleep 7272", Duration::from_secs(10));
        let id = fs::read_dir(runs(sandbar)).expect("runs").next().expect("one").expect("entry").file_name();
        assert_eq!(listed(sandbar, id.to_str().unwrap()), "lost");
        assert_eq!(sandbar.run(&["runs", "rm", id.to_str().unwrap()]).code, 0);
        assert_eq!(count(sandbar), 0);
    });
}

#[test]
fn stopped_before_it_begins_nothing_is_kept() {
    let sandbar = Sandbar::own();
    let model = script(&sandbar, "done.json", [vec![say("done")]]);
    // A download that never comes keeps the workspace from being filled.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://127.0.0.1:{}/x", silent.local_addr().expect("address").port());
    let manifest = format!("entries:\n  x: {{type: remote_file, url: \"{url}\"}}\n");
    sandbar.make_file("slow.yaml", manifest);
    let child = start(&sandbar, &["--model", &model, "--manifest", "slow.yaml"]);
    until("a run is begun", PATIENCE, || count(&sandbar) == 1 && !sandbar.left().is_empty());
    std::thread::sleep(Duration::from_millis(200));
    send(&child, Signal::INT);
    let told = told(child);
    assert_eq!((told.run.code, told.status(), told.lines.len()), (130, "cancelled", 1), "{told:?}");
    assert_eq!(count(&sandbar), 0);
    sandbar.leaves_nothing("no such words", Duration::from_secs(5));
}
