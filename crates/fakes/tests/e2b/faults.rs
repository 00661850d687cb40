//! All faults, and the log of requests.

use std::{
    io::Read as _,
    time::{Duration, Instant},
};

use sandbar_fakes::{Fault, On, e2b::Server};
use serde_json::json;

use crate::client::{api, create, envelope};

fn list(server: &Server) -> crate::client::Call<'_> {
    api(server, "GET", "/v2/sandboxes")
}

#[test]
fn a_status_is_answered_as_often_as_it_is_armed() {
    let server = Server::start().unwrap();
    server.fault(On::get("/v2/sandboxes"), Fault::Status(500, "{\"code\": 500}".to_owned()), 2);
    server.fault(On::any("/v2/sandboxes"), Fault::RetryAfter(429, 7), 1);
    for _ in 0..2 {
        let reply = list(&server).send();
        assert_eq!((reply.status, reply.header("content-type")), (500, Some("application/json")));
    }
    let reply = list(&server).send();
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("7")));
    assert_eq!(list(&server).send().status, 200);
}

#[test]
fn a_request_that_stalls_is_never_answered_and_never_served() {
    let server = Server::start().unwrap();
    server.fault(On::post("/sandboxes"), Fault::Stall, 1);
    let mut stalled = api(&server, "POST", "/sandboxes").json(&json!({"templateID": "base"})).begin();
    stalled.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    assert!(stalled.read(&mut [0]).is_err());
    assert_eq!(list(&server).send().json(), json!([]));
}

#[test]
fn garbage_is_no_message() {
    let server = Server::start().unwrap();
    let sandbox = create(&server, json!({}));
    server.fault(On::post("/process.Process/Start"), Fault::Garbage, 1);
    let reply = sandbox.stream("/process.Process/Start", &json!({})).send();
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/connect+json")));
    assert!(serde_json::from_slice::<serde_json::Value>(&reply.body).is_err());
}

#[test]
fn a_lost_reply_has_been_served() {
    let server = Server::start().unwrap();
    server.fault(On::post("/sandboxes"), Fault::LoseReply, 1);
    let made = api(&server, "POST", "/sandboxes").json(&json!({"templateID": "base", "timeout": 60})).try_send();
    assert!(made.is_none(), "{made:?}");
    assert_eq!(list(&server).send().json().as_array().map(Vec::len), Some(1));
}

#[test]
fn a_body_is_cut_where_it_is_told() {
    let server = Server::start().unwrap();
    let sandbox = create(&server, json!({}));
    sandbox.run("head -c 100000 /dev/zero > ~/zeros");
    for cut in [0, 1, 5000] {
        server.fault(On::get("/files"), Fault::CutAfter(cut), 1);
        let reply = sandbox.call(49983, "GET", "/files?path=zeros").send();
        assert_eq!((reply.status, reply.body.len(), reply.complete), (200, cut, false));
    }
    let whole = sandbox.call(49983, "GET", "/files?path=zeros").send();
    assert_eq!((whole.body.len(), whole.complete), (100_000, true));
}

#[test]
fn slow_bytes_all_arrive() {
    let server = Server::start().unwrap();
    let sandbox = create(&server, json!({}));
    server.fault(
        On::post("/process.Process/Start"),
        Fault::SlowBytes { at_once: 3, every: Duration::from_millis(5) },
        1,
    );
    let began = Instant::now();
    let messages = sandbox.run("echo slow");
    assert_eq!(messages.last().map(|(flags, _)| *flags), Some(2));
    assert!(began.elapsed() > Duration::from_millis(100), "{:?}", began.elapsed());
}

#[test]
fn the_log_has_what_was_sent() {
    let server = Server::start().unwrap();
    let sandbox = create(&server, json!({}));
    server.forget_requests();
    sandbox.run("true");
    sandbox
        .call(49983, "POST", "/files?path=/tmp/a%20b")
        .header("Content-Type", "application/octet-stream")
        .body(vec![7; 300_000])
        .send();
    let [started, written] = &server.requests()[..] else { panic!("{:?}", server.requests()) };
    assert_eq!(
        (started.method.as_str(), started.path.as_str(), started.query.as_str()),
        ("POST", "/process.Process/Start", "")
    );
    assert_eq!(started.header("e2b-sandbox-port"), Some("49983"));
    let message = json!({"process": {"cmd": "/bin/bash", "args": ["-l", "-c", "true"]}, "stdin": false});
    assert_eq!(started.body, envelope(&message));
    assert_eq!(started.messages(), [(0, message)]);
    assert_eq!((written.query.as_str(), written.body.len(), written.truncated), ("path=/tmp/a%20b", 256 << 10, true));
}
