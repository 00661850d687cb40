//! Clients that send invalid messages: each gets a response, and the next line is read.

use std::{
    fs,
    io::Write,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    client::{Client, output},
    rig::{PATIENCE, Sandbar, marked, naps, until},
};

#[test]
fn an_invalid_message_is_refused_and_the_server_continues() {
    let sandbar = Sandbar::own();
    let mut client = Client::silent(&sandbar, &[]);
    // Before the handshake nothing but a request makes sense, and nothing ends the server.
    client.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    client.say(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    assert!(client.request("early", "tools/list", &json!({}))["error"].is_object());
    assert_eq!(client.request("ping", "ping", &json!({}))["result"], json!({}));
    client.greet();
    let table = [
        ("not json", -32700, Value::Null),
        ("{\"jsonrpc\":\"2.0\",", -32700, Value::Null),
        ("\u{0}\u{1}\u{2}", -32700, Value::Null),
        ("[1,2]", -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":"a"}"#, -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":["x"]}}"#, -32602, json!(1)),
        (r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":"x"}"#, -32602, json!(2)),
        (r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"rm"}}"#, -32602, json!(3)),
        (r#"{"jsonrpc":"2.0","id":4,"method":"no/such"}"#, -32601, json!(4)),
    ];
    for (line, code, id) in table {
        client.say(line);
        let answer = client.hear();
        assert_eq!((answer["error"]["code"].as_i64(), &answer["id"]), (Some(code), &id), "{line}: {answer}");
    }
    assert!(client.exec("echo still here").ends_with("still here\n"));
    assert_eq!(client.close().code, 0);
}

#[test]
fn invalid_arguments_are_reported_to_the_model() {
    let sandbar = Sandbar::own();
    let mut client = Client::start(&sandbar, &[]);
    for (tool, arguments) in [
        ("exec_command", json!({})),
        ("exec_command", json!({"cmd": ""})),
        ("exec_command", json!({"cmd": ["ls"]})),
        ("exec_command", json!({"cmd": "ls", "yield_time_ms": -1})),
        ("exec_command", json!({"cmd": "ls", "workdir": "\u{0}"})),
        ("exec_command", json!({"cmd": "a\u{0}b"})),
        ("write_stdin", json!({"session_id": "1"})),
        ("write_stdin", json!({"session_id": 1e300})),
        ("view_image", json!({"path": null})),
        ("view_image", json!({"path": ""})),
        ("exec_command", json!({"cmd": "ls", "workdir": "no/such/dir"})),
        ("read_file", json!({"path": "a", "offset": 0})),
        ("read_file", json!({"path": "a", "offset": -1})),
        ("read_file", json!({"path": "a", "lines": 3})),
        ("read_file", json!({"path": "a\u{0}b"})),
        ("write_file", json!({"path": "a"})),
        ("write_file", json!({"path": "x".repeat(5000), "content": ""})),
        ("read_file", json!({"path": "x".repeat(1_000_000)})),
        ("view_image", json!({"path": "x".repeat(1_000_000)})),
        ("exec_command", json!({"cmd": "x".repeat(1_000_000), "workdir": "none"})),
        ("apply_patch", json!({"patch": "x".repeat(1_000_000)})),
        ("read_file", json!({"path": "a", "x".repeat(1_000_000): 1})),
        ("list_directory", json!({"depth": 17})),
        ("list_directory", json!({"depth": 0})),
    ] {
        let text = client.refused(tool, arguments.clone());
        assert!((1..41_000).contains(&text.len()), "{tool}: {} bytes", text.len());
    }
    assert_eq!(client.close().code, 0);
}

#[test]
fn an_endless_line_is_discarded_without_using_memory() {
    let sandbar = Sandbar::own();
    let mut client = Client::start(&sandbar, &[]);
    let before = resident(client.pid());
    let giant = "x".repeat(40 << 20);
    client.say(&giant);
    let answer = client.hear();
    assert_eq!((answer["error"]["code"].as_i64(), &answer["id"]), (Some(-32600), &Value::Null), "{answer}");
    let text = "y".repeat(15 << 20);
    let said = client.done("write_file", json!({"path": "big", "content": text}));
    assert_eq!(said, format!("Wrote {} bytes to big", 15 << 20));
    let more = resident(client.pid()).saturating_sub(before);
    assert!(more < 200 << 20, "{more} bytes more");
    assert_eq!(client.close().code, 0);
}

/// What a process has in memory, in bytes.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

#[test]
fn every_result_is_bounded() {
    let sandbar = Sandbar::own();
    let mut client = Client::start(&sandbar, &[]);
    let text = client.exec("yes 0123456789 | head -c 50000000");
    assert!(text.len() < 42_000 && text.contains("tokens truncated"), "{}", text.len());
    client.exec("yes 0123456789 | head -c 50000000 > big; head -c 1000000 /dev/zero | tr '\\0' x > line");
    let text = client.done("read_file", json!({"path": "big", "limit": 1_000_000_000}));
    assert!(text.len() < 41_000 && text.ends_with("continue with offset 3637]"), "{}", text.len());
    let text = client.done("read_file", json!({"path": "big", "offset": 4_000_000}));
    assert!(text.starts_with("0123456789\n"), "{}", &text[..20]);
    let text = client.done("read_file", json!({"path": "line"}));
    assert!(text.len() < 41_000 && text.contains("longer than a result"), "{}", text.len());
    client.exec("mkdir many && cd many && seq 5000 | xargs touch && mkdir -p a/b/c/d/e");
    let text = client.done("list_directory", json!({"path": "many", "depth": 3}));
    assert!(
        text.lines().count() == 1001 && text.ends_with("[there is more; list a subdirectory, or use exec_command]"),
        "{}",
        text.lines().count()
    );
    assert_eq!(client.close().code, 0);
}

#[test]
fn calls_run_concurrently_and_cancelled_calls_end() {
    let sandbar = Sandbar::own();
    let work = sandbar.make_dir("work");
    let mut client = Client::start(&sandbar, &["--workspace", "work"]);
    let call = |cmd: &str| json!({"name": "exec_command", "arguments": {"cmd": cmd, "yield_time_ms": 30000}});
    // Each waits for all the others, which one after the other would never come.
    for at in 0..8 {
        let meet = format!("touch met{at}; until test $(ls met* | wc -l) = 8; do sleep 0.1; done; echo done");
        client.ask(&format!("meet {at}"), "tools/call", &call(&meet));
    }
    for at in 0..8 {
        let answer = client.answer(&format!("meet {at}").into());
        assert_eq!(output(answer["result"]["content"][0]["text"].as_str().expect("text")), "done\n");
    }
    let marker = format!("4321{}", naps());
    client.ask("long", "tools/call", &call(&format!("sleep {marker}")));
    until("it runs", PATIENCE, || !marked(&marker).is_empty());
    client.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"long"}}"#);
    until("it is ended", PATIENCE, || marked(&marker).is_empty());
    client.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"nothing"}}"#);
    assert!(client.exec("echo after").ends_with("after\n"));
    // More concurrent calls than allowed: some are refused, all are answered.
    for at in 0..100 {
        client.ask(&format!("crowd {at}"), "tools/call", &call("until test -e go; do sleep 1; done"));
    }
    let is_of_crowd = |message: &Value| message["id"].as_str().is_some_and(|id| id.starts_with("crowd "));
    let first = std::iter::repeat_with(|| client.hear()).find(is_of_crowd).expect("an answer");
    assert_eq!(first["result"]["isError"], true, "the others wait: {first}");
    fs::write(work.join("go"), "").expect("write");
    client.keep(first);
    let answers = (0..100).map(|at| client.answer(&format!("crowd {at}").into())["result"].clone());
    let refused = answers.filter(|result| result["isError"] == true).count();
    assert!((1..100).contains(&refused), "{refused}");
    assert_eq!(client.close().code, 0);
}

