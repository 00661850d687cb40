//! All faults, one attempt after the other.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use sandbar_mock::{Fault, Malformed, MockServer, Script, Turn, item};
use serde_json::{Value, json};

use super::wire::{Answer, Client, End, request, serve};

const TEXT: &str = "Grüße 🦀, this is an answer.";

fn body() -> Value {
    let mut body = request(json!("hi"));
    body["stream"] = json!(true);
    body
}

fn script(fault: Fault) -> Script {
    Script::new().turn(Turn::new([item::text(TEXT)]).fault(fault))
}

/// What the first attempt gets, and what the second does, which has no fault.
fn attempts(fault: Fault) -> (Answer, Answer) {
    let server = MockServer::start(script(fault)).unwrap();
    let first = Client::new(&server).ask(&body());
    let second = Client::new(&server).ask(&body());
    assert_eq!(second.said(), TEXT);
    assert_eq!(server.problems(), []);
    (first, second)
}

/// An event as a reader of the standard understands it: name and data.
type Event = (String, Vec<u8>);

/// Reads a stream by the letter of the standard.
fn read(bytes: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    let (mut name, mut data) = (String::new(), Vec::new());
    for line in bytes.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            if !data.is_empty() {
                events.push((std::mem::take(&mut name), std::mem::take(&mut data)));
            }
        } else if let Some(text) = line.strip_prefix(b"event: ") {
            name = String::from_utf8(text.to_vec()).unwrap();
        } else if let Some(text) = line.strip_prefix(b"data: ") {
            data.extend_from_slice(text);
        }
    }
    events
}

#[test]
fn faults_are_used_up_one_attempt_at_a_time_and_each_turn_has_its_own() {
    let first = Turn::new([item::text("a")]).fault(Fault::status(500)).fault(Fault::None).fault(Fault::status(429));
    let second = Turn::new([item::text("b")]).fault(Fault::status(503));
    let (_server, mut client) = serve(Script::new().turn(first).turn(second));
    let later = request(json!([{"role": "assistant", "content": "a"}, {"role": "user", "content": "?"}]));
    let statuses: Vec<u16> =
        [&body(), &later, &body(), &body(), &later, &body()].map(|body| client.ask(body).status).into();
    assert_eq!(statuses, [500, 503, 200, 429, 200, 200]);
}

#[test]
fn a_status_brings_its_headers_and_its_body() {
    let fault =
        Fault::status(429).header("retry-after", "2").header("retry-after-ms", "5").header("x-should-retry", "true");
    let (answer, _) = attempts(fault.clone());
    assert_eq!(
        (answer.status, answer.header("retry-after"), answer.header("retry-after-ms")),
        (429, Some("2"), Some("5"))
    );
    assert_eq!(answer.header("x-should-retry"), Some("true"));
    assert_eq!(answer.json()["error"]["type"], "rate_limit_exceeded");
    let (answer, _) = attempts(fault.clone().body(json!({"error": {"code": "mine"}})));
    assert_eq!(answer.json()["error"]["code"], "mine");
    let (answer, _) = attempts(Fault::status(502).body("<html>bad gateway</html>"));
    assert_eq!((answer.text(), answer.header("content-type")), ("<html>bad gateway</html>", Some("text/plain")));
}

#[test]
fn delays_and_slow_bytes_change_nothing_but_the_time() {
    for fault in
        [Fault::Delay(Duration::from_millis(150)), Fault::Slow { bytes: 400, every: Duration::from_millis(20) }]
    {
        let started = Instant::now();
        let (first, second) = attempts(fault);
        assert!(started.elapsed() >= Duration::from_millis(100));
        assert_eq!((first.end, first.body), (End::Whole, second.body));
    }
}

#[test]
fn a_cut_stream_ends_where_it_was_cut_and_never_at_its_end() {
    for (fault, sent) in [
        (Fault::CutAfterEvents(0), 0),
        (Fault::CutAfterEvents(1), 1),
        (Fault::CutAfterEvents(5), 5),
        (Fault::CutAfterEvents(9_999), usize::MAX),
    ] {
        let (first, second) = attempts(fault);
        assert_eq!(first.end, End::Cut);
        let (got, whole) = (read(&first.body), read(&second.body));
        assert_eq!(got, whole[..sent.min(whole.len() - 1)]);
    }
    for (bytes, sent) in [(0, 0), (1, 1), (700, 700), (usize::MAX, usize::MAX)] {
        let (first, second) = attempts(Fault::CutAfterBytes(bytes));
        assert_eq!(first.end, End::Cut);
        assert_eq!(first.body, second.body[..sent.min(second.body.len() - 1)]);
    }
}

