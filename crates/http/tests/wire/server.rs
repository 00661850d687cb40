//! A server with scripted answers that records the requests.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use sandbar_http::{Patience, Request, Retries, Timeouts};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

/// One part of an answer.
#[derive(Clone)]
pub(crate) enum Step {
    Send(Vec<u8>),
    Wait(Duration),
    /// Sends nothing more, and keeps the connection open.
    Hang,
}

/// A server on a port of this host. Each connection carries one request.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    heard: Arc<Mutex<Vec<Heard>>>,
}

/// A request as it arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    /// The lines of its head; header names are in lower case.
    pub(crate) head: Vec<String>,
    pub(crate) body: Vec<u8>,
}

impl Heard {
    pub(crate) fn line(&self) -> &str {
        &self.head[0]
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.iter().find_map(|line| line.strip_prefix(&format!("{name}: ")))
    }
}

impl Server {
    /// Answers each request by its number, starting at 0.
    pub(crate) async fn start(answer: impl Fn(usize) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let heard = Arc::<Mutex<Vec<Heard>>>::default();
        let (log, answer) = (Arc::clone(&heard), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&log), Arc::clone(&answer)));
            }
        });
        Self { address, heard }
    }

    /// Always sends the same answer.
    pub(crate) async fn saying(head: &str, body: &[u8]) -> Self {
        let answer = answer(head, body);
        Self::start(move |_| answer.clone()).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.heard.lock().expect("requests").clone()
    }
}

async fn serve(
    stream: TcpStream,
    log: Arc<Mutex<Vec<Heard>>>,
    answer: Arc<impl Fn(usize) -> Vec<Step> + Send + Sync + 'static>,
) {
    let mut stream = BufReader::new(stream);
    let Some(heard) = hear(&mut stream).await else { return };
    let number = {
        let mut log = log.lock().expect("requests");
        log.push(heard);
        log.len() - 1
    };
    for step in answer(number) {
        match step {
            Step::Send(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Step::Wait(time) => tokio::time::sleep(time).await,
            Step::Hang => std::future::pending().await,
        }
    }
    let _peer_gone = stream.shutdown().await;
}

/// Reads one request.
pub(crate) async fn hear(stream: &mut (impl AsyncRead + Unpin)) -> Option<Heard> {
    let mut heard = Heard::default();
    loop {
        let line = line(stream).await?;
        if line.is_empty() {
            break;
        }
        heard.head.push(match line.split_once(": ") {
            Some((name, value)) => format!("{}: {value}", name.to_lowercase()),
            None => line,
        });
    }
    if let Some(length) = heard.header("content-length").and_then(|text| text.parse().ok()) {
        heard.body = vec![0; length];
        stream.read_exact(&mut heard.body).await.ok()?;
    } else if heard.header("transfer-encoding") == Some("chunked") {
        loop {
            let size = usize::from_str_radix(&line(stream).await?, 16).ok()?;
            let mut piece = vec![0; size];
            stream.read_exact(&mut piece).await.ok()?;
            heard.body.extend(piece);
            line(stream).await?;
            if size == 0 {
                break;
            }
        }
    }
    Some(heard)
}

async fn line(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8_lossy(&line[..line.len() - 2]).into_owned())
}

/// An answer with its length: `head` is the status and further headers, separated by line breaks.
pub(crate) fn answer(head: &str, body: &[u8]) -> Vec<Step> {
    let head = format!("HTTP/1.1 {}\r\ncontent-length: {}\r\n\r\n", head.replace('\n', "\r\n"), body.len());
    vec![Step::Send(head.into_bytes()), Step::Send(body.to_vec())]
}

/// A request without retries.
pub(crate) fn once(url: impl AsRef<str>) -> Request {
    Request::get(url).retries(Retries::none())
}

/// Long timeouts, except one.
pub(crate) fn hurried(phase: fn(&mut Timeouts, Duration)) -> Timeouts {
    let long = Duration::from_secs(60);
    let mut timeouts = Timeouts { head: long, idle: long, total: None };
    phase(&mut timeouts, Duration::from_millis(200));
    timeouts
}

/// Waits no time, and records how long it should have waited.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<u128>>>);

impl Notes {
    pub(crate) fn millis(&self) -> Vec<u128> {
        self.0.lock().expect("notes").clone()
    }
}

impl Patience for Notes {
    fn wait(&self, time: Duration) -> futures::future::BoxFuture<'static, ()> {
        self.0.lock().expect("notes").push(time.as_millis());
        Box::pin(std::future::ready(()))
    }

    fn chance(&self) -> f64 {
        0.0
    }
}