#[test]
fn requests_of_a_client_that_does_not_read_are_not_read() {
    const ALL: usize = 50_000;
    let sandbar = Sandbar::own();
    // Standard output is not read, so requests must pile up in the pipe and not in the server.
    let mut child = sandbar.command(&["mcp"]).stdin(Stdio::piped()).spawn().expect("spawn");
    let mut stdin = child.stdin.take().expect("stdin");
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = sent.clone();
    let who = json!({"name": "test", "version": "1"});
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": who});
    let hello = json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": hello});
    let filler = "x".repeat(1000);
    let asking = thread::spawn(move || {
        let mut written = stdin.write_all(format!("{hello}\n").as_bytes());
        for id in 0..ALL {
            let ask = json!({"jsonrpc": "2.0", "id": id, "method": "tools/list", "params": {"_meta": {"x": filler}}});
            written = written.and_then(|()| stdin.write_all(format!("{ask}\n").as_bytes()));
            counter.fetch_add(usize::from(written.is_ok()), Ordering::Relaxed);
        }
    });
    let mut before = 0;
    until("it no longer takes anything", PATIENCE, || {
        thread::sleep(Duration::from_secs(1));
        let now = sent.load(Ordering::Relaxed);
        now > 0 && std::mem::replace(&mut before, now) == now
    });
    assert!(before < ALL / 5, "{before} requests were taken although no answer was");
    assert!(resident(child.id()) < 200 << 20, "{}", resident(child.id()));
    child.kill().expect("kill");
    child.wait().expect("wait");
    asking.join().expect("asking");
    sandbar.leaves_nothing("no such marker");
}
