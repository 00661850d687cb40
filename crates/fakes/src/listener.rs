//! The loopback socket of a fake, with its own thread, which ends when the listener is dropped.

use std::{
    future::{Future, poll_fn},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    pin::Pin,
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use hyper::{
    Response, StatusCode,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER},
    http::request::Parts,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpStream, sync::oneshot, task::JoinSet};

use crate::{
    FakeError, Fault,
    body::{self, Body, Cut, RequestBody},
    fault::Faults,
    log::Log,
};

/// Time after which an idle connection is closed.
const HEAD_DEADLINE: Duration = Duration::from_secs(600);
/// Maximum number of concurrent connections.
const MOST_CONNECTIONS: usize = 1024;
/// Time limit for closing the service.
const CLOSING_DEADLINE: Duration = Duration::from_secs(30);

/// A boxed future.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The service behind a listener.
pub(crate) trait Service: Send + Sync + 'static {
    /// Answers one request.
    fn answer(self: Arc<Self>, parts: Parts, body: RequestBody) -> BoxFuture<Response<Body>>;

    /// Runs in the background while the listener exists.
    fn attend(self: Arc<Self>) -> BoxFuture<()>;

    /// Removes all resources.
    fn close(self: Arc<Self>) -> BoxFuture<()>;
}

/// A server on a free port of 127.0.0.1. A drop ends the service and waits for its end.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    pub(crate) log: Arc<Log>,
    pub(crate) faults: Arc<Faults>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    pub(crate) fn start(service: Arc<dyn Service>) -> Result<Self, FakeError> {
        let failed = |action| move |source| FakeError::Start { action, source };
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed("listen"))?;
        socket.set_nonblocking(true).map_err(failed("listen"))?;
        let address = socket.local_addr().map_err(failed("listen"))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(failed("start a runtime"))?;
        let (stop, stopped) = oneshot::channel();
        let (log, faults) = (Arc::<Log>::default(), Arc::<Faults>::default());
        let front = Arc::new(Front { service, log: log.clone(), faults: faults.clone() });
        let thread = std::thread::Builder::new()
            .name("fake-service".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = serve(socket, front.clone()) => {}
                        () = front.service.clone().attend() => {}
                        _dropped = stopped => {}
                    }
                    let _ended_or_late = tokio::time::timeout(CLOSING_DEADLINE, front.service.clone().close()).await;
                });
                runtime.shutdown_timeout(Duration::from_secs(1));
            })
            .map_err(failed("start a thread"))?;
        Ok(Self { address, log, faults, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _panicked_and_said_so = thread.join();
        }
    }
}

/// The log and the faults in front of a service.
struct Front {
    service: Arc<dyn Service>,
    log: Arc<Log>,
    faults: Arc<Faults>,
}

/// Accepts connections until this future is dropped, which also closes all connections.
async fn serve(socket: TcpListener, front: Arc<Front>) {
    let Ok(socket) = tokio::net::TcpListener::from_std(socket) else { return };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = socket.accept(), if connections.len() < MOST_CONNECTIONS => match accepted {
                Ok((stream, _)) => { connections.spawn(connection(stream, front.clone())); }
                // No free file descriptor: retry after other connections have ended.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_ended) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, front: Arc<Front>) {
    let _slower_without = stream.set_nodelay(true);
    let service = service_fn(|request| Box::pin(reply(request, front.clone())));
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

async fn reply(request: hyper::Request<Incoming>, front: Arc<Front>) -> Result<Response<Body>, Cut> {
    let (parts, body) = request.into_parts();
    let recorder = front.log.begin(&parts);
    let mut body = RequestBody::new(body, recorder);
    let fault = front.faults.take(&parts.method, parts.uri.path());
    let kind = parts.headers.get(CONTENT_TYPE).cloned();
    if let Some(Fault::Status(..) | Fault::RetryAfter(..) | Fault::Stall | Fault::Garbage) = fault {
        drain(&mut body).await;
    }
    let serve = |parts, body| front.service.clone().answer(parts, body);
    match fault {
        None => Ok(serve(parts, body).await),
        Some(Fault::Status(status, text)) => Ok(refusal(status, text)),
        Some(Fault::RetryAfter(status, seconds)) => {
            let mut response = refusal(status, String::new());
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
            Ok(response)
        }
        Some(Fault::Stall) => std::future::pending().await,
        Some(Fault::Garbage) => {
            let mut response = Response::new(body::full(&b"\x00\xff{\"code\": <html>\r\n\x07"[..]));
            response.headers_mut().insert(CONTENT_TYPE, kind.unwrap_or(HeaderValue::from_static("application/json")));
            Ok(response)
        }
        Some(Fault::LoseReply) => {
            let _served = serve(parts, body).await;
            Err(Cut)
        }
        Some(Fault::CutAfter(bytes)) => Ok(serve(parts, body).await.map(|body| body::cut_after(body, bytes))),
        Some(Fault::SlowBytes { at_once, every }) => {
            Ok(serve(parts, body).await.map(|body| body::slowly(body, at_once, every)))
        }
    }
}

/// Reads a body to its end, so that it is recorded.
async fn drain(body: &mut RequestBody) {
    use http_body_util::BodyExt as _;
    while let Some(Ok(_frame)) = body.frame().await {}
}

fn refusal(status: u16, text: String) -> Response<Body> {
    let kind = if text.starts_with('{') { "application/json" } else { "text/plain; charset=utf-8" };
    respond(status, &[("content-type", kind)], body::full(text))
}

/// A response with this status and these headers; invalid headers are left out.
pub(crate) fn respond(status: u16, headers: &[(&str, &str)], body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(*name), HeaderValue::try_from(*value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
