//! The life of the server: errors before the handshake, and every end leaves nothing.

use std::{io::Write, process::Stdio};

use rustix::process::Signal;
use serde_json::json;

use super::{
    client::{Client, running},
    rig::{PATIENCE, Sandbar, each, marked, naps, until},
    screen::Terminal,
};

/// A server with something running in it that is easy to recognise, also in the background.
fn busy(sandbar: &Sandbar, marker: &str) -> Client {
    let mut client = Client::start(sandbar, &[]);
    let cmd = format!("setsid sleep {marker} & sleep {marker}");
    let text = client.done("exec_command", json!({"cmd": cmd, "yield_time_ms": 250}));
    assert!(running(&text).is_some(), "{text}");
    client.done("write_file", json!({"path": "left.txt", "content": "x"}));
    until("both run", PATIENCE, || marked(marker).len() >= 2);
    assert!(!sandbar.left().is_empty(), "a machine leaves traces while it lives");
    client
}

#[test]
fn nothing_is_left_when_the_client_disconnects() {
    each(|sandbar| {
        let marker = format!("1111{}", naps());
        let run = busy(sandbar, &marker).close();
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        assert!(marked(&marker).is_empty() && sandbar.left().is_empty(), "{:?}", sandbar.left());
    });
}

#[test]
fn nothing_is_left_after_a_signal() {
    each(|sandbar| {
        for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
            let marker = format!("2222{}", naps());
            let run = busy(sandbar, &marker).signal(signal);
            assert_eq!((run.code, run.stderr.as_str()), (code, ""));
            assert!(marked(&marker).is_empty() && sandbar.left().is_empty(), "{:?}", sandbar.left());
        }
    });
}

#[test]
fn nothing_is_left_when_the_server_is_killed() {
    each(|sandbar| {
        let marker = format!("3333{}", naps());
        assert_eq!(busy(sandbar, &marker).signal(Signal::KILL).code, 137);
        sandbar.leaves_nothing(&marker);
    });
}

#[test]
fn running_calls_are_answered_after_the_end_of_the_input() {
    let sandbar = Sandbar::own();
    let hello =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello});
    let call = json!({"name": "exec_command", "arguments": {"cmd": "sleep 0.5; echo done", "yield_time_ms": 30000}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call});
    // Not even the last line has an end.
    let input: &'static str = format!("{hello}\n{call}").leak();
    let output = sandbar.feed(&["mcp"], input.as_bytes());
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success() && text.lines().count() == 2 && text.contains("done"), "{text}");
    let output = sandbar.feed(&["mcp"], b"");
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    assert!(sandbar.left().is_empty());
}

#[test]
fn a_sandbox_that_cannot_be_created_is_reported_before_the_handshake() {
    let sandbar = Sandbar::own();
    sandbar.make_file("broken.yaml", "entries: [");
    let table: [(&[&str], i32, &str); 6] = [
        (&["--workspace", "/no/such/place"], 1, "cannot use --workspace /no/such/place"),
        (&["--isolation", "none"], 1, "needs full isolation"),
        (&["--manifest", "broken.yaml"], 1, "broken.yaml"),
        (&["--audit", "/proc/no/audit"], 1, "cannot use --audit /proc/no/audit"),
        (&["--env", "SURELY_NOT_SET_HERE"], 1, "SURELY_NOT_SET_HERE"),
        (&["--what"], 2, "--what"),
    ];
    for (options, code, reason) in table {
        let run = sandbar.run(&[&["mcp"], options].concat());
        assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{options:?}: {run:?}");
        assert!(run.stderr.starts_with("sandbar: ") && run.stderr.contains(reason), "{options:?}: {run:?}");
    }
    let work = sandbar.make_dir("work");
    let work = work.display().to_string();
    std::os::unix::fs::symlink(&work, sandbar.dir().join("link")).expect("link");
    for audit in ["work/audit.jsonl", "link/new/audit.jsonl", "work/../link/audit.jsonl"] {
        for option in ["--workspace", "--rw"] {
            let run = sandbar.run(&["mcp", option, &work, "--audit", audit]);
            assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:?}");
            assert!(run.stderr.contains("name a file that the sandbox cannot write to"), "{run:?}");
        }
    }
    assert_eq!(std::fs::read_dir(&work).expect("work").count(), 0);
    let run = Sandbar::without_namespaces().run(&["mcp"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:?}");
    assert!(run.stderr.contains("sandbar doctor"), "{run:?}");
    assert!(sandbar.left().is_empty());
}

#[test]
fn ports_are_reported_to_the_user_and_to_the_model() {
    let sandbar = Sandbar::own();
    let mut client = Client::silent(&sandbar, &["--port", "8000"]);
    let info = client.greet();
    let words = info["result"]["instructions"].as_str().expect("words").to_owned();
    let address = words.split("port 8000 of the sandbox at http://").nth(1).and_then(|rest| rest.split(".\n").next());
    let run = client.close();
    assert_eq!(run.stderr, format!("port 8000 is at http://{}\n", address.expect("an address")));
}

#[test]
fn a_client_that_stops_reading_ends_the_server() {
    let sandbar = Sandbar::own();
    let mut child = sandbar.command(&["mcp"]).stdin(Stdio::piped()).spawn().expect("spawn");
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().expect("stdin");
    let ping = json!({"jsonrpc": "2.0", "id": 0, "method": "ping"});
    until("it notices", PATIENCE, || {
        stdin.write_all(format!("{ping}\n").as_bytes()).is_err() || child.try_wait().expect("wait").is_some()
    });
    child.wait().expect("wait");
    sandbar.leaves_nothing("no such marker");
}

#[test]
fn on_a_terminal_the_server_explains_that_it_waits_for_a_client() {
    let sandbar = Sandbar::own();
    let mut terminal = Terminal::open(&sandbar, &["mcp"]);
    terminal.shows("waiting for an MCP client");
    terminal.types("\u{4}");
    let (run, shown) = terminal.ends();
    assert_eq!(run.code, 0, "{shown}");
    assert!(sandbar.left().is_empty());
}

#[test]
fn help_shows_the_configuration_for_a_client() {
    let run = Sandbar::own().run(&["mcp", "--help"]);
    let line = r#"{"command": "sandbar", "args": ["mcp", "--workspace", "/path/to/project"]}"#;
    assert!(run.code == 0 && run.stdout.contains(line), "{run:?}");
}
