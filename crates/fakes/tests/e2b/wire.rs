//! The wire format of a sandbox, field by field, as recorded from `envd`.

use std::time::{Duration, Instant};

use sandbar_fakes::e2b::Server;
use serde_json::{Value, json};

use crate::client::{Call, Sandbox, create, envelope};

fn event(event: Value) -> (u8, Value) {
    (0, json!({"event": event}))
}

/// The events of a stream with the process's number taken out.
fn numberless(mut messages: Vec<(u8, Value)>) -> Vec<(u8, Value)> {
    let pid = messages[0].1["event"]["start"]["pid"].take();
    assert!(pid.as_u64().is_some_and(|pid| pid > 1), "{pid}");
    messages
}

#[test]
fn a_process_starts_prints_and_ends() {
    let server = Server::start().unwrap();
    let sandbox = create(&server, json!({}));
    let start = event(json!({"start": {"pid": null}}));
    let seen = numberless(sandbox.run("echo out"));
    let end = event(json!({"end": {"exited": true, "status": "exit status 0"}}));
    assert_eq!(seen, [start.clone(), event(json!({"data": {"stdout": "b3V0Cg=="}})), end, (2, json!({}))]);
    let seen = numberless(sandbox.run("echo err >&2; exit 7"));
    let end = json!({"exitCode": 7, "exited": true, "status": "exit status 7", "error": "exit status 7"});
    let all =
        [start.clone(), event(json!({"data": {"stderr": "ZXJyCg=="}})), event(json!({"end": end})), (2, json!({}))];
    assert_eq!(seen, all);
    let seen = numberless(sandbox.run("kill -TERM $$"));
    let end = json!({"exitCode": -1, "status": "signal: terminated", "error": "signal: terminated"});
    assert_eq!(seen, [start, event(json!({"end": end})), (2, json!({}))]);
    // A program that is not there ends with the usual code.
    let missing = sandbox.stream("/process.Process/Start", &json!({"process": {"cmd": "no-such-program"}})).send();
    let ends: Vec<_> = missing.messages().iter().map(|(_, value)| value["event"]["end"]["exitCode"].clone()).collect();
    assert!(ends.contains(&json!(127)), "{ends:?}");
}

#[test]
fn streams_have_the_headers_of_their_protocol() {
    let server = Server::start().unwrap();
    let sandbox = create(&server, json!({}));
    let reply = sandbox.stream("/process.Process/Start", &json!({"process": {"cmd": "true"}})).send();
    assert_eq!(reply.header("content-type"), Some("application/connect+json"));
    assert_eq!(reply.header("connect-accept-encoding"), Some("gzip"));
    assert_eq!(reply.header("vary"), Some("Origin"));
    // Errors of a stream are in it, whatever happens.
    let bad = sandbox.stream("/process.Process/Connect", &json!({"process": {"pid": 999_999}})).send();
    let error = json!({"error": {"code": "not_found", "message": "process with pid 999999 not found"}});
    assert_eq!((bad.status, bad.messages()), (200, vec![(2, error)]));
    let there = json!({"process": {"cmd": "true", "cwd": "/no/such"}});
    let bad = sandbox.stream("/process.Process/Start", &there).send();
    let error = json!({"error": {"code": "invalid_argument", "message": "cwd '/no/such' does not exist"}});
    assert_eq!((bad.status, bad.messages()), (200, vec![(2, error)]));
    // Messages are JSON, framed as the method wants.
    for (kind, method) in [
        ("application/json", "/process.Process/Start"),
        ("application/connect+json", "/process.Process/List"),
        ("application/connect+proto", "/process.Process/Start"),
    ] {
        let refused = sandbox.call(49983, "POST", method).header("Content-Type", kind).send();
        assert_eq!(refused.status, 415, "{kind} {method}");
    }
    let cut = sandbox.stream("/process.Process/Start", &json!({})).body([0, 0, 0]).send();
    assert_eq!(cut.messages()[0].1["error"]["code"], "invalid_argument");
    let compressed = sandbox.stream("/process.Process/Start", &json!({})).body([1, 0, 0, 0, 0]).send();
    assert_eq!(compressed.messages()[0].1["error"]["code"], "invalid_argument");
}

