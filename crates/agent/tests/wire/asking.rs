//! Calls a model on a scripted server and records the outcome.

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::Arc,
    thread,
    time::Duration,
};

use futures::{StreamExt, future::BoxFuture};
use parking_lot::Mutex;
use sandbar_agent::{
    Chat, Item, Model, ModelEndpoint, ModelError, ModelEvent, ModelReply, ModelRequest, Patience, RawEvent, Responses,
    View,
};
use sandbar_mock::{Fault, MockServer, Script, Turn, item};

/// A clock that records waits instead of waiting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<Duration>>>);

impl Notes {
    pub(crate) fn millis(&self) -> Vec<u128> {
        self.0.lock().iter().map(Duration::as_millis).collect()
    }
}

impl Patience for Notes {
    fn wait(&self, time: Duration) -> BoxFuture<'static, ()> {
        self.0.lock().push(time);
        Box::pin(std::future::ready(()))
    }

    fn chance(&self) -> f64 {
        0.0
    }
}

/// Outcome of a call.
pub(crate) struct Heard {
    pub(crate) events: Vec<RawEvent>,
    pub(crate) end: Result<ModelReply, ModelError>,
}

impl Heard {
    pub(crate) fn kinds(&self) -> Vec<&str> {
        self.events.iter().map(RawEvent::kind).collect()
    }

    pub(crate) fn reply(self) -> ModelReply {
        self.end.expect("a reply")
    }

    /// The text of the reply, or the name of the error: `Status 401`, `AfterOutput Network`.
    pub(crate) fn summary(&self) -> String {
        match &self.end {
            Ok(reply) => reply.output.iter().map(text).collect(),
            Err(error) => name(error),
        }
    }
}

fn name(error: &ModelError) -> String {
    match error {
        ModelError::Status { status, .. } => format!("Status {status}"),
        ModelError::Network { .. } => "Network".to_owned(),
        ModelError::Timeout(_) => "Timeout".to_owned(),
        ModelError::Failed { code, .. } => format!("Failed {}", code.as_deref().unwrap_or("-")),
        ModelError::Malformed(_) => "Malformed".to_owned(),
        ModelError::AfterOutput { cause } => format!("AfterOutput {}", name(cause)),
        other => format!("{other:?}"),
    }
}

pub(crate) fn text(item: &Item) -> String {
    match item.view() {
        View::Message(message) => message.text(),
        _ => String::new(),
    }
}

/// Calls the model and reads the stream to its end.
pub(crate) async fn ask(model: &dyn Model, request: ModelRequest) -> Heard {
    let mut events = Vec::new();
    let mut stream = match model.stream(request).await {
        Ok(stream) => stream,
        Err(error) => return Heard { events, end: Err(error) },
    };
    let end = loop {
        match stream.next().await.expect("a stream ends with a reply or an error") {
            Ok(ModelEvent::Raw(raw)) => events.push(raw),
            Ok(ModelEvent::Done(reply)) => break Ok(reply),
            Ok(other) => panic!("{other:?}"),
            Err(error) => break Err(error),
        }
    };
    assert!(stream.next().await.is_none(), "nothing comes after the end");
    Heard { events, end }
}

/// A server with one reply, after these faults.
pub(crate) fn server(faults: impl IntoIterator<Item = Fault>) -> MockServer {
    let turn = faults.into_iter().fold(Turn::new([item::text("Hello, wörld.")]), Turn::fault);
    MockServer::start(Script::new().turn(turn)).expect("a server")
}

pub(crate) fn endpoint(server: &MockServer) -> (ModelEndpoint, Notes) {
    let notes = Notes::default();
    (ModelEndpoint::new(server.base_url()).api_key("sk-very-secret").patience(notes.clone()), notes)
}

pub(crate) fn responses(server: &MockServer) -> (Responses, Notes) {
    let (endpoint, notes) = endpoint(server);
    (Responses::new("gpt-5.5").at(endpoint), notes)
}

pub(crate) fn chat(server: &MockServer) -> (Chat, Notes) {
    let (endpoint, notes) = endpoint(server);
    (Chat::new("llama", endpoint), notes)
}

pub(crate) fn hello() -> ModelRequest {
    ModelRequest { input: vec![Item::user("Hello?")].into(), ..ModelRequest::default() }
}

/// A server that sends the same bytes to every client and closes the connection.
pub(crate) fn saying(body: impl Into<String>) -> String {
    saying_as("text/event-stream", body)
}

pub(crate) fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    body.len() >= length.unwrap_or(0)
}

/// A server that sends the same bytes to every client, with this content type.
pub(crate) fn saying_as(kind: &'static str, body: impl Into<String>) -> String {
    let body = body.into();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            // Reads the whole request: a connection that is closed before that is reset.
            let (mut request, mut piece) = (Vec::<u8>::new(), [0; 4096]);
            while !is_whole(&request)
                && let Ok(count @ 1..) = connection.read(&mut piece)
            {
                request.extend_from_slice(&piece[..count]);
            }
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n");
            let _client_gone = connection.write_all(format!("{head}{body}").as_bytes());
        }
    });
    format!("http://{address}/v1")
}
