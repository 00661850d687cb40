//! Requests are repeated if that is harmless, after the pause that the server asks for.

use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use sandbar_http::{Client, HttpError, Proxies, Request, Retries, Timeouts};

use crate::server::{Notes, Server, Step, answer};

/// A server that sends these answers first, and then a success.
async fn server(first: &[&'static str]) -> Server {
    let first: Vec<&'static str> = first.to_vec();
    Server::start(move |number| match first.get(number) {
        Some(&"cut") => vec![],
        Some(head) => answer(head, b""),
        None => answer("200 OK", b"fine"),
    })
    .await
}

#[tokio::test]
async fn a_request_is_made_again_as_its_method_and_the_server_allow() {
    let get: fn(String) -> Request = |url| Request::get(url);
    let post: fn(String) -> Request = |url| Request::post(url).body("x");
    let safe: fn(String) -> Request = |url| Request::post(url).body("x").idempotent();
    let never: fn(String) -> Request = |url| Request::get(url).retries(Retries::none());
    let stream: fn(String) -> Request = |url| Request::put(url).stream(stream::iter([Ok(Bytes::from("x"))]));
    for (request, first, status, waits) in [
        (get, &["503 Down"][..], 200, &[500][..]),
        (get, &["503 Down", "500 No"], 200, &[500, 1000]),
        (get, &["503 Down", "500 No", "502 No", "500 No"], 502, &[500, 1000]),
        (get, &["429 Slow\nretry-after: 3"], 200, &[3000]),
        (get, &["429 Slow\nretry-after-ms: 30"], 200, &[30]),
        (get, &["429 Slow\nretry-after: 31"], 429, &[]),
        (get, &["404 No\nretry-after: 1"], 404, &[]),
        (get, &["307 There\nlocation: http://127.0.0.1:9/"], 307, &[]),
        (get, &["cut"], 200, &[500]),
        (post, &["429 Slow\nretry-after: 3"], 200, &[3000]),
        (post, &["429 Slow"], 200, &[500]),
        (post, &["503 Down\nretry-after: 2"], 200, &[2000]),
        (post, &["503 Down"], 503, &[]),
        (post, &["500 No"], 500, &[]),
        (safe, &["500 No", "cut"], 200, &[500, 1000]),
        (never, &["503 Down"], 503, &[]),
        (stream, &["503 Down"], 503, &[]),
    ] {
        let (server, notes) = (server(first).await, Notes::default());
        let client = Client::new(Proxies::none()).patience(notes.clone());
        let answered = client.send(request(server.url("/"))).await.expect("an answer");
        assert_eq!((u64::from(answered.status().as_u16()), notes.millis()), (status, waits.to_vec()), "{first:?}");
        assert_eq!(server.heard().len(), waits.len() + 1, "{first:?}");
        assert!(server.heard().iter().all(|heard| heard.body == server.heard()[0].body), "the same body each time");
    }
}

#[tokio::test]
async fn a_request_that_may_have_had_an_effect_is_not_repeated() {
    let (server, notes) = (server(&["cut"]).await, Notes::default());
    let client = Client::new(Proxies::none()).patience(notes.clone());
    let error = client.send(Request::post(server.url("/")).body("x")).await.expect_err("cut");
    assert!(matches!(error, HttpError::Broken { .. }), "{error:?}");
    assert_eq!((server.heard().len(), notes.millis().len()), (1, 0));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_tried_again() {
    let notes = Notes::default();
    let client = Client::new(Proxies::none()).patience(notes.clone());
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let error = client.send(Request::post(format!("http://127.0.0.1:{port}/")).body("x")).await.expect_err("refused");
    assert!(matches!(error, HttpError::Connect { .. }), "{error:?}");
    assert_eq!(notes.millis(), [500, 1000]);
}

#[tokio::test]
async fn no_pause_goes_beyond_the_time_for_everything() {
    let (server, notes) = (server(&["429 Slow\nretry-after: 20"]).await, Notes::default());
    let client = Client::new(Proxies::none()).patience(notes.clone());
    let request = Request::get(server.url("/"))
        .timeouts(Timeouts { total: Some(Duration::from_secs(19)), ..Timeouts::default() });
    assert_eq!(client.send(request).await.expect("an answer").status(), 429);
    assert_eq!(notes.millis(), []);
}

#[tokio::test]
async fn a_server_that_hangs_is_not_retried() {
    let server = Server::start(|_| vec![Step::Hang]).await;
    let short = Duration::from_millis(200);
    let request = Request::get(server.url("/")).timeouts(Timeouts { head: short, ..Timeouts::default() });
    let error = Client::new(Proxies::none()).send(request).await.expect_err("late");
    assert!(matches!(error, HttpError::Timeout { .. }), "{error:?}");
    assert_eq!(server.heard().len(), 1);
}

#[tokio::test]
async fn the_longest_times_there_are_overflow_nothing() {
    let server = server(&[]).await;
    let timeouts = Timeouts { head: Duration::MAX, idle: Duration::MAX, total: Some(Duration::MAX) };
    let retries =
        Retries { attempts: u32::MAX, pause: Duration::MAX, longest: Duration::MAX, longest_asked: Duration::MAX };
    let request = Request::get(server.url("/")).timeouts(timeouts).retries(retries);
    let answered = Client::new(Proxies::none()).connect_timeout(Duration::MAX).send(request).await.expect("an answer");
    assert_eq!(answered.bytes(u64::MAX).await.expect("a body"), "fine");
}
