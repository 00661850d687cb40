//! Requests about running processes: input, signals, terminal sizes, and the list of processes.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use sandbar_machine::Control;
use serde_json::{Value, json};

use super::{
    connect::{Code, Envelopes, RpcError},
    processes::{Channel, ProcessEntry},
    sandbox::Sandbox,
    start::size,
};

type Answer = Result<Value, RpcError>;

pub(super) fn list(sandbox: &Sandbox) -> Answer {
    let listed: Vec<_> = sandbox.processes.list().iter().map(|process| process.listed()).collect();
    Ok(if listed.is_empty() { json!({}) } else { json!({"processes": listed}) })
}

pub(super) async fn send(sandbox: &Sandbox, request: &Value) -> Answer {
    let process = sandbox.processes.select(&request["process"])?;
    write(&process, &request["input"]).await?;
    Ok(json!({}))
}

/// Streamed input: the first message selects the process, the others carry data.
pub(super) async fn send_stream(sandbox: &Sandbox, mut messages: Envelopes) -> Answer {
    let mut process = None;
    while let Some(message) = messages.next().await? {
        if message["start"].is_object() {
            process = Some(sandbox.processes.select(&message["start"]["process"])?);
        } else if message["data"].is_object() {
            let process = process.as_ref();
            let process = process.ok_or_else(|| RpcError::new(Code::InvalidArgument, "input before its process"))?;
            write(process, &message["data"]["input"]).await?;
        } else if !message["keepalive"].is_object() {
            return Err(RpcError::new(Code::Unimplemented, "invalid event type"));
        }
    }
    Ok(json!({}))
}

pub(super) async fn close_stdin(sandbox: &Sandbox, request: &Value) -> Answer {
    let process = sandbox.processes.select(&request["process"])?;
    if process.channel == Channel::Terminal {
        let message = "error closing stdin: cannot close stdin of a PTY process, send Ctrl+D (0x04) instead";
        return Err(RpcError::new(Code::FailedPrecondition, message));
    }
    drop(process.stdin.lock().await.take());
    Ok(json!({}))
}

pub(super) async fn signal(sandbox: &Sandbox, request: &Value) -> Answer {
    let process = sandbox.processes.select(&request["process"])?;
    let signal = match (&request["signal"], request["signal"].as_u64()) {
        (Value::String(name), _) if name == "SIGNAL_SIGKILL" => "KILL",
        (Value::String(name), _) if name == "SIGNAL_SIGTERM" => "TERM",
        (_, Some(9)) => "KILL",
        (_, Some(15)) => "TERM",
        (other, _) => return Err(RpcError::new(Code::Unimplemented, format!("invalid signal: {other}"))),
    };
    sandbox.signal(&process.user, signal, &process.pid.to_string()).await?;
    Ok(json!({}))
}

pub(super) async fn update(sandbox: &Sandbox, request: &Value) -> Answer {
    let process = sandbox.processes.select(&request["process"])?;
    if request["pty"].is_object() {
        if process.channel == Channel::Pipes {
            return Err(RpcError::new(Code::Internal, "error resizing tty: tty not assigned to process"));
        }
        let _ended = process.control.send(Control::Resize(size(&request["pty"]))).await;
    }
    Ok(json!({}))
}

async fn write(process: &ProcessEntry, input: &Value) -> Result<(), RpcError> {
    let unfit = |message: &str| RpcError::new(Code::FailedPrecondition, message);
    let (field, channel) = match (&input["stdin"], &input["pty"]) {
        (Value::String(stdin), _) => (stdin, Channel::Pipes),
        (_, Value::String(pty)) => (pty, Channel::Terminal),
        _ => return Err(RpcError::new(Code::Unimplemented, "invalid input type")),
    };
    match (channel, process.channel) {
        (Channel::Pipes, Channel::Terminal) => {
            return Err(unfit("error writing to stdin: tty assigned to process"));
        }
        (Channel::Terminal, Channel::Pipes) => {
            return Err(unfit("error writing to tty: tty not assigned to process"));
        }
        _ => {}
    }
    let bytes = STANDARD.decode(field).map_err(|error| RpcError::new(Code::InvalidArgument, error.to_string()))?;
    let stdin = process.stdin.lock().await.clone();
    let Some(stdin) = stdin else { return Err(unfit("error writing to stdin: stdin not enabled or closed")) };
    if bytes.is_empty() {
        return Ok(());
    }
    stdin.send(Bytes::from(bytes)).await.map_err(|_closed| unfit("error writing to stdin: broken pipe"))
}
