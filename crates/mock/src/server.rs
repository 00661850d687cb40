//! The server: a loopback socket with its own thread, which ends when the server is dropped.

use std::{
    convert::Infallible,
    future::poll_fn,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    pin::Pin,
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use http_body_util::{BodyExt as _, Limited};
use hyper::{
    HeaderMap, Response, StatusCode,
    body::Incoming as IncomingBody,
    header::{AUTHORIZATION, HeaderName, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpStream, sync::oneshot, task::JoinSet};

use crate::{
    MockError, Problem, Request, Script,
    answer::{Incoming, answer},
    delivery::{Before, Playback, Reply},
    play::Play,
    refusal::Refusal,
    stage::{Logged, Stage},
};

/// Limit of a request, in bytes.
const LONGEST_BODY: usize = 64 << 20;
/// Time limit for the arrival of a request.
const BODY_DEADLINE: Duration = Duration::from_secs(60);
/// Time after which an idle connection is closed.
const HEAD_DEADLINE: Duration = Duration::from_secs(600);
/// Maximum number of concurrent connections.
const MOST_CONNECTIONS: usize = 4096;

/// A server that follows a script. It runs on its own thread, so it needs no runtime. It ends when it is dropped.
#[derive(Debug)]
pub struct MockServer {
    address: SocketAddr,
    stage: Arc<Stage>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MockServer {
    /// Starts a server on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// If the script is invalid, or the socket cannot be opened.
    pub fn start(script: Script) -> Result<Self, MockError> {
        Self::start_at(script, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// Starts a server at a loopback address.
    ///
    /// # Errors
    ///
    /// As [`MockServer::start`].
    pub fn start_at(script: Script, address: SocketAddr) -> Result<Self, MockError> {
        if !address.ip().is_loopback() {
            return Err(MockError::NotLoopback(address));
        }
        let log_entries = script.log_entries;
        let stage = Arc::new(Stage::new(Play::new(script)?, log_entries));
        let failed = |action| move |source| MockError::Start { action, source };
        let listener = TcpListener::bind(address).map_err(failed("listen"))?;
        listener.set_nonblocking(true).map_err(failed("listen"))?;
        let address = listener.local_addr().map_err(failed("listen"))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed("start"))?;
        let (stop, stopped) = oneshot::channel();
        let served = stage.clone();
        let thread = std::thread::Builder::new()
            .name("mock-server".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = serve(listener, served) => {}
                        _dropped = stopped => {}
                    }
                });
            })
            .map_err(failed("start a thread"))?;
        Ok(Self { address, stage, stop: Some(stop), thread: Some(thread) })
    }

    /// What a client is told to use, as in `http://127.0.0.1:4711/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests that the server received, oldest first.
    pub fn requests(&self) -> Vec<Request> {
        self.stage.requests()
    }

    /// Requests that the server refused, with the reasons, oldest first. If there are none, the client follows the rules.
    pub fn problems(&self) -> Vec<Problem> {
        self.stage.problems()
    }
}

impl Drop for MockServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _panicked_and_said_so = thread.join();
        }
    }
}

/// Accepts connections until this future is dropped, which also closes all connections.
async fn serve(listener: TcpListener, stage: Arc<Stage>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => match accepted {
                Ok((stream, _)) => { connections.spawn(connection(stream, stage.clone())); }
                // No free file descriptor: retry after other connections have ended.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_ended) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, stage: Arc<Stage>) {
    let _slower_without = stream.set_nodelay(true);
    let service = service_fn(|request| Box::pin(reply(request, &stage)));
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .serve_connection(TokioIo::new(stream), service);
    let ended = poll_fn(|cx| Pin::new(&mut connection).poll_without_shutdown(cx)).await;
    if ended.is_err() {
        // A reset, so that the client does not take the end of the connection for the end of the response.
        let _gone_already = connection.into_parts().io.into_inner().set_zero_linger();
    }
}

async fn reply(request: hyper::Request<IncomingBody>, stage: &Stage) -> Result<Response<Playback>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = tokio::time::timeout(BODY_DEADLINE, Limited::new(body, LONGEST_BODY).collect()).await;
    let (number, reply) = match body {
        Ok(Ok(body)) => {
            let body = body.to_bytes();
            let number = stage.log(Logged {
                method: parts.method.to_string(),
                path: parts.uri.path_and_query().map_or_else(|| parts.uri.path().to_owned(), ToString::to_string),
                headers: headers(&parts.headers),
                body: body.clone(),
            });
            let authorization = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
            let incoming = Incoming {
                method: parts.method.to_string(),
                path: parts.uri.path().to_owned(),
                query: parts.uri.query().unwrap_or_default().to_owned(),
                authorization: authorization.map(str::to_owned),
                body,
            };
            (number, answer(stage, &incoming))
        }
        Ok(Err(_)) => (0, refuse(stage, parts.uri.path(), 413, "The request is too long, or ended early.")),
        Err(_) => (0, refuse(stage, parts.uri.path(), 408, "The request did not come in time.")),
    };
    match reply.before {
        Before::Nothing => {}
        Before::Wait(pause) => tokio::time::sleep(pause).await,
        Before::Forever => std::future::pending().await,
    }
    Ok(response(reply, number))
}

fn refuse(stage: &Stage, path: &str, status: u16, message: &str) -> Reply {
    let refusal = Refusal::bare(status, message);
    stage.complain(path, &refusal);
    Reply::refusal(&refusal)
}

fn headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}

fn request_id(number: u64) -> HeaderValue {
    HeaderValue::try_from(format!("req_{number}")).unwrap_or(HeaderValue::from(number))
}

fn response(reply: Reply, number: u64) -> Response<Playback> {
    let mut response = Response::new(reply.body);
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert("x-request-id", request_id(number));
    for (name, value) in reply.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
