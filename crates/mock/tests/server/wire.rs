//! A plain client that returns the received bytes and the end of the connection.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use sandbar_mock::{MockServer, Script};
use serde_json::{Value, json};

/// How the body of an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Whole,
    Cut,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) end: End,
}

/// One connection, used again and again.
pub(super) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(super) fn new(server: &MockServer) -> Self {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    pub(super) fn post(&mut self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, "", body.to_string().as_bytes())
    }

    pub(super) fn get(&mut self, path: &str) -> Answer {
        self.send("GET", path, "", b"")
    }

    pub(super) fn ask(&mut self, body: &Value) -> Answer {
        self.post("/responses", body)
    }

    pub(super) fn send(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        let length = body.len();
        let head = format!("{method} /v1{path} HTTP/1.1\r\nhost: mock\r\ncontent-length: {length}\r\n{headers}\r\n");
        let socket = self.stream.get_mut();
        socket.write_all(&[head.as_bytes(), body].concat()).unwrap();
        self.answer()
    }

    fn answer(&mut self) -> Answer {
        let line = self.line();
        let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("no status in {line:?}")).parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.push((name.to_owned(), value.to_owned()));
        }
        let mut answer = Answer { status, headers, body: Vec::new(), end: End::Whole };
        let length = answer.header("content-length").map(|length| length.parse::<u64>().unwrap());
        let read = match length {
            Some(length) => self.exactly(length, &mut answer.body),
            None => self.chunks(&mut answer.body),
        };
        if read.is_err() {
            answer.end = End::Cut;
        }
        answer
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn exactly(&mut self, length: u64, body: &mut Vec<u8>) -> std::io::Result<()> {
        let read = self.stream.by_ref().take(length).read_to_end(body)?;
        if read as u64 == length { Ok(()) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
    }

    fn chunks(&mut self, body: &mut Vec<u8>) -> std::io::Result<()> {
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let length = u64::from_str_radix(line.trim_end(), 16).unwrap();
            self.exactly(length, body)?;
            self.stream.read_line(&mut line)?;
            if length == 0 {
                return Ok(());
            }
        }
    }
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The events of a stream that is framed as it should be.
    pub(super) fn events(&self) -> Vec<Value> {
        let text = self.text();
        assert!(text.ends_with("\n\n"), "{text}");
        let events = text.split_terminator("\n\n").filter(|event| !event.ends_with("[DONE]"));
        let parse = |event: &str| {
            let data: Value = serde_json::from_str(event.split("data: ").nth(1).unwrap()).unwrap();
            if let Some(name) = event.strip_prefix("event: ") {
                assert_eq!(Some(name.lines().next().unwrap()), data["type"].as_str());
            }
            data
        };
        events.map(parse).collect()
    }

    /// What the model said, in words: texts, calls as `name(arguments)`, errors as `param: message`.
    pub(super) fn said(&self) -> String {
        let value = match self.header("content-type") {
            Some(kind) if kind.starts_with("text/event-stream") => self.events().pop().unwrap()["response"].clone(),
            _ => self.json(),
        };
        if let Some(error) = value.get("error").filter(|error| !error.is_null()) {
            return format!("{}: {}", error["param"].as_str().unwrap_or("-"), error["message"].as_str().unwrap());
        }
        let say = |item: &Value| match item["type"].as_str().unwrap() {
            "message" => item["content"][0]["text"].as_str().unwrap_or("?").to_owned(),
            "function_call" => format!("{}({})", item["name"].as_str().unwrap(), item["arguments"].as_str().unwrap()),
            other => format!("<{other}>"),
        };
        value["output"].as_array().unwrap().iter().map(say).collect::<Vec<_>>().join(", ")
    }
}

pub(super) fn serve(script: Script) -> (MockServer, Client) {
    let server = MockServer::start(script).unwrap();
    let client = Client::new(&server);
    (server, client)
}

/// A request with this input, for the model `m`.
pub(super) fn request(input: Value) -> Value {
    json!({"model": "m", "input": input})
}

pub(super) fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

pub(super) fn call(id: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"})
}

pub(super) fn output(id: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": "ok"})
}

/// A message of the model as a client that keeps no ids repeats it.
pub(super) fn said(text: &str) -> Value {
    json!({"type": "message", "role": "assistant", "content": text})
}
