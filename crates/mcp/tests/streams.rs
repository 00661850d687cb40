//! A server over a pair of streams, as a program runs it.

#![allow(clippy::expect_used, reason = "a test")]

use std::sync::Arc;

use sandbar::{Manifest, SandboxSession, SessionOptions, client::UnixLocal};
use sandbar_mcp::{Connection, Server, WorkspaceAccess};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};

struct Client {
    answers: BufReader<ReadHalf<DuplexStream>>,
    requests: WriteHalf<DuplexStream>,
}

impl Client {
    async fn send(&mut self, message: Value) {
        self.requests.write_all(format!("{message}\n").as_bytes()).await.expect("the server reads");
    }

    async fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        let mut line = String::new();
        self.answers.read_line(&mut line).await.expect("the server writes");
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(answer["id"], id, "{answer}");
        answer["result"].clone()
    }
}

#[tokio::test]
async fn a_program_serves_a_session_over_a_pair_of_streams() {
    let options = SessionOptions::new(Manifest::new());
    let session = SandboxSession::open(Arc::new(UnixLocal::new()), options).await.expect("a session");
    let (ours, theirs) = tokio::io::duplex(64);
    let (answers, requests) = tokio::io::split(ours);
    let (input, output) = tokio::io::split(theirs);
    let server = Server::new(session.clone()).workspace(WorkspaceAccess::ReadOnly);
    let served = tokio::spawn(async move { server.serve(Connection::new(input, output)).await });
    let mut client = Client { answers: BufReader::new(answers), requests };

    let info = json!({"name": "test", "version": "1"});
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
    let hello = client.ask(1, "initialize", hello).await;
    assert!(hello["instructions"].as_str().is_some_and(|text| text.contains("can only be read")), "{hello}");
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    let tools = client.ask(2, "tools/list", json!({})).await;
    assert_eq!(tools["tools"].as_array().map(Vec::len), Some(7));
    let call = json!({"name": "exec_command", "arguments": {"cmd": "echo $((6 * 7))"}});
    let answer = client.ask(3, "tools/call", call).await;
    assert!(answer["content"][0]["text"].as_str().is_some_and(|text| text.contains("42")), "{answer}");

    client.requests.shutdown().await.expect("the server is there");
    drop(client);
    served.await.expect("it ends").expect("the end of the input is the end");
    session.delete().await.expect("removed");
}
