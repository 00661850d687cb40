//! The event stream of a command: length-prefixed messages, bounded and decoded as they arrive.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use bytes::{Buf as _, Bytes, BytesMut};
use sandbar_http::Response;
use sandbar_machine::{Exit, ExitReason, MachineError, Output, Result};
use serde::Deserialize;
use serde_json::Value;

/// Maximum length of a message in bytes.
const LONGEST_MESSAGE: usize = 8 << 20;
/// Flag of the last message.
const END_OF_STREAM: u8 = 2;

/// The messages of a stream: each has one byte of flags, four bytes of length, and JSON.
pub(super) struct Messages {
    response: Response,
    unread: BytesMut,
}

pub(super) enum Message {
    Event(Event),
    /// The last message.
    End(Option<StreamError>),
}

#[derive(Default, Deserialize)]
pub(super) struct Event {
    pub(super) start: Option<Value>,
    data: Option<Data>,
    end: Option<End>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct StreamError {
    pub(super) code: String,
    pub(super) message: String,
}

#[derive(Deserialize)]
struct EventMessage {
    #[serde(default)]
    event: Event,
}

#[derive(Deserialize)]
struct EndMessage {
    error: Option<StreamError>,
}

#[derive(Deserialize)]
struct Data {
    stdout: Option<String>,
    stderr: Option<String>,
    pty: Option<String>,
}

/// Fields that are zero are omitted.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct End {
    exit_code: i32,
    exited: bool,
    status: String,
}

fn broken(reason: impl Into<sandbar_machine::BoxError>) -> MachineError {
    MachineError::transport("follow a command", reason)
}

impl Messages {
    pub(super) fn new(response: Response) -> Self {
        Self { response, unread: BytesMut::new() }
    }

    pub(super) async fn next(&mut self) -> Result<Message> {
        loop {
            if let Some(message) = decode(&mut self.unread)? {
                return Ok(message);
            }
            match self.response.chunk().await.map_err(broken)? {
                Some(part) => self.unread.extend_from_slice(&part),
                None => return Err(broken("the connection ended before the command")),
            }
        }
    }

    /// The next output of a command that was started; `None` at the end of the stream.
    pub(super) async fn output(&mut self) -> Result<Option<Output>> {
        loop {
            return match self.next().await? {
                Message::Event(Event { end: Some(end), .. }) => Ok(Some(Output::Exit(end.exit()))),
                Message::Event(Event { data: Some(data), .. }) => data.output().map(Some),
                Message::Event(_) => continue,
                Message::End(None) => Ok(None),
                Message::End(Some(error)) if error.code == "deadline_exceeded" => {
                    Ok(Some(Output::Exit(Exit { code: 137, reason: ExitReason::Deadline })))
                }
                Message::End(Some(error)) => Err(broken(format!("{}: {}", error.code, error.message))),
            };
        }
    }
}

/// Removes the first message from the bytes; `None` until it is complete.
fn decode(unread: &mut BytesMut) -> Result<Option<Message>> {
    let [flags, a, b, c, d, rest @ ..] = &unread[..] else { return Ok(None) };
    let (flags, length) = (*flags, u32::from_be_bytes([*a, *b, *c, *d]) as usize);
    if length > LONGEST_MESSAGE || flags & !END_OF_STREAM != 0 {
        return Err(broken("the service sent an invalid frame"));
    }
    let Some(text) = rest.get(..length) else { return Ok(None) };
    let message = match flags {
        END_OF_STREAM => serde_json::from_slice::<EndMessage>(text).map(|end| Message::End(end.error)),
        _ => serde_json::from_slice::<EventMessage>(text).map(|message| Message::Event(message.event)),
    };
    unread.advance(5 + length);
    message.map(Some).map_err(broken)
}

impl Data {
    fn output(self) -> Result<Output> {
        let (text, wrap): (_, fn(Bytes) -> Output) = match self {
            Self { stderr: Some(text), .. } => (text, Output::Stderr),
            Self { stdout, pty, .. } => (stdout.or(pty).unwrap_or_default(), Output::Stdout),
        };
        Ok(wrap(BASE64.decode(text).map_err(broken)?.into()))
    }
}

impl End {
    fn exit(&self) -> Exit {
        match self.exited {
            true => Exit::code(self.exit_code),
            false => Exit { code: 128 + signal_number(&self.status), reason: ExitReason::Signaled },
        }
    }
}

/// The number of the signal in a status like `signal: killed`; 0 if it is unknown.
fn signal_number(status: &str) -> i32 {
    const NAMES: [&str; 15] = [
        "hangup",
        "interrupt",
        "quit",
        "illegal instruction",
        "trace/breakpoint trap",
        "aborted",
        "bus error",
        "floating point exception",
        "killed",
        "user defined signal 1",
        "segmentation fault",
        "user defined signal 2",
        "broken pipe",
        "alarm clock",
        "terminated",
    ];
    let name = status.trim_start_matches("signal: ").trim_end_matches(" (core dumped)");
    let known = NAMES.iter().zip(1..).find(|(known, _)| **known == name).map(|(_, number)| number);
    let numbered = || name.strip_prefix("signal ")?.parse().ok().filter(|number| (1..=64).contains(number));
    known.or_else(numbered).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(flags: u8, text: &str) -> Vec<u8> {
        [&[flags][..], &u32::try_from(text.len()).expect("short").to_be_bytes(), text.as_bytes()].concat()
    }

    #[test]
    fn a_message_is_read_however_it_is_cut_into_pieces() {
        let mut whole = frame(0, r#"{"event":{"data":{"stderr":"eA=="}}}"#);
        whole.extend(frame(2, "{}"));
        for at in 0..whole.len() {
            let mut unread = BytesMut::from(&whole[..at]);
            let mut messages = Vec::new();
            for rest in [&whole[at..], &[]] {
                while let Some(message) = decode(&mut unread).expect("valid") {
                    messages.push(message);
                }
                unread.extend_from_slice(rest);
            }
            let [Message::Event(Event { data: Some(data), .. }), Message::End(None)] = &mut messages[..] else {
                panic!("{} messages, cut at {at}", messages.len())
            };
            let data = Data { stdout: data.stdout.take(), stderr: data.stderr.take(), pty: None };
            assert_eq!(data.output().expect("base64"), Output::Stderr("x".into()));
        }
    }

    #[test]
    fn invalid_messages_are_errors() {
        for bytes in [
            frame(1, "{}"),
            frame(0x80, "{}"),
            frame(0, "7"),
            frame(0, "\u{0}"),
            frame(0, r#"{"event":{"end":{"exitCode":"x"}}}"#),
            frame(2, r#"{"error":7}"#),
            vec![0, 0xff, 0xff, 0xff, 0xff],
        ] {
            let code = decode(&mut BytesMut::from(&bytes[..])).map(|_| ()).expect_err("invalid").code();
            assert_eq!(code, "transport", "{bytes:?}");
        }
        let garbage = Data { stdout: Some("?".to_owned()), stderr: None, pty: None };
        assert_eq!(garbage.output().expect_err("no base64").code(), "transport");
    }

    #[test]
    fn a_signal_is_known_by_its_name() {
        for (status, number) in [
            ("signal: killed", 9),
            ("signal: hangup", 1),
            ("signal: segmentation fault (core dumped)", 11),
            ("signal: user defined signal 1", 10),
            ("signal: signal 34", 34),
            ("signal: signal 999", 0),
            ("", 0),
        ] {
            assert_eq!(signal_number(status), number, "{status}");
        }
    }
}
