//! The life of a session: it outlives commands, runs several concurrently, and leaves nothing.

use std::{io::Read, net::TcpStream, time::Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    made::{Made, supervisor},
    rig::{FRESH, PATIENCE, Sandbar, each, finish, marked, nap, naps, until},
    screen::Terminal,
};

/// Whether a command with these words runs, and not only is asked for.
fn runs(marker: &str) -> bool {
    marked(marker).iter().any(|line| line.starts_with(marker))
}

#[test]
fn a_session_supports_every_task_and_leaves_nothing() {
    each(|sandbar| {
        let made = Made::new(sandbar, &["--name", "work", "--env", "GREETING=hello"]);
        assert_eq!(made.id.len(), 36);
        let run = made.sh("echo $GREETING; pwd; echo kept > file; echo trouble >&2; exit 7");
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (7, "hello\n/workspace\n", "trouble\n"));
        assert_eq!(made.does(&["read", "work:file"]), "kept\n");
        let run = made.sh(&format!("(setsid {} >/dev/null 2>&1 &) ; mkdir -p a/b; echo x > a/b/c", nap(4141)));
        assert_eq!(run.code, 0, "{run:?}");
        until("the daemon lives on", PATIENCE, || runs(&nap(4141)));
        assert_eq!(made.does(&["ls", "work"]), "a/\nfile\n");
        assert_eq!(made.listed().expect("listed")["state"], "running");
        let begun = Instant::now();
        assert_eq!(made.does(&["stop", "work"]), "");
        println!("stopping took {:?}", begun.elapsed());
        assert!(!runs(&nap(4141)), "a stopped session has no processes");
        assert_eq!(made.listed().expect("listed")["state"], "stopped");
        let refused = made.sh("true");
        assert_eq!((refused.code, refused.stdout.as_str()), (125, ""), "{refused:?}");
        assert!(refused.stderr.contains("was stopped") && refused.stderr.contains("session rm"), "{refused:?}");
        assert_eq!(made.does(&["rm", "work"]), "");
        assert!(made.listed().is_none());
        assert!(sandbar.left().is_empty(), "{:?}", sandbar.left());
    });
}

#[test]
fn removing_a_session_ends_its_processes() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        let mut running = made.start(&format!("echo up; exec {}", nap(4242)));
        running.stdout.as_mut().expect("stdout").read_exact(&mut [0; 3]).expect("up");
        assert_eq!(made.does(&["rm", &made.id]), "");
        let run = finish(running);
        assert!(run.code == 125 || run.code == 137, "{run:?}");
        sandbar.leaves_nothing(&naps());
    });
}

#[test]
fn two_commands_share_a_session() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        let first = made.start("mkfifo a b; echo to-second > a; cat b");
        let second = made.start("until test -p b; do sleep 0.05; done; read word < a; echo $word; echo to-first > b");
        let (first, second) = (finish(first), finish(second));
        assert_eq!((first.code, first.stdout.as_str()), (0, "to-first\n"), "{first:?}");
        assert_eq!((second.code, second.stdout.as_str()), (0, "to-second\n"), "{second:?}");
    });
}

#[test]
fn a_command_in_a_session_ends_like_one_of_exec() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        let exec = |words: &[&str]| sandbar.run(&[&["session", "exec", &made.id], words].concat());
        assert_eq!(exec(&["--", "no-such-program"]).code, 127);
        assert_eq!(exec(&["--", "sh", "-c", "kill -9 $$"]).code, 137);
        let late = exec(&["--timeout", "300ms", "--", "sh", "-c", &format!("{} & {}", nap(4343), nap(4344))]);
        assert_eq!(late.code, 124, "{late:?}");
        until("both are dead", PATIENCE, || marked(&naps()).is_empty());
        assert_eq!(exec(&["--env", "A=b", "--", "sh", "-c", "echo $A"]).stdout, "b\n");
        assert_eq!(made.sh("mkdir sub").code, 0);
        assert_eq!(exec(&["--cwd", "sub", "--", "pwd"]).stdout, "/workspace/sub\n");
        let outside = exec(&["--cwd", "/etc", "--", "pwd"]);
        assert_eq!((outside.code, outside.stdout.as_str()), (125, ""), "{outside:?}");
        let fed = sandbar.feed(&["session", "exec", &made.id, "--", "wc", "-c"], b"12345");
        assert_eq!(String::from_utf8_lossy(&fed.stdout).trim(), "5");
        let mut asked = made.start(&format!("trap 'echo bye; exit 3' TERM; echo ready; {} & wait", nap(4345)));
        asked.stdout.as_mut().expect("stdout").read_exact(&mut [0; 6]).expect("ready");
        until("it runs", PATIENCE, || runs(&nap(4345)));
        kill_process(Pid::from_child(&asked), Signal::TERM).expect("kill");
        assert_eq!((finish(asked).code, made.sh("true").code), (3, 0));
    });
}

#[test]
fn a_killed_exec_ends_its_command_but_not_the_session() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        let mut running = made.start(&format!("echo up; exec {}", nap(4444)));
        running.stdout.as_mut().expect("stdout").read_exact(&mut [0; 3]).expect("up");
        kill_process(Pid::from_child(&running), Signal::KILL).expect("kill");
        assert_eq!(finish(running).code, 137);
        until("its command is dead", PATIENCE, || marked(&nap(4444)).is_empty());
        assert_eq!(made.sh("echo alive").stdout, "alive\n");
    });
}

