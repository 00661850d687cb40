//! Detached processes of a session: starting, listing, attaching, detaching and killing them; and sessions that end when
//! they are unused.

use std::{thread, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{
    made::Made,
    rig::{PATIENCE, Sandbar, each, finish, marked, nap, naps, until},
    screen::Terminal,
};

impl Made<'_> {
    /// Starts a detached script.
    fn detach(&self, options: &[&str], script: &str) -> String {
        let words = [&["exec", "--detach"], options, &[&self.id, "--", "sh", "-c", script]].concat();
        self.does(&words).trim().to_owned()
    }

    /// The list of its processes as JSON.
    fn processes(&self) -> Vec<Value> {
        let list: Value = serde_json::from_str(&self.does(&["ps", "--json", &self.id])).expect("json");
        assert_eq!(list["id"], self.id.as_str());
        list["processes"].as_array().expect("a list").clone()
    }

    fn process(&self, id: &str) -> Option<Value> {
        self.processes().into_iter().find(|process| process["process"].as_u64() == id.parse().ok())
    }

    fn becomes(&self, id: &str, state: &str) {
        until(state, PATIENCE, || self.process(id).is_some_and(|process| process["state"] == state));
    }
}

#[test]
fn a_detached_command_above_the_limit_is_refused_with_advice() {
    let sandbar = Sandbar::own();
    let made = Made::new(&sandbar, &["--pids", "1000"]);
    let detach = ["session", "exec", "--detach", &made.id, "--", "sleep", "300"];
    for _ in 0..16 {
        let started: Vec<_> = (0..8).map(|_| sandbar.command(&detach).spawn().expect("spawn")).collect();
        for run in started.into_iter().map(finish) {
            assert_eq!(run.code, 0, "{run:?}");
        }
    }
    let run = sandbar.run(&detach);
    assert_eq!((run.code, run.stdout.as_str()), (125, ""), "{run:?}");
    for words in ["at most 128", "session ps", &format!("sandbar session kill {} PROCESS", made.id)] {
        assert!(run.stderr.contains(words), "{words}: {run:?}");
    }
    let help = sandbar.run(&["session", "exec", "--help"]).stdout;
    assert!(help.contains("At most 128"), "{help}");
    let first = made.processes()[0]["process"].to_string();
    made.does(&["kill", &made.id, &first, "--signal", "KILL"]);
    until("there is room again", PATIENCE, || sandbar.run(&detach).code == 0);
}

#[test]
fn a_detached_command_continues_and_can_be_attached() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        let id = made.detach(&[], "echo begun; while test ! -e go; do sleep 0.05; done; echo over; exit 5");
        assert!(id.parse::<u64>().is_ok(), "{id:?}");
        made.becomes(&id, "alone");
        let table = made.does(&["ps", &made.id]);
        assert!(table.lines().next().is_some_and(|head| head.contains("PROCESS") && head.contains("COMMAND")));
        assert!(
            table.lines().any(|line| line.trim_start().starts_with(&id) && line.contains("sh -c 'echo begun")),
            "{table}"
        );
        made.does(&["write", &made.at("go")]);
        made.becomes(&id, "ended");
        assert_eq!(made.process(&id).expect("listed")["exit_code"], 5);
        let run = sandbar.run(&["session", "attach", &made.id]);
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (5, "begun\nover\n", ""), "{run:?}");
        until("it is forgotten", PATIENCE, || made.processes().is_empty());
        let again = sandbar.run(&["session", "attach", &made.id, &id]);
        assert_eq!(again.code, 125);
        assert!(again.stderr.contains("no process") && again.stderr.contains("session ps"), "{again:?}");
        let none = sandbar.run(&["session", "attach", &made.id]);
        assert!(none.stderr.contains("exec --detach"), "{none:?}");
    });
}

#[test]
fn a_client_attaches_types_and_detaches_without_ending_the_process() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        let id = made.detach(&["--tty"], "stty -echo; while read line; do echo \"<$line>\"; stty size; done");
        for turn in 0..2 {
            let mut terminal = Terminal::open(sandbar, &["session", "attach", &made.id, &id]);
            until("it is raw", PATIENCE, || terminal.is_raw());
            terminal.types(&format!("turn {turn}\r"));
            terminal.shows(&format!("<turn {turn}>"));
            // The terminal of the client that attaches; input may arrive before the size.
            until("its size is there", PATIENCE, || {
                terminal.types("again\r");
                thread::sleep(Duration::from_millis(50));
                terminal.shown().contains("30 100")
            });
            made.becomes(&id, "held");
            let refused = sandbar.run(&["session", "attach", &made.id, &id]);
            assert_eq!((refused.code, refused.stdout.as_str()), (125, ""), "{refused:?}");
            assert!(refused.stderr.contains("another client is attached"), "{refused:?}");
            terminal.types("\u{10}\u{11}");
            let (run, shown) = terminal.ends();
            assert_eq!(run.code, 0, "{shown}");
            assert!(shown.contains("detached from process"), "{shown}");
            made.becomes(&id, "alone");
        }
        let mut terminal = Terminal::open(sandbar, &["session", "attach", &made.id]);
        until("it is raw", PATIENCE, || terminal.is_raw());
        terminal.types("once more\r");
        terminal.shows("<once more>");
        terminal.signal(Signal::TERM);
        assert_eq!(terminal.ends().0.code, 0);
        made.becomes(&id, "alone");
        let terminal = Terminal::open(sandbar, &["session", "attach", &made.id]);
        until("it is raw", PATIENCE, || terminal.is_raw());
        made.does(&["kill", &made.id, &id, "--signal", "KILL"]);
        assert_eq!(terminal.ends().0.code, 137);
        until("it is forgotten", PATIENCE, || made.processes().is_empty());
    });
}

