//! Which requests reach a proxy, and what the proxy sees of them.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use sandbar_http::{Client, HttpError, Proxies, Request, Retries};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::server::{Heard, Server, hear, once};

/// A proxy that connects to one server, whatever the request asks for, and records what it sees.
#[derive(Clone)]
pub(crate) struct TestProxy {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<ProxiedRequest>>>,
}

/// One connection, as the proxy sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProxiedRequest {
    pub(crate) heard: Heard,
    /// The first bytes in the tunnel.
    pub(crate) tunnelled: Vec<u8>,
}

impl TestProxy {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let proxy = Self { address: listener.local_addr().expect("an address"), seen: Arc::default() };
        let serving = proxy.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = serving.clone();
                tokio::spawn(async move { serving.serve(stream, server).await });
            }
        });
        proxy
    }

    pub(crate) fn seen(&self) -> Vec<ProxiedRequest> {
        self.seen.lock().expect("connections").clone()
    }

    fn proxies(&self) -> Proxies {
        Proxies::new().all(format!("http://me:pass-123456@{}", self.address).parse().expect("a proxy"))
    }

    async fn serve(&self, mut client: TcpStream, server: SocketAddr) -> Option<()> {
        let heard = hear(&mut client).await?;
        let is_tunnel = heard.line().starts_with("CONNECT ");
        let at = {
            let mut seen = self.seen.lock().expect("connections");
            seen.push(ProxiedRequest { heard, ..ProxiedRequest::default() });
            seen.len() - 1
        };
        if !is_tunnel {
            client.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nproxied").await.ok()?;
            return client.shutdown().await.ok();
        }
        client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await.ok()?;
        let mut first = [0; 4096];
        let read = client.read(&mut first).await.ok()?;
        self.seen.lock().expect("connections")[at].tunnelled = first[..read].to_vec();
        let mut upstream = TcpStream::connect(server).await.ok()?;
        upstream.write_all(&first[..read]).await.ok()?;
        tokio::io::copy_bidirectional(&mut client, &mut upstream).await.ok().map(drop)
    }
}

#[tokio::test]
async fn https_goes_through_a_tunnel_that_shows_a_greeting_and_no_key() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let proxy = TestProxy::to(listener.local_addr().expect("an address")).await;
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("the proxy");
        stream.write_all(b"HTTP/1.1 400 No TLS here\r\n\r\n").await.expect("an answer");
    });
    let request = once("https://models.example/v1?q=hidden-12345").bearer("sk-123456");
    let error = Client::new(proxy.proxies()).send(request).await.expect_err("the server speaks no TLS");
    let seen = &proxy.seen()[0];
    assert_eq!(seen.heard.line(), "CONNECT models.example:443 HTTP/1.1");
    assert_eq!(seen.heard.header("proxy-authorization"), Some("Basic bWU6cGFzcy0xMjM0NTY="));
    assert_eq!(seen.tunnelled.get(..2), Some(&[22, 3][..]), "a handshake of TLS");
    let shown = format!("{seen:?}");
    assert!(!shown.contains("sk-123456") && !shown.contains("hidden"), "{shown}");
    let words = format!("https://models.example through the proxy http://{}", proxy.address);
    assert!(error.to_string().contains(&words) && !format!("{error:?}").contains("pass-123456"), "{error:?}");
}

#[tokio::test]
async fn a_plain_request_without_a_key_names_its_whole_address_to_the_proxy() {
    let server = Server::saying("200 OK", b"direct").await;
    let proxy = TestProxy::to(server.address).await;
    let answered = Client::new(proxy.proxies()).send(once("http://files.example:81/a?b=c")).await.expect("an answer");
    assert_eq!(answered.server_address(), None, "only the proxy knows it");
    assert_eq!(answered.bytes(100).await.expect("a body"), "proxied");
    let seen = &proxy.seen()[0].heard;
    assert_eq!(seen.line(), "GET http://files.example:81/a?b=c HTTP/1.1");
    assert_eq!(seen.header("proxy-authorization"), Some("Basic bWU6cGFzcy0xMjM0NTY="));
}

#[tokio::test]
async fn a_plain_request_with_a_key_an_exception_and_this_host_are_reached_directly() {
    let server = Server::saying("200 OK", b"direct").await;
    let proxy = TestProxy::to(server.address).await;
    let port = server.address.port();
    let client = Client::new(proxy.proxies().except("except.example")).resolve("models.example", [127, 0, 0, 1].into());
    let client = client.resolve("except.example", [127, 0, 0, 1].into());
    let target = |host: &str| once(format!("http://{host}:{port}/v1"));
    for request in [
        target("models.example").bearer("sk-123456"),
        target("models.example").header("Authorization", "Token x"),
        target("models.example").secret_query("key", "x"),
        target("me:pass@models.example"),
        target("except.example"),
        target("127.0.0.1"),
        target("localhost"),
    ] {
        let shown = format!("{request:?}");
        let answered = client.send(request).await.expect(&shown);
        assert_eq!(answered.bytes(100).await.expect("a body"), "direct", "{shown}");
    }
    assert_eq!((proxy.seen().len(), server.heard().len()), (0, 7));
    assert!(server.heard().iter().all(|heard| heard.header("proxy-authorization").is_none()));
    client.send(target("models.example")).await.expect("an answer");
    assert_eq!(proxy.seen().len(), 1, "without a key it goes through the proxy");
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_without_its_password() {
    let proxy = Server::saying("407 Proxy Authentication Required", b"you sent pass-123456").await;
    let address = format!("http://me:pass-123456@{}", proxy.address);
    let proxies = Proxies::new().all(address.parse().expect("a proxy"));
    let client = Client::new(proxies);
    let tunnel = client.send(once("https://models.example/").bearer("sk-123456")).await.expect_err("no tunnel");
    assert!(matches!(tunnel, HttpError::Connect { .. } | HttpError::Broken { .. }), "{tunnel:?}");
    let plain = client.send(once("http://files.example/")).await.expect("an answer");
    let plain = plain.success().await.expect_err("not let in");
    assert_eq!(plain.status(), Some(407));
    for error in [tunnel, plain] {
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("through the proxy http://127.0.0.1") && !shown.contains("pass-123456"), "{shown}");
    }
}

#[tokio::test]
async fn a_proxy_that_hangs_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let proxies = Proxies::new().all(format!("http://{address}").parse().expect("a proxy"));
    let client = Client::new(proxies).connect_timeout(Duration::from_millis(200));
    let error = client.send(once("https://models.example/")).await.expect_err("late");
    assert!(matches!(error, HttpError::Timeout { .. }), "{error:?}");
}

#[tokio::test]
async fn a_socks_proxy_is_greeted_as_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let mut greeting = [0; 2];
        stream.read_exact(&mut greeting).await.expect("a greeting");
        let mut methods = vec![0; greeting[1].into()];
        stream.read_exact(&mut methods).await.expect("methods");
        stream.write_all(&[5, 0]).await.expect("no password");
        let mut request = vec![0; 4 + 1 + "models.example".len() + 2];
        stream.read_exact(&mut request).await.expect("a request");
        (greeting[0], request)
    });
    let proxies = Proxies::new().all(format!("socks5h://{address}").parse().expect("a proxy"));
    let request = Request::get("https://models.example/").retries(Retries::none());
    Client::new(proxies).send(request).await.expect_err("the proxy leaves");
    let (version, request) = asked.await.expect("a proxy");
    assert_eq!((version, &request[..5], &request[5..19]), (5, &[5, 1, 0, 3, 14][..], &b"models.example"[..]));
}
