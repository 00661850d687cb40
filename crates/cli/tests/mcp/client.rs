//! A test client that sends arbitrary lines to the MCP server.

use std::{
    cell::RefCell,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::rig::{PATIENCE, Run, Sandbar, finish};

pub(super) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    /// What was said while something else was waited for.
    early: RefCell<Vec<Value>>,
}

/// What a tool answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) is_error: bool,
    pub(super) result: Value,
}

impl Client {
    /// Starts a server and does not speak yet.
    pub(super) fn silent(sandbar: &Sandbar, options: &[&str]) -> Self {
        let mut command = sandbar.command(&[&["mcp"], options].concat());
        let mut child = command.stdin(Stdio::piped()).spawn().expect("spawn");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not the protocol: {line}"));
                if tell.send(message).is_err() {
                    return;
                }
            }
        });
        Self { child, stdin, lines, early: RefCell::default() }
    }

    /// Starts a server and shakes hands.
    pub(super) fn start(sandbar: &Sandbar, options: &[&str]) -> Self {
        let mut client = Self::silent(sandbar, options);
        client.greet();
        client
    }

    pub(super) fn greet(&mut self) -> Value {
        let who = json!({"name": "test", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": who});
        let info = self.request("hello", "initialize", &params);
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
        info
    }

    pub(super) fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("an open connection");
        stdin.write_all(format!("{line}\n").as_bytes()).expect("the server reads");
    }

    /// The next thing the server says.
    pub(super) fn hear(&self) -> Value {
        self.lines.recv_timeout(PATIENCE).expect("the server speaks")
    }

    /// Stores received messages for later requests.
    pub(super) fn keep(&self, message: Value) {
        self.early.borrow_mut().push(message);
    }

    /// What the server answers to this request.
    pub(super) fn answer(&self, id: &Value) -> Value {
        let mut early = self.early.borrow_mut();
        if let Some(at) = early.iter().position(|message| message["id"] == *id) {
            return early.remove(at);
        }
        loop {
            let message = self.hear();
            if message["id"] == *id {
                return message;
            }
            early.push(message);
        }
    }

    pub(super) fn ask(&mut self, id: &str, method: &str, params: &Value) {
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
    }

    pub(super) fn request(&mut self, id: &str, method: &str, params: &Value) -> Value {
        self.ask(id, method, params);
        self.answer(&id.into())
    }

    pub(super) fn call(&mut self, tool: &str, arguments: Value) -> Answer {
        let answer = self.request("call", "tools/call", &json!({"name": tool, "arguments": arguments}));
        let result = answer["result"].clone();
        assert!(result.is_object(), "{tool}: {answer}");
        let text = result["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        Answer { text, is_error: result["isError"] == true, result }
    }

    /// What a call says that must work.
    pub(super) fn done(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.call(tool, arguments);
        assert!(!answer.is_error, "{tool}: {answer:?}");
        answer.text
    }

    /// What a call says that must not work.
    pub(super) fn refused(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.call(tool, arguments);
        assert!(answer.is_error, "{tool}: {answer:?}");
        answer.text
    }

    /// What a command says that ends by itself, on a busy machine too.
    pub(super) fn exec(&mut self, cmd: &str) -> String {
        self.done("exec_command", json!({"cmd": cmd, "yield_time_ms": 30000}))
    }

    /// Closes the connection and waits for the end.
    pub(super) fn close(mut self) -> Run {
        drop(self.stdin.take());
        finish(self.child)
    }

    /// Sends a signal and waits for the end.
    pub(super) fn signal(self, signal: Signal) -> Run {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
        let run = finish(self.child);
        drop(self.stdin);
        run
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// The exit code that an answer of `exec_command` tells, if the command ended.
pub(super) fn code(text: &str) -> Option<i32> {
    let line = text.lines().find_map(|line| line.strip_prefix("Process exited with code "))?;
    Some(line.parse().expect("a code"))
}

/// The process that an answer of `exec_command` tells of, if it runs on.
pub(super) fn running(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Process running with session ID "))?;
    Some(line.parse().expect("an id"))
}

/// What a command printed.
pub(super) fn output(text: &str) -> &str {
    text.split_once("\nOutput:\n").expect("an output").1
}
