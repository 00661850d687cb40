//! A plain HTTP client for the tests: one request per connection, with the complete response.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sandbar_fakes::e2b::Server;
use serde_json::{Value, json};

/// A request that is about to be made.
pub(crate) struct Call<'a> {
    server: &'a Server,
    method: &'static str,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// What came back, and whether it was all.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) complete: bool,
}

/// A sandbox, and the token for it.
pub(crate) struct Sandbox<'a> {
    pub(crate) server: &'a Server,
    pub(crate) id: String,
    pub(crate) token: Option<String>,
}

/// A call of the control plane, with the key.
pub(crate) fn api<'a>(server: &'a Server, method: &'static str, target: &str) -> Call<'a> {
    Call::new(server, method, target).header("X-API-KEY", server.key())
}

/// Makes a sandbox of the template `base`, with these fields beside.
pub(crate) fn create(server: &Server, fields: Value) -> Sandbox<'_> {
    let mut body = json!({"templateID": "base", "timeout": 300, "secure": true});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let made = api(server, "POST", "/sandboxes").json(&body).send();
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.json();
    let token = made["envdAccessToken"].as_str().map(str::to_owned);
    Sandbox { server, id: made["sandboxID"].as_str().unwrap().to_owned(), token }
}

impl Sandbox<'_> {
    /// A call to a port, by headers, with the token.
    pub(crate) fn call(&self, port: u16, method: &'static str, target: &str) -> Call<'_> {
        let call = Call::new(self.server, method, target)
            .header("E2b-Sandbox-Id", &self.id)
            .header("E2b-Sandbox-Port", &port.to_string());
        match &self.token {
            Some(token) => call.header("X-Access-Token", token),
            None => call,
        }
    }

    pub(crate) fn unary(&self, method: &str, message: &Value) -> Reply {
        self.call(49983, "POST", method).json(message).send()
    }

    pub(crate) fn stream(&self, method: &str, message: &Value) -> Call<'_> {
        self.call(49983, "POST", method).header("Content-Type", "application/connect+json").body(envelope(message))
    }

    /// Starts a shell with this text and follows it to its end.
    pub(crate) fn run(&self, text: &str) -> Vec<(u8, Value)> {
        let process = json!({"cmd": "/bin/bash", "args": ["-l", "-c", text]});
        self.stream("/process.Process/Start", &json!({"process": process, "stdin": false})).send().messages()
    }
}

/// Everything that was printed on standard output.
pub(crate) fn printed(messages: &[(u8, Value)]) -> String {
    let pieces = messages.iter().filter_map(|(_, message)| message["event"]["data"]["stdout"].as_str());
    let bytes: Vec<u8> = pieces.flat_map(|piece| STANDARD.decode(piece).unwrap()).collect();
    String::from_utf8(bytes).unwrap()
}

/// One message as an envelope.
pub(crate) fn envelope(message: &Value) -> Vec<u8> {
    let text = message.to_string();
    let mut bytes = vec![0];
    bytes.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
    bytes.extend(text.bytes());
    bytes
}

impl<'a> Call<'a> {
    pub(crate) fn new(server: &'a Server, method: &'static str, target: &str) -> Self {
        Self { server, method, target: target.to_owned(), headers: Vec::new(), body: Vec::new() }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn json(self, value: &Value) -> Self {
        self.header("Content-Type", "application/json").body(value.to_string())
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends it on a connection that stays open.
    pub(crate) fn begin(self) -> TcpStream {
        let mut stream = TcpStream::connect(self.server.url().trim_start_matches("http://")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let mut head = format!("{} {} HTTP/1.1\r\nConnection: close\r\n", self.method, self.target);
        if !self.headers.iter().any(|(name, _)| name == "Host") {
            head.push_str("Host: localhost\r\n");
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", self.body.len()));
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&self.body).unwrap();
        stream
    }

    /// Sends it, and reads the answer to its end.
    pub(crate) fn send(self) -> Reply {
        self.try_send().expect("an answer")
    }

    /// The same; `None` if the connection ended before the head of an answer.
    pub(crate) fn try_send(self) -> Option<Reply> {
        let mut stream = self.begin();
        let mut bytes = Vec::new();
        let reset = stream.read_to_end(&mut bytes).is_err();
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.lines();
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let rest = bytes.split_off(end + 4);
        let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        let (body, complete) = if chunked { dechunk(&rest) } else { (rest, true) };
        Some(Reply { status, headers, body, complete: complete && !reset })
    }
}

fn dechunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(end) = rest.windows(2).position(|window| window == b"\r\n") else { return (body, false) };
        let length = usize::from_str_radix(&String::from_utf8_lossy(&rest[..end]), 16).unwrap();
        rest = &rest[end + 2..];
        if length == 0 {
            return (body, true);
        }
        if rest.len() < length + 2 {
            body.extend_from_slice(&rest[..rest.len().min(length)]);
            return (body, false);
        }
        body.extend_from_slice(&rest[..length]);
        rest = &rest[length + 2..];
    }
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The envelopes of a stream: flags and message of each.
    pub(crate) fn messages(&self) -> Vec<(u8, Value)> {
        let mut rest = &self.body[..];
        let mut messages = Vec::new();
        while let [flags, a, b, c, d, tail @ ..] = rest {
            let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
            messages.push((*flags, serde_json::from_slice(&tail[..length]).expect("a message")));
            rest = &tail[length..];
        }
        assert!(rest.is_empty(), "{rest:?}");
        messages
    }
}
