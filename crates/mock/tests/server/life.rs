//! Lifetime, authorization and log of the server.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use sandbar_mock::{Authorization, Fault, MockError, MockServer, Script, Turn, item};
use serde_json::{Value, json};

use super::wire::{Client, request, serve};

fn hello() -> Script {
    Script::new().turn(item::text("hello"))
}

#[test]
fn dropping_it_ends_it_and_every_connection() {
    let (server, mut client) = serve(Script::new().turn(Turn::new([item::text("x")]).fault(Fault::Hang)));
    let address = server.address();
    assert_eq!(client.get("/models").json()["data"][0]["object"], "model");
    let mut hanging = TcpStream::connect(address).unwrap();
    hanging.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let body = request(json!("hi")).to_string();
    write!(hanging, "POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    while server.requests().len() < 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let started = Instant::now();
    drop(server);
    assert!(started.elapsed() < Duration::from_secs(60));
    assert_eq!(hanging.read(&mut [0; 8]).unwrap_or(0), 0);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn it_can_be_dropped_inside_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { drop(MockServer::start(hello()).unwrap()) });
}

#[test]
fn keys_are_asked_for_when_the_script_says_so() {
    for (authorization, given, status) in [
        (Authorization::Optional, "", 200),
        (Authorization::AnyKey, "authorization: Bearer x\r\n", 200),
        (Authorization::AnyKey, "authorization: Bearer \r\n", 401),
        (Authorization::AnyKey, "", 401),
        (Authorization::Key("k".to_owned()), "authorization: Bearer k\r\n", 200),
        (Authorization::Key("k".to_owned()), "authorization: Bearer x\r\n", 401),
    ] {
        let (server, mut client) = serve(hello().authorization(authorization));
        let answer = client.send("POST", "/responses", given, request(json!("hi")).to_string().as_bytes());
        assert_eq!(answer.status, status);
        assert_eq!(server.problems().len(), usize::from(status == 401));
        if status == 401 {
            assert_eq!(answer.json()["error"]["code"], "invalid_api_key");
        }
    }
}

#[test]
fn what_it_does_not_have_is_not_found() {
    let (server, mut client) = serve(hello());
    for path in ["/", "/response", "/responses/x/y", "/files"] {
        let answer = client.get(path);
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
    }
    assert_eq!(server.problems().len(), 4);
}

#[test]
fn requests_are_logged_up_to_a_bound() {
    let (server, mut client) = serve(hello().log_entries(2));
    for text in ["one", "two", "three"] {
        client.send("POST", "/responses", "X-Mine: yes\r\n", request(json!(text)).to_string().as_bytes());
        client.get("/nothing?here=1");
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!((requests[0].method.as_str(), requests[0].path.as_str()), ("POST", "/v1/responses"));
    assert_eq!((requests[0].header("x-mine"), &requests[0].body["input"]), (Some("yes"), &json!("three")));
    assert_eq!((requests[1].path.as_str(), &requests[1].body), ("/v1/nothing?here=1", &Value::Null));
    assert_eq!(server.problems().len(), 2);
}

#[test]
fn only_usable_scripts_start() {
    let start = |script: Script| MockServer::start(script).unwrap_err().to_string();
    for (script, place) in [
        (Script::new().turn(json!(1)), "turns[0].output[0]: an item is an object"),
        (Script::new().turn([]).turn(item::text("x")), "turns[0]: only a last turn may say nothing"),
        (Script::new().turn(Turn::new([]).fault(Fault::status(200))), "turns[0].faults[0].status: 200"),
        (Script::new().turn(Turn::new([]).fault(Fault::status(500).header("a b", "c"))), "turns[0].faults[0].headers"),
        (Script::new().turn(Turn::new([]).fault(Fault::Delay(Duration::from_secs(9_999)))), "turns[0].faults[0].ms"),
        (Script::new().turn(Turn::new([]).fault(Fault::ContentType("\n".to_owned()))), "turns[0].faults[0].value"),
    ] {
        let error = start(script);
        assert!(error.starts_with(&format!("the script is not usable: {place}")), "{error}");
    }
    let everywhere = MockServer::start_at(hello(), ([0, 0, 0, 0], 0).into());
    assert!(matches!(everywhere, Err(MockError::NotLoopback(_))));
}

#[test]
fn the_script_of_the_example_is_usable() {
    let script = Script::from_json(include_str!("../../examples/script.json")).unwrap();
    let (_server, mut client) = serve(script);
    assert_eq!(client.ask(&request(json!("hi"))).said(), "weather({\"city\":\"Oslo\"})");
}

#[test]
fn many_clients_at_once_all_get_their_answer() {
    let (server, _client) = serve(hello());
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                let mut client = Client::new(&server);
                for _ in 0..20 {
                    assert_eq!(client.ask(&request(json!("hi"))).said(), "hello");
                }
            });
        }
    });
    assert_eq!((server.requests().len(), server.problems().len()), (640, 0));
}
