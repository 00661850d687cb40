//! Files over HTTP.

use std::{
    io::Read,
    sync::{Arc, OnceLock},
    time::Duration,
};

use sandbar_machine::{Sha256, collect};
use sandbar_sandbox::{
    Result, SandboxError, Secret,
    fetch::{Download, HttpRequest, Proxies, download},
};
use sha2::Digest;
use tokio::time::timeout;

use crate::server::{Server, Step, answer, head, redirect};

/// What anything should take at most, on a busy host.
const SOON: Duration = Duration::from_secs(60);

/// A request that does not pause between attempts.
fn request(url: String) -> HttpRequest {
    let mut request = HttpRequest::new(url);
    request.retries.pause = Duration::from_millis(1);
    request
}

async fn fetch(request: &HttpRequest) -> Result<Download> {
    timeout(SOON, download(request)).await.expect("an end, good or bad")
}

async fn fails(request: &HttpRequest) -> SandboxError {
    fetch(request).await.expect_err("a failure")
}

fn content(mut download: Download) -> Vec<u8> {
    let mut bytes = Vec::new();
    download.file.read_to_end(&mut bytes).expect("the file is readable");
    bytes
}

fn digest(bytes: &[u8]) -> Sha256 {
    Sha256(sha2::Sha256::digest(bytes).into())
}