#[test]
fn the_deadline_of_a_start_ends_stream_and_process() {
    let server = Server::start().unwrap();
    let sandbox = create(&server, json!({}));
    let process = json!({"process": {"cmd": "/bin/bash", "args": ["-c", "sleep 100"]}, "stdin": false});
    let seen = sandbox.stream("/process.Process/Start", &process).header("Connect-Timeout-Ms", "500").send();
    let error = json!({"error": {"code": "deadline_exceeded", "message": "context deadline exceeded"}});
    let all = [event(json!({"start": {"pid": null}})), (2, error)];
    assert_eq!(numberless(seen.messages()), all);
    assert_eq!(sandbox.unary("/process.Process/List", &json!({})).json(), json!({}));
    // Endless output does not hide the deadline.
    let process = json!({"process": {"cmd": "yes"}, "stdin": false});
    let seen = sandbox.stream("/process.Process/Start", &process).header("Connect-Timeout-Ms", "500").send();
    assert_eq!(seen.messages().pop().map(|(_, last)| last["error"]["code"].clone()), Some(json!("deadline_exceeded")));
}

#[track_caller]
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_silent_stream_is_kept_alive() {
    let server = Server::start().unwrap();
    let sandbox = create(&server, json!({}));
    let process = json!({"process": {"cmd": "sleep", "args": ["3"]}});
    let seen = sandbox.stream("/process.Process/Start", &process).header("Keepalive-Ping-Interval", "1").send();
    assert!(seen.messages().contains(&event(json!({"keepalive": {}}))), "{:?}", seen.messages());
}

#[test]
fn a_tag_finds_its_process_and_a_signal_ends_it() {
    let server = Server::start().unwrap();
    let sandbox = create(&server, json!({}));
    let process = json!({"cmd": "sleep", "args": ["100"], "envs": {"X": "1"}, "cwd": "/tmp"});
    let followed = sandbox.stream("/process.Process/Start", &json!({"process": process, "tag": "one"})).begin();
    let list = || sandbox.unary("/process.Process/List", &json!({})).json();
    eventually("it is listed", || list()["processes"][0]["tag"] == "one");
    assert_eq!(list()["processes"][0]["config"], process);
    // A client that goes leaves the process.
    drop(followed);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(list()["processes"][0]["tag"], "one");
    let by_tag = |signal: &str| json!({"process": {"tag": "one"}, "signal": signal});
    let unknown = sandbox.unary("/process.Process/SendSignal", &by_tag("SIGNAL_SIGUSR1"));
    assert_eq!((unknown.status, unknown.json()["code"].clone()), (501, json!("unimplemented")));
    let sent = sandbox.unary("/process.Process/SendSignal", &by_tag("SIGNAL_SIGTERM"));
    assert_eq!((sent.status, sent.json()), (200, json!({})));
    eventually("it ends", || list() == json!({}));
    let gone = sandbox.unary("/process.Process/SendSignal", &by_tag("SIGNAL_SIGKILL"));
    let error = json!({"code": "not_found", "message": "process with tag one not found"});
    assert_eq!((gone.status, gone.json()), (404, error));
}

#[test]
fn input_goes_where_it_belongs() {
    let server = Server::start().unwrap();
    let sandbox = create(&server, json!({}));
    let started = sandbox.stream("/process.Process/Start", &json!({"process": {"cmd": "cat"}, "tag": "cat"})).begin();
    let select = json!({"tag": "cat"});
    eventually("it runs", || sandbox.unary("/process.Process/List", &json!({})).json() != json!({}));
    let wrong = sandbox.unary("/process.Process/SendInput", &json!({"process": select, "input": {"pty": "eA=="}}));
    assert_eq!((wrong.status, wrong.json()["code"].clone()), (400, json!("failed_precondition")));
    let resize = json!({"process": select, "pty": {"size": {"cols": 1, "rows": 1}}});
    assert_eq!(sandbox.unary("/process.Process/Update", &resize).status, 500);
    let mut input = envelope(&json!({"start": {"process": select}}));
    input.extend(envelope(&json!({"data": {"input": {"stdin": "eA=="}}})));
    input.extend(envelope(&json!({"keepalive": {}})));
    let sent = sandbox.stream("/process.Process/StreamInput", &json!({})).body(input).send();
    assert_eq!(sent.messages(), [(0, json!({})), (2, json!({}))]);
    assert_eq!(sandbox.unary("/process.Process/CloseStdin", &json!({"process": select})).json(), json!({}));
    drop(started);
    eventually("it ends", || sandbox.unary("/process.Process/List", &json!({})).json() == json!({}));
}

