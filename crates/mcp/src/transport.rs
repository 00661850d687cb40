//! JSON-RPC over two streams: one message per line, and an error response to an invalid message.

use std::{io, time::Duration};

use bytes::{Bytes, BytesMut};
use rmcp::{
    RoleServer,
    model::{ClientJsonRpcMessage, ClientRequest, ErrorCode, GetMeta, ProtocolVersion, ServerJsonRpcMessage},
    transport::Transport,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};

use super::lines::{LIMIT, Line, Lines};

/// Maximum number of bytes per read.
const CHUNK: usize = 64 * 1024;

/// Capacity of the queues of input pieces and of responses.
const QUEUE: usize = 16;

/// How long responses may stay unread before the client counts as gone.
const STALLED: Duration = Duration::from_secs(600);

/// Methods that this server answers.
const KNOWN: [&str; 5] = ["initialize", "ping", "server/discover", "tools/list", "tools/call"];

/// Connection to a client: two streams of JSON-RPC messages, one message per line.
#[derive(Debug)]
pub struct Connection {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    lines: Lines,
    answers: mpsc::Sender<Bytes>,
    /// The task that writes the answers.
    writer: Option<JoinHandle<()>>,
    /// Whether the handshake is done; until then, only requests are valid.
    begun: bool,
}

impl Connection {
    /// Reads requests from one stream and writes responses to the other. Must be called on a tokio runtime.
    pub fn new(
        mut input: impl AsyncRead + Send + Unpin + 'static,
        mut output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        let (sender, pieces) = mpsc::channel(QUEUE);
        tokio::spawn(async move {
            loop {
                let mut piece = BytesMut::with_capacity(CHUNK);
                let read = input.read_buf(&mut piece).await;
                let is_last = !matches!(read, Ok(length) if length > 0);
                let is_end = matches!(read, Ok(0));
                if is_end || sender.send(read.map(|_| piece.freeze())).await.is_err() || is_last {
                    return;
                }
            }
        });
        let (answers, mut receiver) = mpsc::channel::<Bytes>(QUEUE);
        let writer = tokio::spawn(async move {
            while let Some(answer) = receiver.recv().await {
                let written = async { output.write_all(&answer).await.and(output.flush().await) };
                if let Err(error) = written.await {
                    return tracing::warn!(%error, "cannot write to the client");
                }
            }
        });
        Self { writer: Some(writer), ..Self::from_channels(pieces, answers) }
    }

    /// Receives requests from one channel, in pieces of any length, and sends each response to the other.
    pub fn from_channels(input: mpsc::Receiver<io::Result<Bytes>>, output: mpsc::Sender<Bytes>) -> Self {
        Self { pieces: input, lines: Lines::new(LIMIT), answers: output, writer: None, begun: false }
    }

    pub(crate) fn take_writer(&mut self) -> Option<JoinHandle<()>> {
        self.writer.take()
    }
}

impl Transport<RoleServer> for Connection {
    type Error = io::Error;

    fn send(&mut self, message: ServerJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let answers = self.answers.clone();
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            answers.send(line.into()).await.map_err(|_closed| io::ErrorKind::BrokenPipe.into())
        }
    }

    /// Receives the next message while there is room for a response, so that a client that does not read is not read from.
    /// Cancel-safe: no message is lost if the future is dropped.
    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            let room = timeout(STALLED, self.answers.clone().reserve_owned()).await;
            let Ok(Ok(room)) = room else { return None };
            let (line, is_last) = match self.lines.next() {
                Some(line) => (line, false),
                None => match self.pieces.recv().await {
                    Some(Ok(piece)) => {
                        self.lines.push(piece);
                        continue;
                    }
                    Some(Err(_)) | None => (Line::Whole(self.lines.last()?), true),
                },
            };
            match judge(line) {
                Verdict::Message(message) if self.begun || matches!(*message, ClientJsonRpcMessage::Request(_)) => {
                    self.begun |= opens(&message);
                    return Some(*message);
                }
                Verdict::Message(_) | Verdict::Nothing => {}
                Verdict::Answer(answer) => drop(room.send(format!("{answer}\n").into())),
            }
            if is_last {
                return None;
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.pieces.close();
        Ok(())
    }
}

/// Classification of a line.
#[derive(Debug)]
enum Verdict {
    Message(Box<ClientJsonRpcMessage>),
    /// A line that needs no response.
    Nothing,
    /// An invalid message, and its error response.
    Answer(Value),
}