fn reason(error: &SandboxError) -> String {
    error.context()["reason"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_file_arrives_with_its_size_digest_and_type() {
    let body: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let served = body.clone();
    let server = Server::new(move |_, _| answer("200 OK", &[("content-type", "text/x")], &served)).await;
    let wanted = request(server.url("/a")).sha256(digest(&body)).max_bytes(body.len() as u64);
    let download = fetch(&wanted).await.unwrap();
    assert_eq!((download.bytes, download.sha256), (3_000_000, digest(&body)));
    assert_eq!(download.content_type.as_deref(), Some("text/x"));
    assert_eq!(collect(download.into_stream(), 4_000_000).await.unwrap(), body);
    let asked = &server.asked()[0];
    assert_eq!((asked.method.as_str(), asked.header("accept-encoding")), ("GET", Some("identity")));
    assert_eq!(asked.header("cookie"), None);
}

#[tokio::test]
async fn chunks_and_bodies_without_a_length_arrive_whole() {
    let server = Server::new(|question, _| match question.path.as_str() {
        "/chunked" => {
            let body = b"3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n".to_vec();
            vec![Step::Send(head("200 OK", &[("transfer-encoding", "chunked")])), Step::Send(body)]
        }
        "/open" => vec![Step::Send(head("200 OK", &[])), Step::Send(b"abcdefg".to_vec())],
        _ => answer("200 OK", &[], b""),
    })
    .await;
    for (path, expected) in [("/chunked", "abcdefg"), ("/open", "abcdefg"), ("/empty", "")] {
        let download = fetch(&request(server.url(path))).await.unwrap();
        assert_eq!(content(download), expected.as_bytes(), "{path}");
    }
}

#[tokio::test]
async fn what_is_not_what_was_announced_is_refused() {
    let server = Server::new(|_, _| answer("200 OK", &[], b"evil")).await;
    let error = fails(&request(server.url("/a")).sha256(digest(b"good"))).await;
    assert_eq!((error.code(), error.retryable()), ("local_checksum_error", Some(false)));
    assert_eq!(error.context()["expected"], digest(b"good").to_string());
    assert_eq!(error.context()["actual"], digest(b"evil").to_string());
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn a_body_that_ends_too_early_is_asked_for_again_and_then_refused() {
    let server = Server::new(|question, _| match question.path.as_str() {
        "/length" => vec![Step::Send([head("200 OK", &[("content-length", "100")]), b"abc".to_vec()].concat())],
        "/chunks" => {
            vec![Step::Send([head("200 OK", &[("transfer-encoding", "chunked")]), b"9\r\nabc".to_vec()].concat())]
        }
        _ => vec![Step::Send(head("200 OK", &[("content-length", "9")])), Step::Reset],
    })
    .await;
    for path in ["/length", "/chunks", "/reset"] {
        let error = fails(&request(server.url(path))).await;
        assert_eq!((error.code(), error.retryable()), ("remote_fetch_error", Some(true)), "{path}");
        assert_eq!(reason(&error), "it ends too early", "{path}");
        assert_eq!(server.asked().iter().filter(|question| question.path == path).count(), 3, "{path}");
    }
}

#[tokio::test]
async fn passing_trouble_is_tried_three_times() {
    for path in ["/busy", "/reset", "/close", "/asked", "/second"] {
        let server = Server::new(move |question, before| match (question.path.as_str(), before) {
            (_, 2) | ("/second", 1) => answer("200 OK", &[], b"at last"),
            ("/reset", _) => vec![Step::Reset],
            ("/close", _) => vec![],
            ("/asked", _) => answer("429 Too Many Requests", &[("retry-after", "0")], b""),
            _ => answer("503 Service Unavailable", &[], b""),
        })
        .await;
        let download = fetch(&request(server.url(path))).await.unwrap();
        assert_eq!(content(download), b"at last", "{path}");
        assert_eq!(server.asked().len(), if path == "/second" { 2 } else { 3 }, "{path}");
    }
}

#[tokio::test]
async fn a_status_says_whether_another_try_makes_sense() {
    let table = [
        ("404 Not Found", 1, Some(false)),
        ("403 Forbidden", 1, Some(false)),
        ("204 No Content", 1, Some(false)),
        ("206 Partial Content", 1, Some(false)),
        ("304 Not Modified", 1, Some(false)),
        ("500 Oops", 3, Some(true)),
        ("408 Slow", 3, Some(true)),
        ("425 Early", 3, Some(true)),
    ];
    for (status, attempts, retryable) in table {
        let server = Server::new(move |_, _| answer(status, &[], b"")).await;
        let error = fails(&request(server.url("/a"))).await;
        assert_eq!((error.code(), error.retryable()), ("remote_fetch_error", retryable), "{status}");
        assert_eq!(error.context()["status"].to_string(), status[..3], "{status}");
        assert_eq!(server.asked().len(), attempts, "{status}");
    }
}

#[tokio::test]
async fn a_server_that_asks_for_a_long_pause_is_not_waited_for() {
    let server = Server::new(|_, _| answer("503 Busy", &[("retry-after", "3600")], b"")).await;
    let error = fails(&request(server.url("/a"))).await;
    assert_eq!((error.context()["status"].clone(), error.retryable()), (503.into(), Some(true)));
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn a_file_larger_than_allowed_is_refused_as_early_as_possible() {
    let server = Server::new(|question, _| match question.path.as_str() {
        // Nothing follows: the announcement alone must do.
        "/announced" => vec![Step::Send(head("200 OK", &[("content-length", "1000000000000")])), Step::Stall],
        "/chunks" => {
            let chunk = [b"1000\r\n".as_slice(), &[b'x'; 0x1000], b"\r\n"].concat();
            vec![Step::Send(head("200 OK", &[("transfer-encoding", "chunked")])), Step::Flood(chunk)]
        }
        _ => vec![Step::Send(head("200 OK", &[])), Step::Flood(vec![b'x'; 4096])],
    })
    .await;
    for path in ["/announced", "/chunks", "/endless"] {
        let error = fails(&request(server.url(path)).max_bytes(1 << 20)).await;
        assert_eq!((error.code(), error.retryable()), ("limit_exceeded", Some(false)), "{path}");
        assert_eq!(error.context()["limit"], 1 << 20);
    }
    assert_eq!(server.asked().len(), 3);
}

#[tokio::test]
async fn a_server_that_falls_silent_is_given_up() {
    let server = Server::new(|question, _| match question.path.as_str() {
        "/mute" => vec![Step::Stall],
        _ => vec![Step::Send([head("200 OK", &[("content-length", "9")]), b"abc".to_vec()].concat()), Step::Stall],
    })
    .await;
    for (path, said) in [("/mute", "the server does not answer"), ("/half", "the server stopped sending")] {
        let mut told = Vec::new();
        // A host that is held up makes any server seem silent from the beginning.
        for connect in [500, 5000, 30_000] {
            let mut impatient = request(server.url(path));
            impatient.timeouts.idle = Duration::from_millis(100);
            impatient.timeouts.connect = Duration::from_millis(connect);
            let error = fails(&impatient).await;
            assert_eq!((error.code(), error.retryable()), ("remote_fetch_error", Some(true)));
            told.push(reason(&error));
            if told.last().is_some_and(|reason| reason == said) {
                break;
            }
        }
        assert!(told.last().is_some_and(|reason| reason == said), "{path}: {told:?}");
        let asked = server.asked().iter().filter(|question| question.path == path).count();
        assert!(asked <= told.len(), "{path} was asked for {asked} times: {told:?}");
    }
}

#[tokio::test]
async fn a_server_that_drips_for_ever_is_given_up() {
    let drip = Step::Drip(Duration::from_millis(10));
    let server = Server::new(move |_, _| vec![Step::Send(head("200 OK", &[])), drip.clone()]).await;
    let mut impatient = request(server.url("/a"));
    impatient.timeouts.total = Duration::from_millis(500);
    let error = fails(&impatient).await;
    assert_eq!((reason(&error).as_str(), error.retryable()), ("it took longer than 0.5 s", Some(true)));
}

#[tokio::test]
async fn redirects_are_followed_and_loops_are_not() {
    let server = Server::new(|question, _| {
        let steps = question.path.strip_prefix("/steps/").and_then(|left| left.parse::<u32>().ok());
        match (question.path.as_str(), steps) {
            (_, Some(0)) => answer("200 OK", &[], b"here"),
            (_, Some(left)) => redirect(&format!("../steps/{}", left - 1)),
            ("/self", _) => redirect("/self#again"),
            ("/ping", _) => redirect("/pong"),
            ("/pong", _) => redirect("/ping"),
            ("/nowhere", _) => answer("302 Found", &[], b""),
            ("/file", _) => redirect("file:///etc/passwd"),
            _ => redirect("http://[broken"),
        }
    })
    .await;
    let download = fetch(&request(server.url("/steps/10"))).await.unwrap();
    assert_eq!(content(download), b"here");
    let table = [
        ("/steps/11", "there are more than 10 redirects"),
        ("/self", "its redirects form a loop"),
        ("/ping", "its redirects form a loop"),
        ("/nowhere", "it redirects without a `Location`"),
        ("/file", "it redirects to something other than http and https"),
        ("/broken", "it redirects to an invalid address"),
    ];
    for (path, said) in table {
        let error = fails(&request(server.url(path))).await;
        assert_eq!((reason(&error).as_str(), error.retryable()), (said, Some(false)), "{path}");
    }
}

#[tokio::test]
async fn secrets_are_for_their_own_origin_only() {
    let stranger = Server::new(|_, _| answer("200 OK", &[], b"x")).await;
    let away = stranger.url("/loot").replace("http://", "http://me:pass@");
    let home = Server::new(move |question, _| match question.path.as_str() {
        "/same" => redirect("/end"),
        "/away" => redirect(&away),
        _ => answer("200 OK", &[], b"x"),
    })
    .await;
    let url = home.url("/same").replace("http://", "http://user:hunter2@");
    fetch(&request(url).header("X-Token", Secret::new("hunter3"))).await.unwrap();
    for question in home.asked() {
        assert_eq!(question.header("x-token"), Some("hunter3"), "{}", question.path);
        assert_eq!(question.header("authorization"), Some("Basic dXNlcjpodW50ZXIy"), "{}", question.path);
    }
    assert_eq!(home.asked().len(), 2);
    let url = home.url("/away").replace("http://", "http://user:hunter2@");
    fetch(&request(url).header("X-Token", Secret::new("hunter3"))).await.unwrap();
    let loot = &stranger.asked()[0];
    assert_eq!((loot.header("x-token"), loot.header("authorization"), loot.header("referer")), (None, None, None));
}

#[tokio::test]
async fn secrets_do_not_come_back_with_a_stranger() {
    let back: Arc<OnceLock<String>> = Arc::default();
    let told = back.clone();
    let stranger = Server::new(move |_, _| redirect(told.get().unwrap())).await;
    let away = stranger.url("/");
    let home = Server::new(move |question, _| match question.path.as_str() {
        "/start" => redirect(&away),
        _ => answer("200 OK", &[], b"x"),
    })
    .await;
    back.set(home.url("/chosen-by-a-stranger")).unwrap();
    fetch(&request(home.url("/start")).header("X-Token", Secret::new("hunter3"))).await.unwrap();
    let tokens: Vec<_> = home.asked().iter().map(|question| question.header("x-token").map(str::to_owned)).collect();
    assert_eq!(tokens, [Some("hunter3".to_owned()), None]);
}

#[tokio::test]
async fn no_message_holds_a_secret() {
    let server = Server::new(|question, _| match question.path.split('?').next() {
        Some("/status") => answer("404 hunter2", &[], b"hunter2"),
        Some("/nonsense") => vec![Step::Send(b"hunter2 hunter2\r\n\r\n".to_vec())],
        Some("/loop") => redirect("/loop?key=hunter2"),
        _ => vec![],
    })
    .await;
    for path in ["/status", "/nonsense", "/loop", "/closed"] {
        let url = server.url(&format!("{path}?key=hunter2")).replace("http://", "http://me:hunter2@");
        let request = request(url).header("Authorization", Secret::new("hunter2"));
        let error = fails(&request).await;
        let shown = format!("{} {error:?} {:?} {request:?}", error.full_message(), error.context());
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(error.to_string().contains(&format!("{path}?key=…")), "{error}");
    }
}

#[tokio::test]
async fn an_absent_server_is_reported_at_once() {
    let server = Server::new(|_, _| vec![]).await;
    let url = server.url("/a");
    drop(server);
    let error = fails(&request(url.clone())).await;
    assert_eq!((error.code(), error.retryable()), ("remote_fetch_error", Some(true)));
    assert!(error.full_message().contains("refused"), "{}", error.full_message());
}

#[tokio::test]
async fn a_server_without_a_certificate_is_no_https_server() {
    let server = Server::new(|_, _| answer("200 OK", &[], b"x")).await;
    let error = fails(&request(server.url("/a").replace("http:", "https:"))).await;
    assert_eq!((error.code(), reason(&error).as_str()), ("remote_fetch_error", "the request failed"));
    assert!(server.asked().iter().all(|question| !question.method.contains("GET")));
}

#[tokio::test]
async fn who_asks_for_public_addresses_only_never_reaches_this_host() {
    let server = Server::new(|question, _| match question.path.as_str() {
        "/away" => redirect("/end"),
        _ => answer("200 OK", &[], b"x"),
    })
    .await;
    let port = server.address.port();
    for url in [server.url("/end"), format!("http://localhost:{port}/end"), format!("http://[::ffff:7f00:1]:{port}/")] {
        let error = fails(&HttpRequest { public_only: true, ..request(url) }).await;
        assert!(error.to_string().contains("private network"), "{error}");
        assert_eq!((error.code(), error.retryable()), ("remote_fetch_error", Some(false)));
    }
    assert!(server.asked().is_empty());
    // A server of this host may send to this host, and names are found in the usual way.
    for url in [server.url("/away"), format!("http://localhost:{port}/away")] {
        assert_eq!(content(fetch(&request(url)).await.unwrap()), b"x");
    }
}

#[tokio::test]
async fn a_download_goes_through_a_proxy_that_trusted_code_gave_and_numbers_are_still_checked() {
    let proxy = Server::new(|question, _| match question.path.as_str() {
        "http://files.example/away" => redirect("http://10.0.0.2/end"),
        _ => answer("200 OK", &[], b"proxied"),
    })
    .await;
    let proxies = Proxies::new().all(proxy.url("").parse().expect("a proxy"));
    let through = |url: &str| HttpRequest { public_only: true, ..request(url.to_owned()).proxies(proxies.clone()) };
    assert_eq!(content(fetch(&through("http://files.example/a")).await.unwrap()), b"proxied");
    for url in ["http://10.0.0.1/a", "http://127.0.0.1/a", "http://[::ffff:10.0.0.1]/a"] {
        let error = fails(&through(url)).await;
        assert!(error.to_string().contains("private network"), "{error}");
    }
    // Where a proxy in between hides the server, the server counts as a public one: it leads to public addresses only.
    let error = fails(&HttpRequest { public_only: false, ..through("http://files.example/away") }).await;
    assert!(error.to_string().contains("private network"), "{error}");
    let asked: Vec<String> = proxy.asked().into_iter().map(|question| question.path).collect();
    assert_eq!(asked, ["http://files.example/a", "http://files.example/away"]);
}
