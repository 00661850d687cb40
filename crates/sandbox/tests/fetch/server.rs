//! A small web server that does exactly what it is told, however wrong that is.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// What a client asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Question {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Question {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// One thing the server does with a connection.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends these bytes again and again, as fast as they are taken.
    Flood(Vec<u8>),
    /// Sends one byte in each of these intervals, for ever.
    Drip(Duration),
    /// Keeps the connection open and says nothing.
    Stall,
    /// Breaks the connection instead of closing it.
    Reset,
}

/// A whole answer with this head line, these headers and this body.
pub(crate) fn answer(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<Step> {
    let length = body.len().to_string();
    let headers = [headers, &[("content-length", &length)]].concat();
    vec![Step::Send([head(status, &headers), body.to_vec()].concat())]
}

/// The beginning of an answer.
pub(crate) fn head(status: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}\r\n").into_bytes()
}

/// Sends the client elsewhere.
pub(crate) fn redirect(location: &str) -> Vec<Step> {
    answer("302 Found", &[("location", location)], b"")
}

type Respond = dyn Fn(Question, usize) -> BoxFuture<'static, Vec<Step>> + Send + Sync;

/// A server on a port of its own, until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Question>>>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Answers each question by what it is and how many came before it.
    pub(crate) async fn new(respond: impl Fn(&Question, usize) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::slow(move |question, before| {
            let steps = respond(&question, before);
            Box::pin(async move { steps })
        })
        .await
    }

    /// The same for answers that have to be waited for.
    pub(crate) async fn slow(
        respond: impl Fn(Question, usize) -> BoxFuture<'static, Vec<Step>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its number");
        let asked: Arc<Mutex<Vec<Question>>> = Arc::default();
        let (book, respond): (_, Arc<Respond>) = (asked.clone(), Arc::new(respond));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, book.clone(), respond.clone()));
            }
        });
        Self { address, asked, _tasks: tasks }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Every question so far.
    pub(crate) fn asked(&self) -> Vec<Question> {
        self.asked.lock().clone()
    }
}

async fn serve(stream: TcpStream, book: Arc<Mutex<Vec<Question>>>, respond: Arc<Respond>) {
    let mut stream = BufReader::new(stream);
    let Some(question) = hear(&mut stream).await else { return };
    let before = {
        let mut book = book.lock();
        book.push(question.clone());
        book.len() - 1
    };
    for step in respond(question, before).await {
        if act(stream.get_mut(), step).await.is_err() {
            return;
        }
    }
    let _client_gone = stream.shutdown().await;
}

async fn act(stream: &mut TcpStream, step: Step) -> std::io::Result<()> {
    match step {
        Step::Send(bytes) => stream.write_all(&bytes).await,
        Step::Flood(bytes) => loop {
            stream.write_all(&bytes).await?;
        },
        Step::Drip(pause) => loop {
            stream.write_all(b".").await?;
            tokio::time::sleep(pause).await;
        },
        Step::Stall => stream.read_to_end(&mut Vec::new()).await.map(drop),
        Step::Reset => {
            stream.set_zero_linger()?;
            Err(std::io::ErrorKind::ConnectionReset.into())
        }
    }
}

async fn hear(stream: &mut BufReader<TcpStream>) -> Option<Question> {
    let first = line(stream).await?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut question = Question { method, path, ..Question::default() };
    loop {
        let line = line(stream).await?;
        let Some((name, value)) = line.split_once(':') else { break };
        question.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    if question.header("transfer-encoding").is_some() {
        loop {
            let size = usize::from_str_radix(line(stream).await?.trim(), 16).ok()?;
            let mut piece = vec![0; size + 2];
            stream.read_exact(&mut piece).await.ok()?;
            question.body.extend_from_slice(&piece[..size]);
            if size == 0 {
                return Some(question);
            }
        }
    }
    let length = question.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    question.body = vec![0; length];
    stream.read_exact(&mut question.body).await.ok()?;
    Some(question)
}

async fn line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    let read = stream.read_line(&mut line).await.ok()?;
    (read > 0).then(|| line.trim_end().to_owned())
}
