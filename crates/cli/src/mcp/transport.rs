//! Standard input and output as a conversation: one JSON-RPC message a line, and an answer to what is none.

use std::{io, os::fd::AsFd, thread, time::Duration};

use bytes::Bytes;
use rmcp::{
    RoleServer,
    model::{ClientJsonRpcMessage, ClientRequest, ErrorCode, GetMeta, ProtocolVersion, ServerJsonRpcMessage},
    transport::Transport,
};
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::lines::{LIMIT, Line, Lines};
use crate::relay;

/// How many pieces of input and how many answers may wait.
const QUEUE: usize = 16;

/// How long answers may wait for somebody who reads them before nobody is taken to be there.
const STALLED: Duration = Duration::from_secs(600);

/// What this server answers, and so has something to say about.
const KNOWN: [&str; 5] = ["initialize", "ping", "server/discover", "tools/list", "tools/call"];

/// The client, as far as it can be heard and told something.
pub(super) struct Streams {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    lines: Lines,
    answers: mpsc::Sender<Bytes>,
    /// Whether the conversation has begun; until then nothing but a request makes sense.
    begun: bool,
}

/// Takes over both streams. What comes second is heard from when everything was written, or nobody reads any more.
pub(super) fn open() -> io::Result<(Streams, oneshot::Receiver<()>)> {
    let (to_us, pieces) = mpsc::channel(QUEUE);
    relay::pieces(io::stdin(), to_us)?;
    let (answers, mut from_us) = mpsc::channel::<Bytes>(QUEUE);
    let (tell, written) = oneshot::channel();
    let write = move || {
        while let Some(answer) = from_us.blocking_recv() {
            if let Err(error) = relay::write_all(io::stdout().as_fd(), &answer) {
                tracing::warn!(%error, "cannot write to the client");
                break;
            }
        }
        let _nobody_waits = tell.send(());
    };
    thread::Builder::new().name("answers".to_owned()).spawn(write)?;
    Ok((Streams { pieces, lines: Lines::new(LIMIT), answers, begun: false }, written))
}

impl Transport<RoleServer> for Streams {
    type Error = io::Error;

    fn send(&mut self, message: ServerJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let answers = self.answers.clone();
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            answers.send(line.into()).await.map_err(|_closed| io::ErrorKind::BrokenPipe.into())
        }
    }

    /// Reads on only while there is room for an answer: who does not listen is not heard. May be dropped at any time; no
    /// message is lost then.
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

/// What a line is.
#[derive(Debug)]
enum Verdict {
    Message(Box<ClientJsonRpcMessage>),
    /// Something to which there is nothing to say.
    Nothing,
    /// No message; what to say to it.
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
        return refuse(&Value::Null, ErrorCode::INVALID_REQUEST, "send one message a line; batches are not read");
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
        // Nobody waits for an answer to a notification.
        (Some(_), None) if value.get("id").is_none() => Verdict::Nothing,
        _ => refuse(&Value::Null, ErrorCode::INVALID_REQUEST, "neither a request nor a notification nor an answer"),
    }
}

/// Whether it has the name of a request that is known, but not its parameters.
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

/// Whether a conversation is open after this: a handshake, or a request that brings with it what a handshake would say.
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
    fn what_is_no_message_is_answered_by_what_is_wrong_with_it() {
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
    fn what_needs_no_answer_gets_none() {
        for line in ["", "  \r", r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":7}"#] {
            assert!(matches!(judge(Line::Whole(line.into())), Verdict::Nothing), "{line}");
        }
    }

    #[test]
    fn a_conversation_opens_with_a_handshake_or_a_request_that_needs_none() {
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
