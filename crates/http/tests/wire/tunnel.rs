//! A whole HTTPS exchange through a proxy from the environment, in a separate process.

use std::{fs, process::Command, sync::Arc};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use sandbar_http::{Client, HttpError, Proxies, Request, Retries};
use tokio::{io::AsyncWriteExt, net::TcpListener, sync::mpsc};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer},
};

use crate::{
    proxying::TestProxy,
    server::{Heard, hear},
};

const NAME: &str = "tunnel::an_environment_leads_https_through_its_proxy_and_only_to_a_trusted_server";
const CHILD: &str = "SANDBAR_HTTP_TEST_CHILD";
const KEY: &str = "sk-123456-tunnelled";

/// The child process, whose environment is under test.
async fn child(expected: &str) {
    let client = Client::new(Proxies::from_env().expect("proxies"));
    let request = Request::get("https://models.example/v1").bearer(KEY).retries(Retries::none());
    match client.send(request).await {
        Ok(answered) => assert_eq!(answered.bytes(100).await.expect("a body"), expected),
        Err(error) => {
            assert!(matches!(error, HttpError::Connect { .. }), "{error:?}");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}

/// A server with a certificate for `models.example` that records the requests.
async fn tls_server(identity: &CertifiedKey<rcgen::KeyPair>) -> (std::net::SocketAddr, mpsc::UnboundedReceiver<Heard>) {
    let key = PrivateKeyDer::try_from(identity.signing_key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![identity.cert.der().clone()], key)
        .expect("a certificate");
    let (acceptor, listener) =
        (TlsAcceptor::from(Arc::new(config)), TcpListener::bind("127.0.0.1:0").await.expect("a port"));
    let address = listener.local_addr().expect("an address");
    let (heard, hearing) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let Some(request) = hear(&mut stream).await else { continue };
            let _test_over = heard.send(request);
            let _peer_gone = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret").await;
            let _peer_gone = stream.shutdown().await;
        }
    });
    (address, hearing)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_leads_https_through_its_proxy_and_only_to_a_trusted_server() {
    if let Ok(expected) = std::env::var(CHILD) {
        return child(&expected).await;
    }
    let identity = generate_simple_self_signed(["models.example".to_owned()]).expect("a certificate");
    let (address, mut heard) = tls_server(&identity).await;
    let proxy = TestProxy::to(address).await;
    let temp = tempfile::tempdir().expect("a directory");
    let stranger = generate_simple_self_signed(["other.example".to_owned()]).expect("a certificate");
    for (trusted, expected) in [(&identity, "secret"), (&stranger, "invalid peer certificate")] {
        let trusted_file = temp.path().join("trusted.pem");
        fs::write(&trusted_file, trusted.cert.pem()).expect("write");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        for variable in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
            command.env_remove(variable).env_remove(variable.to_uppercase());
        }
        command.args(["--exact", NAME]).env(CHILD, expected).env_remove("SSL_CERT_DIR");
        command.env("SSL_CERT_FILE", &trusted_file).env("HTTPS_PROXY", format!("http://me:p@{}", proxy.address));
        let child = tokio::task::spawn_blocking(move || command.output()).await.expect("a thread").expect("it starts");
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
        assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"));
    }
    let request = heard.try_recv().expect("one request");
    assert_eq!(request.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert!(request.header("proxy-authorization").is_none(), "that is for the proxy");
    assert!(heard.try_recv().is_err(), "nothing for a server without a trusted certificate");
    let seen = proxy.seen();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|seen| seen.heard.line() == "CONNECT models.example:443 HTTP/1.1"));
    assert!(seen.iter().all(|seen| seen.heard.header("proxy-authorization") == Some("Basic bWU6cA==")));
    assert!(!format!("{seen:?}").contains(KEY));
}