#[test]
fn files_are_answered_as_envd_does() {
    let server = Server::start().unwrap();
    let sandbox = create(&server, json!({}));
    let form =
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/tmp/x/f.bin\"\r\n\r\n\x01\x02\r\n--b--\r\n";
    let written = sandbox
        .call(49983, "POST", "/files?path=/tmp/x/f.bin")
        .header("Content-Type", "multipart/form-data; boundary=b")
        .body(form)
        .send();
    assert_eq!((written.status, written.header("content-type")), (200, Some("text/plain; charset=utf-8")));
    assert_eq!(written.json(), json!([{"name": "f.bin", "path": "/tmp/x/f.bin", "type": "file"}]));
    let read = sandbox.call(49983, "GET", "/files?path=/tmp/x/f.bin").send();
    assert_eq!((read.status, &read.body[..]), (200, &b"\x01\x02"[..]));
    assert_eq!(read.header("content-disposition"), Some("inline; filename=f.bin"));
    assert_eq!(read.header("content-type"), Some("application/octet-stream"));
    assert_eq!(read.header("vary"), Some("Accept-Encoding"));
    let packed = sandbox.call(49983, "GET", "/files?path=/tmp/x/f.bin").header("Accept-Encoding", "gzip, br").send();
    assert_eq!((packed.header("content-encoding"), &packed.body[..2]), (Some("gzip"), &b"\x1f\x8b"[..]));
    let missing = sandbox.call(49983, "GET", "/files?path=/tmp/none").send();
    assert_eq!(missing.status, 404);
    assert_eq!(missing.json(), json!({"code": 404, "message": "path '/tmp/none' does not exist"}));
    assert_eq!(missing.header("x-content-type-options"), Some("nosniff"));
    let odd = sandbox.call(49983, "POST", "/files?path=/tmp/y").json(&json!({})).send();
    assert_eq!(odd.status, 400);
    let cut =
        sandbox.call(49983, "POST", "/files?path=/tmp/y").header("Content-Type", "multipart/form-data; boundary=b");
    assert_eq!(cut.body("--b\r\n").send().status, 500);
    let raw = sandbox.call(49983, "POST", "/files").header("Content-Type", "application/octet-stream").body("x");
    assert_eq!(raw.send().status, 400);
    let health = sandbox.call(49983, "GET", "/health").send();
    assert_eq!((health.status, health.header("cache-control")), (204, Some("no-store")));
    assert_eq!(sandbox.call(49983, "GET", "/nothing").send().status, 404);
}

#[test]
fn the_file_system_has_the_codes_of_envd() {
    let server = Server::start().unwrap();
    let sandbox = create(&server, json!({}));
    let call = |method: &str, message: Value| {
        let reply = sandbox.unary(&format!("/filesystem.Filesystem/{method}"), &message);
        assert_eq!(reply.header("content-type"), Some("application/json"));
        (reply.status, reply.json())
    };
    let (status, made) = call("MakeDir", json!({"path": "/tmp/e/d1"}));
    let entry = &made["entry"];
    assert_eq!(status, 200);
    let expected = json!({"name": "d1", "type": "FILE_TYPE_DIRECTORY", "path": "/tmp/e/d1", "mode": 493,
        "permissions": "drwxr-xr-x", "owner": "user", "group": "user"});
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(entry[name], *value, "{name}");
    }
    assert!(
        entry["size"].is_string() && entry["modifiedTime"].as_str().is_some_and(|time| time.ends_with('Z')),
        "{entry}"
    );
    let refused = |code: &str, message: &str| json!({"code": code, "message": message});
    let there = refused("already_exists", "directory already exists: /tmp/e/d1");
    assert_eq!(call("MakeDir", json!({"path": "/tmp/e/d1"})), (409, there));
    let (status, listed) = call("ListDir", json!({"path": "/tmp/e", "depth": 1}));
    assert_eq!((status, listed["entries"].as_array().map(Vec::len)), (200, Some(1)));
    assert_eq!(call("ListDir", json!({"path": "/tmp/e/d1"})), (200, json!({})));
    let missing = refused("not_found", "file not found: lstat /tmp/e/nope: no such file or directory");
    assert_eq!(call("Stat", json!({"path": "/tmp/e/nope"})), (404, missing));
    assert_eq!(call("Move", json!({"source": "/tmp/e/nope", "destination": "/tmp/x"})).0, 404);
    assert_eq!(call("Move", json!({"source": "/tmp/e/d1", "destination": "/tmp/f/d2"})).1["entry"]["name"], "d2");
    assert_eq!(call("Remove", json!({"path": "/tmp/f"})), (200, json!({})));
    assert_eq!(call("Remove", json!({"path": "/tmp/f"})), (200, json!({})));
    assert_eq!(call("WatchDir", json!({"path": "/tmp"})).0, 501);
    // The rest of the machine is the host's programs, read-only.
    assert_eq!(call("MakeDir", json!({"path": "/usr/mine"})).1["code"], "internal");
}