#[test]
fn a_cut_is_a_reset_not_an_end() {
    let (server, _client) = serve(script(Fault::CutAfterBytes(10)));
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let body = body().to_string();
    write!(socket, "POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut got = Vec::new();
    let error = socket.read_to_end(&mut got).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(String::from_utf8_lossy(&got).contains("event: res"));
}

#[test]
fn a_cut_document_is_shorter_than_it_said() {
    let (server, mut client) = serve(script(Fault::CutAfterBytes(10)));
    let answer = client.ask(&request(json!("hi")));
    assert_eq!((answer.end, answer.body.len()), (End::Cut, 10));
    assert!(answer.header("content-length").is_some());
    assert_eq!(Client::new(&server).ask(&request(json!("hi"))).said(), TEXT);
}

#[test]
fn answers_can_end_badly() {
    let (code, message) = ("rate_limit_exceeded".to_owned(), "Too much.".to_owned());
    let last = |fault: Fault| {
        let (first, _) = attempts(fault);
        assert_eq!(first.end, End::Whole);
        first.events().pop().unwrap()
    };
    let failed = last(Fault::Failed { code: code.clone(), message: message.clone() });
    assert_eq!(failed["type"], "response.failed");
    assert_eq!(failed["response"]["error"], json!({"code": code, "message": message}));
    assert_eq!((&failed["response"]["status"], &failed["response"]["output"]), (&json!("failed"), &json!([])));
    let incomplete = last(Fault::Incomplete { reason: "content_filter".to_owned() });
    assert_eq!(incomplete["type"], "response.incomplete");
    assert_eq!(incomplete["response"]["incomplete_details"], json!({"reason": "content_filter"}));
    let error = last(Fault::ErrorEvent { code: code.clone(), message: message.clone() });
    assert_eq!((&error["type"], &error["code"], &error["message"]), (&json!("error"), &json!(code), &json!(message)));
}

#[test]
fn answers_that_are_no_streams_can_end_badly_too() {
    let fault = || Fault::Failed { code: "c".to_owned(), message: "m".to_owned() };
    let event = || Fault::ErrorEvent { code: "c".to_owned(), message: "m".to_owned() };
    for (fault, status, state) in [
        (fault(), 200, "failed"),
        (Fault::Incomplete { reason: "max_output_tokens".to_owned() }, 200, "incomplete"),
        (event(), 500, "failed"),
    ] {
        let (_server, mut client) = serve(script(fault));
        let answer = client.ask(&request(json!("hi")));
        assert_eq!((answer.status, &answer.json()["status"]), (status, &json!(state)));
    }
}

#[test]
fn odd_but_legal_streams_say_the_same() {
    for how in [Malformed::GarbageLine, Malformed::Split, Malformed::Crlf, Malformed::Comments] {
        let (first, second) = attempts(Fault::Malformed(how));
        assert_eq!((first.status, first.end), (200, End::Whole));
        assert_eq!(read(&first.body), read(&second.body), "{how:?}");
        assert_eq!(first.body == second.body, how == Malformed::Split, "{how:?}");
    }
    let (crlf, plain) = attempts(Fault::Malformed(Malformed::Crlf));
    assert_eq!(crlf.body.iter().filter(|byte| **byte == b'\r').count(), plain.text().matches('\n').count());
    let (comments, _) = attempts(Fault::Malformed(Malformed::Comments));
    assert!(comments.text().contains("\n: keep-alive\n\n"));
}

#[test]
fn a_split_stream_comes_in_pieces_that_break_characters() {
    let (server, _client) = serve(script(Fault::Malformed(Malformed::Split)));
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let body = body().to_string();
    write!(socket, "POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut all = Vec::new();
    while !all.ends_with(b"0\r\n\r\n") {
        let mut piece = [0; 65_536];
        let read = socket.read(&mut piece).unwrap();
        assert!(read > 0, "the stream ended early");
        all.extend_from_slice(&piece[..read]);
    }
    // Each piece is a chunk of its own; one of them begins in the middle of a character.
    let text = String::from_utf8_lossy(&all);
    assert!(text.matches("\r\n").count() > 20, "{text}");
    assert!(all.windows(3).any(|window| window[..2] == *b"\r\n" && window[2] & 0xC0 == 0x80));
}

#[test]
fn broken_streams_are_broken_in_one_place() {
    for (how, words) in [
        (Malformed::InvalidJson, &b"{\"type\": \"response.outp\n"[..]),
        (Malformed::InvalidUtf8, b"\xff\xfe"),
        (Malformed::OversizedLine(100_000), &[b'x'; 100_000]),
    ] {
        let (first, second) = attempts(Fault::Malformed(how));
        let (got, whole) = (read(&first.body), read(&second.body));
        assert_eq!((&got[..1], &got[2..]), (&whole[..1], &whole[1..]), "{how:?}");
        assert!(first.body.windows(words.len()).any(|window| window == words), "{how:?}");
    }
    let (first, second) = attempts(Fault::Malformed(Malformed::NoFinalBlank));
    assert_eq!(first.text(), second.text().trim_end());
}

#[test]
fn nothing_at_all_and_something_else() {
    let (empty, _) = attempts(Fault::Empty);
    assert_eq!((empty.status, empty.body.len(), empty.end), (200, 0, End::Whole));
    let (html, whole) = attempts(Fault::ContentType("text/html".to_owned()));
    assert_eq!((html.header("content-type"), &html.body), (Some("text/html"), &whole.body));
}

#[test]
fn silence_lasts_until_the_client_leaves() {
    let (server, _client) = serve(script(Fault::Hang));
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let text = body().to_string();
    write!(socket, "POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{text}", text.len()).unwrap();
    let error = socket.read(&mut [0; 1]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    // The first request that arrives gets the fault.
    while server.requests().is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(socket);
    assert_eq!(Client::new(&server).ask(&body()).said(), TEXT);
    // The server let go of its end as well.
    let local = format!("0100007F:{:04X} ", server.address().port());
    let is_half_closed = || {
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
        sockets.lines().any(|line| line.contains(&format!(": {local}")) && line.split_whitespace().nth(3) == Some("08"))
    };
    let started = Instant::now();
    while is_half_closed() {
        assert!(started.elapsed() < Duration::from_secs(60), "the connection is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
}