#[test]
fn a_killed_attach_leaves_its_process_and_its_output() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        let id = made.detach(&[], "read word; echo \"got $word\"; while test ! -e go; do sleep 0.05; done; echo late");
        let fed = sandbar.feed(&["session", "exec", &made.id, "--", "true"], b"");
        assert!(fed.status.success());
        let attached = sandbar.command(&["session", "attach", &made.id, &id]).spawn().expect("spawn");
        made.becomes(&id, "held");
        kill_process(Pid::from_child(&attached), Signal::KILL).expect("kill");
        finish(attached);
        made.becomes(&id, "alone");
        made.does(&["write", &made.at("go")]);
        // The end of our input is not the end of its.
        let mut second = sandbar.command(&["session", "attach", &made.id, &id]);
        let mut second = second.stdin(std::process::Stdio::piped()).spawn().expect("spawn");
        std::io::Write::write_all(&mut second.stdin.take().expect("stdin"), b"this\n").expect("write");
        let run = finish(second);
        assert_eq!((run.code, run.stdout.as_str()), (0, "got this\nlate\n"), "{run:?}");
    });
}

#[test]
fn any_process_can_be_killed_by_its_number() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        let running = made.start(&format!("exec {}", nap(4545)));
        until("it runs", PATIENCE, || !made.processes().is_empty());
        let told = made.processes().remove(0);
        assert_eq!((&told["state"], &told["detached"]), (&Value::from("held"), &Value::from(false)));
        let id = told["process"].to_string();
        let killed: Value = serde_json::from_str(&made.does(&["kill", &made.id, &id, "--json"])).expect("json");
        assert_eq!((killed["process"].to_string(), &killed["signal"]), (id.clone(), &Value::from(15)));
        assert_eq!(finish(running).code, 143);
        until("it is forgotten", PATIENCE, || {
            let gone = sandbar.run(&["session", "kill", &made.id, &id, "--json"]);
            let gone: Value = serde_json::from_str(&gone.stdout).or(serde_json::from_str(&gone.stderr)).expect("json");
            gone["error"]["code"] == "process_not_found"
        });
        let both = [made.detach(&[], &nap(4546)), made.detach(&[], &nap(4547))];
        let which = sandbar.run(&["session", "attach", &made.id]);
        assert!(which.stderr.contains("2 detached processes") && which.stderr.contains("session ps"), "{which:?}");
        for id in &both {
            made.does(&["kill", &made.id, id]);
            made.becomes(id, "ended");
        }
        until("both are dead", PATIENCE, || marked(&naps()).is_empty());
        let refused = sandbar.run(&["session", "kill", &made.id, "1", "--signal", "STOP"]);
        assert!(refused.stderr.contains("HUP, INT"), "{refused:?}");
    });
}

#[test]
fn a_command_that_cannot_start_is_not_listed() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        let run = sandbar.run(&["session", "exec", "-d", &made.id, "--", "no-such-program"]);
        assert_eq!((run.code, run.stdout.as_str()), (127, ""), "{run:?}");
        assert!(run.stderr.contains("not found"), "{run:?}");
        let document = made.does(&["exec", "-d", "--json", &made.id, "--", "sleep", "4646.1"]);
        let document: Value = serde_json::from_str(&document).expect("json");
        assert_eq!(document["id"], made.id.as_str());
        assert!(document["process"].is_u64());
    });
}

#[test]
fn an_idle_session_is_removed() {
    each(|sandbar| {
        // On a busy machine it may end before we come to it, and then has longer.
        let made = [2, 10, 40].into_iter().find_map(|idle| {
            let made = Made::new(sandbar, &["--idle", &format!("{idle}s")]);
            let (used, again) = (made.sh(&format!("sleep {}", idle * 2)), made.sh("echo alive"));
            (used.code == 0 && again.stdout == "alive\n").then_some(made)
        });
        let made = made.expect("a client is no idleness");
        // Listing a session does not use it.
        until("it is gone", PATIENCE, || made.listed().expect("its record stays")["state"] == "gone");
        made.does(&["rm", &made.id]);
        assert!(sandbar.left().is_empty(), "{:?}", sandbar.left());
    });
}