#[test]
fn a_secure_sandbox_wants_its_token_and_an_open_one_does_not() {
    let server = Server::start().unwrap();
    let secure = create(&server, json!({}));
    let without = Sandbox { token: None, id: secure.id.clone(), ..secure };
    let refused = without.unary("/process.Process/List", &json!({}));
    assert_eq!((refused.status, refused.json()["code"].clone()), (401, json!(401)));
    assert_eq!(without.call(49983, "GET", "/files?path=/etc/passwd").send().status, 401);
    assert_eq!(without.call(49983, "GET", "/health").send().status, 204);
    let wrong = Sandbox { token: Some("wrong".to_owned()), id: secure.id.clone(), ..secure };
    assert_eq!(wrong.unary("/process.Process/List", &json!({})).status, 401);
    assert_eq!(wrong.call(49983, "GET", "/files?path=/etc/passwd").send().status, 401);
    let open = create(&server, json!({"secure": false}));
    assert_eq!(open.token, None);
    assert_eq!(open.unary("/process.Process/List", &json!({})).status, 200);
}

#[test]
fn a_sandbox_is_found_by_headers_or_by_its_host() {
    let server = Server::start().unwrap();
    let sandbox = create(&server, json!({}));
    let host = |host: &str| Call::new(&server, "GET", "/health").header("Host", host).send();
    assert_eq!(host(&format!("49983-{}.e2b.example:1", sandbox.id)).status, 204);
    let gone = host("49983-ixyz.e2b.example");
    let message = json!({"sandboxId": "ixyz", "message": "The sandbox was not found", "code": 502});
    assert_eq!((gone.status, gone.json()), (502, message));
    let closed = host(&format!("3000-{}.e2b.example", sandbox.id));
    assert_eq!(closed.status, 502);
    assert_eq!(closed.json()["message"], "The sandbox is running but port is not open");
    let half = Call::new(&server, "GET", "/health").header("E2b-Sandbox-Id", &sandbox.id).send();
    assert_eq!(half.status, 400);
    let odd = Call::new(&server, "GET", "/health").header("E2b-Sandbox-Id", "i").header("E2b-Sandbox-Port", "x").send();
    assert_eq!(odd.status, 400);
}

#[test]
fn other_ports_are_forwarded_and_may_want_a_token() {
    let server = Server::start().unwrap();
    let private = json!({"network": {"allowPublicTraffic": false}});
    let mut fields = json!({"templateID": "base", "timeout": 300, "secure": true});
    fields.as_object_mut().unwrap().extend(private.as_object().unwrap().clone());
    let made = crate::client::api(&server, "POST", "/sandboxes").json(&fields).send().json();
    let token = made["trafficAccessToken"].as_str().unwrap();
    let sandbox = Sandbox {
        server: &server,
        id: made["sandboxID"].as_str().unwrap().to_owned(),
        token: made["envdAccessToken"].as_str().map(str::to_owned),
    };
    let _served = sandbox.stream("/process.Process/Start", &json!({"process": {"cmd": "python3", "args":
        ["-c", "import http.server as h\nclass E(h.BaseHTTPRequestHandler):\n def do_POST(s):\n  b=s.rfile.read(int(s.headers['Content-Length']))\n  s.send_response(201)\n  s.send_header('X-Path', s.path)\n  s.end_headers()\n  s.wfile.write(b[::-1])\nh.HTTPServer(('127.0.0.1',8080),E).serve_forever()"]}})).begin();
    let post = || sandbox.call(8080, "POST", "/a/b?c=d").body("abc");
    assert_eq!(post().send().status, 403);
    assert_eq!(post().header("e2b-traffic-access-token", "wrong").send().status, 403);
    let with_token = || post().header("e2b-traffic-access-token", token).send();
    eventually("the port is open", || with_token().status != 502);
    let reply = with_token();
    assert_eq!((reply.status, reply.header("x-path"), reply.text()), (201, Some("/a/b?c=d"), "cba".to_owned()));
}