#[test]
fn a_session_is_found_by_id_name_and_a_part_of_its_id() {
    let sandbar = Sandbar::own();
    let made = Made::new(&sandbar, &["--name", "by-name"]);
    for given in [made.id.as_str(), "by-name", &made.id[made.id.len() - 8..], &made.id[..18]] {
        assert_eq!(made.does(&["exec", given, "--", "echo", "found"]), "found\n", "{given}");
    }
    for given in ["nothing", &made.id[..3]] {
        let run = sandbar.run(&["session", "read", &format!("{given}:x")]);
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:?}");
        assert!(run.stderr.contains("sandbar session ls"), "{run:?}");
    }
    let taken = sandbar.run(&["session", "create", "--name", "by-name"]);
    assert_eq!((taken.code, taken.stdout.as_str()), (1, ""), "{taken:?}");
    assert!(taken.stderr.contains("already") && taken.stderr.contains("session rm by-name"), "{taken:?}");
}

#[test]
fn a_session_whose_machine_died_is_gone_and_removable() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        kill_process(supervisor(&made.machine()), Signal::KILL).expect("kill");
        until("it is gone", PATIENCE, || made.listed().expect("listed")["state"] == "gone");
        assert!(made.sh("true").stderr.contains("is gone"));
        assert_eq!(made.does(&["rm", &made.id]), "");
        assert!(sandbar.left().is_empty(), "{:?}", sandbar.left());
    });
}

#[test]
fn ports_are_served_until_the_command_is_interrupted() {
    each(|sandbar| {
        let made = Made::new(sandbar, &["--port", "8080"]);
        let server = "import socket\ns = socket.create_server(('127.0.0.1', 8080))\nprint('up', flush=True)\n\
                      while True:\n c = s.accept()[0]\n c.sendall(b'hello from inside')\n c.close()";
        let mut serving =
            sandbar.command(&["session", "exec", &made.id, "--", "python3", "-c", server]).spawn().expect("spawn");
        serving.stdout.as_mut().expect("stdout").read_exact(&mut [0; 3]).expect("up");
        let words = ["session", "ports", &made.id, "--json"];
        let mut ports = sandbar.behind(&["env", "--default-signal=INT"], &words).spawn().expect("spawn");
        let mut line = Vec::new();
        let stdout = ports.stdout.as_mut().expect("stdout");
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            stdout.read_exact(&mut byte).expect("read");
            line.push(byte[0]);
        }
        let said: serde_json::Value = serde_json::from_slice(&line).expect("json");
        assert_eq!((said["port"].as_u64(), said["id"].as_str()), (Some(8080), Some(made.id.as_str())), "{said}");
        let address = format!("{}:{}", said["host"].as_str().expect("host"), said["host_port"]);
        assert_eq!(said["url"], format!("http://{address}/"));
        for _ in 0..2 {
            let mut answer = String::new();
            TcpStream::connect(&address).expect("connect").read_to_string(&mut answer).expect("read");
            assert_eq!(answer, "hello from inside");
        }
        kill_process(Pid::from_child(&ports), Signal::INT).expect("kill");
        assert_eq!(finish(ports).code, 0);
        assert!(TcpStream::connect(&address).is_err(), "the port outlives who asked for it");
        kill_process(Pid::from_child(&serving), Signal::KILL).expect("kill");
        finish(serving);
    });
}

#[test]
fn a_shell_in_a_session_is_usable_and_the_session_remains() {
    let sandbar = Sandbar::own();
    let made = Made::new(&sandbar, &["--env", "PS1=ready> "]);
    let mut terminal = Terminal::open(&sandbar, &["session", "shell", &made.id]);
    until("it is raw", PATIENCE, || terminal.is_raw());
    terminal.types("test -t 0 && echo on''terminal; echo $0; echo typed > kept\r");
    terminal.shows("onterminal");
    terminal.shows("bash\r\n");
    terminal.types("exit 5\r");
    let (run, shown) = terminal.ends();
    assert_eq!(run.code, 5, "{shown}");
    assert_eq!(made.does(&["read", &made.at("kept")]), "typed\n");
}

#[test]
fn a_command_whose_session_is_removed_reports_that() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        let child = made.start(&format!("exec {}", nap(9191)));
        until("it runs", PATIENCE, || marked(&nap(9191)).iter().any(|line| line.starts_with("sleep")));
        made.does(&["rm", &made.id]);
        let run = finish(child);
        assert_eq!(run.code, 125, "{run:?}");
        assert!(run.stderr.contains(&format!("the session {} was removed while the command ran", made.id)), "{run:?}");
    });
}

#[test]
fn one_signal_ends_a_command_that_another_command_stopped() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        let words = ["session", "exec", &made.id, "--", "sh", "-c", &format!("exec {}", nap(9292))];
        let child = sandbar.behind(&FRESH, &words).spawn().expect("spawn");
        until("it runs", PATIENCE, || runs(&nap(9292)));
        // Another command of the same session stops it: it does not hear a signal before it goes on.
        let stop = "for p in /proc/[0-9]*; do grep -q 9292 $p/cmdline && grep -q ^Name:.sleep $p/status && kill -STOP ${p#/proc/}; done; true";
        assert_eq!(made.sh(stop).code, 0);
        until("it is stopped", PATIENCE, || made.sh("cat /proc/[0-9]*/stat").stdout.contains("(sleep) T"));
        kill_process(Pid::from_child(&child), Signal::TERM).expect("kill");
        assert_eq!(finish(child).code, 143);
    });
}