fn judge(line: Line) -> Verdict {
    let line = match line {
        Line::Whole(line) => line,
        Line::TooLong => return refuse(&Value::Null, ErrorCode::INVALID_REQUEST, "the message is longer than 16 MiB"),
    };
    if line.iter().all(u8::is_ascii_whitespace) {
        return Verdict::Nothing;
    }
    if let Ok(message) = serde_json::from_slice(&line)
        && !is_misspelt(&message)
    {
        return Verdict::Message(Box::new(message));
    }
    let value: Value = match serde_json::from_slice(&line) {
        Ok(value) => value,
        Err(error) => return refuse(&Value::Null, ErrorCode::PARSE_ERROR, &format!("not JSON: {error}")),
    };
    if value.is_array() {
        return refuse(
            &Value::Null,
            ErrorCode::INVALID_REQUEST,
            "send one message per line; batches are not supported",
        );
    }
    let id = value.get("id").filter(|id| id.is_string() || id.is_i64() || id.is_u64());
    match (value.get("method").and_then(Value::as_str), id) {
        _ if value.get("jsonrpc") != Some(&Value::from("2.0")) => {
            refuse(id.unwrap_or(&Value::Null), ErrorCode::INVALID_REQUEST, "not a JSON-RPC 2.0 message")
        }
        (Some(method), Some(id)) => {
            let text = format!("the parameters are not those of {method}");
            refuse(id, ErrorCode::INVALID_PARAMS, &text)
        }
        // A notification gets no response.
        (Some(_), None) if value.get("id").is_none() => Verdict::Nothing,
        _ => refuse(&Value::Null, ErrorCode::INVALID_REQUEST, "not a request, a notification or a response"),
    }
}

/// Whether the message has a known method, but invalid parameters.
fn is_misspelt(message: &ClientJsonRpcMessage) -> bool {
    let ClientJsonRpcMessage::Request(request) = message else { return false };
    match &request.request {
        ClientRequest::CustomRequest(custom) => KNOWN.contains(&custom.method.as_str()),
        _ => false,
    }
}

fn refuse(id: &Value, code: ErrorCode, message: &str) -> Verdict {
    Verdict::Answer(json!({"jsonrpc": "2.0", "id": id, "error": {"code": code.0, "message": message}}))
}

/// Whether the connection is open after this message: a handshake, or a request that contains the data of a handshake.
fn opens(message: &ClientJsonRpcMessage) -> bool {
    let ClientJsonRpcMessage::Request(request) = message else { return false };
    match &request.request {
        ClientRequest::InitializeRequest(_) => true,
        ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => false,
        other => {
            let meta = other.get_meta();
            let known =
                meta.protocol_version().is_some_and(|version| ProtocolVersion::KNOWN_VERSIONS.contains(&version));
            known && meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(line: &str) -> Option<(i64, Value)> {
        match judge(Line::Whole(line.into())) {
            Verdict::Answer(answer) => Some((answer["error"]["code"].as_i64().expect("a code"), answer["id"].clone())),
            Verdict::Message(_) | Verdict::Nothing => None,
        }
    }

    #[test]
    fn an_invalid_message_gets_an_error_response() {
        let table = [
            ("{", -32700, Value::Null),
            ("hello", -32700, Value::Null),
            ("[]", -32600, Value::Null),
            ("7", -32600, Value::Null),
            ("{}", -32600, Value::Null),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, -32600, json!(1)),
            (r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#, -32600, Value::Null),
            (r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":7}}"#, -32602, json!("a")),
            (
                r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x","arguments":[]}}"#,
                -32602,
                json!(2),
            ),
            (r#"{"jsonrpc":"2.0","id":3,"method":"initialize","params":{}}"#, -32602, json!(3)),
        ];
        for (line, code, id) in table {
            assert_eq!(answered(line), Some((code, id)), "{line}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(answered(&deep), Some((-32700, Value::Null)));
    }

    #[test]
    fn notifications_and_empty_lines_get_no_response() {
        for line in ["", "  \r", r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":7}"#] {
            assert!(matches!(judge(Line::Whole(line.into())), Verdict::Nothing), "{line}");
        }
    }

    #[test]
    fn a_connection_opens_with_a_handshake_or_a_request_that_needs_none() {
        let opens_with = |line: &str| match judge(Line::Whole(line.into())) {
            Verdict::Message(message) => opens(&message),
            other => panic!("{other:?}"),
        };
        let client =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}});
        let handshake = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client});
        assert!(opens_with(&handshake.to_string()));
        for method in ["ping", "tools/list", "something/else"] {
            assert!(!opens_with(&json!({"jsonrpc": "2.0", "id": 1, "method": method}).to_string()), "{method}");
        }
        assert!(!opens_with(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#));
    }
}
