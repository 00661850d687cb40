//! Keys, passwords and queries are sent to the server, but do not appear in any message.

use sandbar_http::{Client, HttpError, Proxies, Request, Retries};
use serde_json::json;

use crate::server::{Server, Step, answer};

const SECRETS: [&str; 6] =
    ["key-123456", "bearer-123456", "pass-123456", "signed-123456", "hidden-123456", "bWU6cGFzcy0xMjM0NTY="];

fn request(url: &str) -> Request {
    let url = url.replace("http://", "http://me:pass-123456@");
    Request::get(format!("{url}?signature=signed-123456"))
        .secret_header("x-api-key", "key-123456")
        .secret_header("x-token", "Bearer bearer-123456")
        .secret_query("token", "hidden-123456")
        .retries(Retries::none())
}

fn assert_clean(error: &HttpError) {
    let shown = format!("{error} {error:?}");
    assert!(!SECRETS.iter().any(|secret| shown.contains(secret)), "{shown}");
}

#[tokio::test]
async fn secrets_that_a_server_repeats_are_hidden() {
    let echo = SECRETS.join(" and ");
    let text = format!("you sent {echo}");
    let object = json!({ "error": { "message": text, "code": text } }).to_string();
    for (status, body) in
        [("401 No", object), ("500 No", text.clone()), ("403 No", json!({"message": text}).to_string())]
    {
        let server = Server::saying(status, body.as_bytes()).await;
        let answered = Client::new(Proxies::none()).send(request(&server.url("/"))).await.expect("an answer");
        assert!(!format!("{answered:?}").contains("123456"));
        let error = answered.success().await.expect_err(status);
        assert!(error.to_string().contains("you sent [secret]"), "{error}");
        assert_clean(&error);
        let heard = &server.heard()[0];
        assert_eq!(heard.header("x-api-key"), Some("key-123456"));
        assert_eq!(heard.header("authorization"), Some("Basic bWU6cGFzcy0xMjM0NTY="));
        assert_eq!(heard.line(), "GET /?signature=signed-123456&token=hidden-123456 HTTP/1.1");
    }
}

#[tokio::test]
async fn a_parser_that_repeats_the_body_is_cleaned_too() {
    let server = Server::saying("200 OK", br#"{"count":"key-123456"}"#).await;
    let answered = Client::new(Proxies::none()).send(request(&server.url("/"))).await.expect("an answer");
    let read = answered.json::<std::collections::HashMap<String, u32>>(1000).await;
    let error = read.expect_err("a text is no number");
    assert!(matches!(error, HttpError::Malformed { .. }) && error.to_string().contains("[secret]"), "{error}");
    assert_clean(&error);
}

#[tokio::test]
async fn a_long_echo_is_cut_and_hides_what_it_cuts() {
    let key = format!("key-{}", "x".repeat(1000));
    let (body, sent) = (key.repeat(100), key.clone());
    let server = Server::saying("400 No", body.as_bytes()).await;
    let request = Request::get(server.url("/")).secret_header("x-api-key", &sent);
    let answered = Client::new(Proxies::none()).send(request).await.expect("an answer");
    let error = answered.success().await.expect_err("refused").to_string();
    assert!(!error.contains("key-x"), "{error}");
}

#[tokio::test]
async fn no_error_shows_a_secret() {
    for steps in [vec![], vec![Step::Send(b"garbage key-123456\r\n\r\n".to_vec())], {
        answer("200 OK\ncontent-encoding: key-123456", b"x")
    }] {
        let server = Server::start(move |_| steps.clone()).await;
        let answered = Client::new(Proxies::none()).send(request(&server.url("/"))).await;
        let error = match answered {
            Ok(answered) => answered.bytes(100).await.expect_err("unreadable"),
            Err(error) => error,
        };
        assert_clean(&error);
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let refused = request(&format!("http://127.0.0.1:{port}/"));
    let refused = Client::new(Proxies::none()).send(refused).await.expect_err("refused");
    assert_clean(&refused);
}

#[tokio::test]
async fn no_redirect_takes_a_key_along() {
    let other = Server::saying("200 OK", b"").await;
    let there = format!("302 There\nlocation: {}", other.url("/"));
    let server = Server::saying(&there, b"").await;
    let answered = Client::new(Proxies::none()).send(request(&server.url("/"))).await.expect("an answer");
    assert_eq!((answered.status().as_u16(), other.heard().len()), (302, 0));
}
