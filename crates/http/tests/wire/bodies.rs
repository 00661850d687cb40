//! Bodies are read within limits of size and time, whatever the server does.

use std::{io::Write, time::Duration};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures::{StreamExt, stream};
use sandbar_http::{Client, HttpError, Phase, Proxies, Request, Response, Timeouts};
use serde_json::{Value, json};

use crate::server::{Server, Step, answer, hurried, once};

async fn ask(request: Request) -> Result<Response, HttpError> {
    Client::new(Proxies::none()).send(request).await
}

async fn get(server: &Server) -> Response {
    ask(once(server.url("/"))).await.expect("an answer")
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text).expect("compress");
    encoder.finish().expect("compress")
}

fn chunked(pieces: &[&[u8]]) -> Vec<Step> {
    let mut steps = vec![Step::Send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec())];
    steps.extend(
        pieces.iter().map(|piece| Step::Send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat())),
    );
    steps
}

#[tokio::test]
async fn a_request_carries_what_it_was_given() {
    let server = Server::saying("200 OK", br#"{"id":"x"}"#).await;
    let request = Request::post(server.url("/v1?a=b")).secret_header("X-Api-Key", "key-1234").query("c", "d e");
    let answered = ask(request.json(&json!({ "template": "base" }))).await.expect("an answer");
    assert_eq!(answered.success().await.expect("a success").json::<Value>(100).await.expect("json"), json!({"id":"x"}));
    let heard = &server.heard()[0];
    assert_eq!(heard.line(), "POST /v1?a=b&c=d+e HTTP/1.1");
    assert_eq!(heard.header("x-api-key"), Some("key-1234"));
    assert_eq!(heard.header("content-type"), Some("application/json"));
    assert_eq!(heard.header("accept-encoding"), Some("gzip, br"));
    assert!(heard.header("user-agent").is_some_and(|agent| agent.starts_with("sandbar/")));
    assert_eq!(heard.body, br#"{"template":"base"}"#);
}

#[tokio::test]
async fn a_stream_is_sent_as_it_comes() {
    let server = Server::saying("200 OK", b"").await;
    let parts = stream::iter(["one ", "two ", "three"]).map(|part| Ok(Bytes::from(part)));
    ask(Request::put(server.url("/")).stream(parts)).await.expect("an answer");
    assert_eq!(server.heard()[0].body, b"one two three");
    let broken = stream::iter([Ok(Bytes::from("one ")), Err(std::io::Error::other("the disk is gone"))]);
    let error = ask(Request::put(server.url("/")).stream(broken)).await.expect_err("a broken stream");
    assert!(matches!(&error, HttpError::Broken { reason, .. } if reason.contains("the disk is gone")), "{error:?}");
}

#[tokio::test]
async fn a_body_is_whole_up_to_its_limit_and_refused_beyond_it() {
    let packed = gzip(&[b'x'; 5000]);
    let gzipped = move |_| answer("200 OK\ncontent-encoding: gzip", &packed);
    for (server, size) in [
        (Server::saying("200 OK", &[b'x'; 1000]).await, 1000),
        (Server::start(|_| chunked(&[&[b'x'; 600], &[b'x'; 400], b""])).await, 1000),
        (Server::start(gzipped).await, 5000),
    ] {
        assert_eq!(get(&server).await.bytes(size).await.expect("all of it"), vec![b'x'; size as usize]);
        let error = get(&server).await.bytes(size - 1).await.expect_err("too large");
        assert!(matches!(error, HttpError::TooLarge { limit, .. } if limit == size - 1), "{error:?}");
        assert!(!error.retryable());
    }
}

#[tokio::test]
async fn a_body_that_announces_too_much_is_not_read() {
    let server =
        Server::start(|_| vec![Step::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n".to_vec()), Step::Hang]);
    let error = get(&server.await).await.bytes(100).await.expect_err("too large");
    assert!(matches!(error, HttpError::TooLarge { .. }), "{error:?}");
}

#[tokio::test]
async fn a_compressed_body_comes_as_it_is_for_a_caller_who_wants_that() {
    let packed = gzip(b"plain");
    let server = Server::saying("200 OK\ncontent-encoding: gzip", &packed).await;
    assert_eq!(get(&server).await.bytes(100).await.expect("plain"), "plain");
    let asis = ask(once(server.url("/")).uncompressed()).await.expect("an answer");
    assert_eq!(asis.bytes(100).await.expect("bytes"), packed);
    assert_eq!(server.heard()[1].header("accept-encoding"), Some("identity"));
    for (encoding, words) in [("zstd", "content encoding \"zstd\""), ("gzip", "no valid gzip")] {
        let server = Server::saying(&format!("200 OK\ncontent-encoding: {encoding}"), b"something else").await;
        let error = get(&server).await.bytes(100).await.expect_err("not readable");
        assert!(matches!(&error, HttpError::Malformed { .. }) && error.to_string().contains(words), "{error}");
    }
}

#[tokio::test]
async fn parts_come_as_they_are_sent() {
    let server = Server::start(|_| {
        let mut steps = chunked(&[b"one"]);
        steps.push(Step::Hang);
        steps
    });
    let server = server.await;
    let mut parts = get(&server).await.into_stream();
    assert_eq!(parts.next().await.expect("a part").expect("one"), "one");
}

#[tokio::test]
async fn each_wait_has_its_limit() {
    let silent: fn(usize) -> Vec<Step> = |_| vec![Step::Hang];
    let half: fn(usize) -> Vec<Step> = |_| [chunked(&[b"one"]), vec![Step::Hang]].concat();
    let drip: fn(usize) -> Vec<Step> = |_| {
        let drop = || [Step::Wait(Duration::from_millis(20)), Step::Send(b"1\r\nx\r\n".to_vec())];
        [chunked(&[]), (0..10_000).flat_map(|_| drop()).collect()].concat()
    };
    let head: fn(&mut Timeouts, Duration) = |timeouts, short| timeouts.head = short;
    let idle: fn(&mut Timeouts, Duration) = |timeouts, short| timeouts.idle = short;
    let total: fn(&mut Timeouts, Duration) = |timeouts, short| timeouts.total = Some(short);
    for (server, limit, expected) in [
        (silent, head, Phase::Head),
        (silent, total, Phase::Total),
        (half, idle, Phase::Body),
        (half, total, Phase::Total),
        (drip, total, Phase::Total),
    ] {
        let server = Server::start(server).await;
        let answered = ask(once(server.url("/")).timeouts(hurried(limit))).await;
        let error = match answered {
            Ok(response) => response.bytes(1 << 20).await.expect_err("late"),
            Err(error) => error,
        };
        let HttpError::Timeout { phase, limit, .. } = &error else { panic!("{error:?}") };
        assert_eq!((*phase, limit.as_millis()), (expected, 200), "{error}");
        assert!(error.retryable());
    }
}

#[tokio::test]
async fn a_server_that_cuts_or_sends_garbage_is_a_broken_connection() {
    let cut = |text: &'static [u8]| move |_: usize| vec![Step::Send(text.to_vec())];
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf";
    let chunk = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n";
    for (server, what) in [
        (Server::start(cut(b"")).await, "nothing"),
        (Server::start(cut(b"HTTP/1.1 200")).await, "half a head"),
        (Server::start(cut(b"SSH-2.0-OpenSSH_9.9\r\n")).await, "another protocol"),
        (Server::start(cut(b"\0\xFF\xFE garbage \r\n\r\n")).await, "garbage"),
        (Server::start(cut(head)).await, "half a body"),
        (Server::start(cut(chunk)).await, "no chunk"),
    ] {
        let error = match ask(once(server.url("/"))).await {
            Ok(response) => response.bytes(100).await.expect_err(what),
            Err(error) => error,
        };
        assert!(matches!(error, HttpError::Broken { .. }), "{what}: {error:?}");
        assert!(error.to_string().contains(&server.url("")), "{error}");
    }
}

#[tokio::test]
async fn a_status_is_an_error_only_for_a_caller_who_wants_success() {
    let server = Server::saying("404 Not Found", br#"{"code":"not_found","message":"no such sandbox"}"#).await;
    assert_eq!(get(&server).await.status(), 404);
    let error = get(&server).await.success().await.expect_err("not found");
    assert_eq!(error.to_string(), format!("{} answered 404: no such sandbox", server.url("")));
    let HttpError::Status { code, .. } = &error else { panic!("{error:?}") };
    assert_eq!((code.as_deref(), error.status(), error.retryable()), (Some("not_found"), Some(404), false));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_from_one_that_breaks() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let error = ask(once(format!("http://127.0.0.1:{port}/"))).await.expect_err("nothing listens");
    assert!(matches!(error, HttpError::Connect { .. }), "{error:?}");
    assert!(error.to_string().to_lowercase().contains("refused"), "{error}");
}

#[tokio::test]
async fn an_invalid_request_is_refused_before_anything_is_sent() {
    for request in [
        once(""),
        once("no address"),
        once("ftp://me:hunter2@h/"),
        once("http://me:hunter2@h:port/"),
        once("http://127.0.0.1:9/").header("a b", "x"),
        once("http://127.0.0.1:9/").secret_header("x", "hunter2\r\ny: z"),
    ] {
        let shown = format!("{request:?}");
        let error = ask(request).await.expect_err("unusable");
        assert!(matches!(error, HttpError::Unusable { .. }), "{shown}: {error:?}");
        assert!(!format!("{error} {error:?} {shown}").contains("hunter2"), "{shown}: {error}");
    }
}

#[tokio::test]
async fn only_allowed_addresses_are_contacted_however_they_are_written() {
    let server = Server::saying("200 OK", b"").await;
    let client =
        Client::new(Proxies::none()).only(|ip| !ip.is_loopback()).resolve("rebound.example", [127, 0, 0, 1].into());
    let port = server.address.port();
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "127.0.0.1.",
        "[::ffff:127.0.0.1]",
        "localhost",
        "rebound.example",
    ] {
        let error = client.send(once(format!("http://{host}:{port}/"))).await.expect_err(host);
        assert!(matches!(error, HttpError::Refused { .. }), "{host}: {error:?}");
    }
    assert_eq!(server.heard().len(), 0);
    let known = Client::new(Proxies::none()).resolve("known.example", [127, 0, 0, 1].into());
    known.send(once(format!("http://known.example:{port}/"))).await.expect("an answer");
    assert_eq!(server.heard()[0].header("host"), Some(format!("known.example:{port}").as_str()));
}
