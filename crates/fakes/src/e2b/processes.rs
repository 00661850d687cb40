//! The process table of a sandbox: each process has its pid, its input, and the streams of its output.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use sandbar_machine::{Control, Exit, ExitReason, Output, Process};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    connect::{Code, RpcError},
    sandbox::Sandbox,
};

/// Events queued for one slow listener before the process is blocked.
const WAITING_EVENTS: usize = 64;

/// An event of a process.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Stdout(Bytes),
    Stderr(Bytes),
    End(Exit),
}

/// A running process.
#[derive(Debug)]
pub(super) struct ProcessEntry {
    pub(super) pid: u32,
    pub(super) tag: Option<String>,
    /// `ProcessConfig` of the process.
    pub(super) config: Value,
    pub(super) user: String,
    pub(super) channel: Channel,
    /// Standard input or the terminal, while it is open.
    pub(super) stdin: tokio::sync::Mutex<Option<mpsc::Sender<Bytes>>>,
    pub(super) control: mpsc::Sender<Control>,
    listeners: Mutex<Vec<mpsc::Sender<Event>>>,
}

/// Connection of a process: pipes or a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    Pipes,
    Terminal,
}

impl ProcessEntry {
    /// Subscribes to the events from now on. A listener that does not read blocks the process, as in `envd`.
    pub(super) fn listen(&self) -> mpsc::Receiver<Event> {
        let (sender, receiver) = mpsc::channel(WAITING_EVENTS);
        self.listeners.lock().push(sender);
        receiver
    }

    async fn tell(&self, event: Event) {
        let listeners = self.listeners.lock().clone();
        for listener in listeners {
            let _gone_and_dropped_below = listener.send(event.clone()).await;
        }
        self.listeners.lock().retain(|listener| !listener.is_closed());
    }

    /// `ProcessInfo` of the process.
    pub(super) fn listed(&self) -> Value {
        let mut listed = json!({"config": self.config, "pid": self.pid});
        if let Some(tag) = &self.tag {
            listed["tag"] = json!(tag);
        }
        listed
    }
}

/// The table of a sandbox's processes.
#[derive(Debug, Default)]
pub(super) struct Processes {
    running: Mutex<BTreeMap<u32, Arc<ProcessEntry>>>,
    users: Mutex<BTreeSet<String>>,
}

/// A process that was just started.
pub(super) struct NewProcess {
    pub(super) pid: u32,
    pub(super) tag: Option<String>,
    pub(super) config: Value,
    pub(super) user: String,
    pub(super) channel: Channel,
    /// Output that arrived together with the pid.
    pub(super) printed: Option<Bytes>,
    pub(super) process: Process,
    pub(super) deadline: Option<Duration>,
}

impl Processes {
    /// The users that have run a process.
    pub(super) fn users(&self) -> Vec<String> {
        self.users.lock().iter().cloned().collect()
    }

    pub(super) fn list(&self) -> Vec<Arc<ProcessEntry>> {
        self.running.lock().values().cloned().collect()
    }

    /// The process that a `ProcessSelector` selects.
    pub(super) fn select(&self, selector: &Value) -> Result<Arc<ProcessEntry>, RpcError> {
        let missing = |what: &str, which: &Value| {
            RpcError::new(Code::NotFound, format!("process with {what} {which} not found").replace('"', ""))
        };
        let running = self.list();
        match (&selector["pid"], &selector["tag"]) {
            (pid @ Value::Number(number), _) => {
                let found = running.into_iter().find(|process| number.as_u64() == Some(process.pid.into()));
                found.ok_or_else(|| missing("pid", pid))
            }
            (_, tag @ Value::String(text)) => {
                let found = running.into_iter().find(|process| process.tag.as_ref() == Some(text));
                found.ok_or_else(|| missing("tag", tag))
            }
            _ => Err(RpcError::new(Code::Unimplemented, "invalid input type: a process has a pid or a tag")),
        }
    }
}

/// Adds a process to the table until it ends, and subscribes to its events.
pub(super) fn keep(sandbox: &Arc<Sandbox>, started: NewProcess) -> mpsc::Receiver<Event> {
    let NewProcess { pid, tag, config, user, channel, printed, process, deadline } = started;
    let Process { stdin, control, output, .. } = process;
    let running = Arc::new(ProcessEntry {
        pid,
        tag,
        config,
        channel,
        stdin: tokio::sync::Mutex::new(stdin),
        control,
        listeners: Mutex::default(),
        user,
    });
    let events = running.listen();
    let table = &sandbox.processes;
    table.users.lock().insert(running.user.clone());
    table.running.lock().insert(pid, running.clone());
    let sandbox = sandbox.clone();
    // The task ends with the process, and the process ends with its machine at the latest.
    tokio::spawn(async move {
        if let Some(printed) = printed.filter(|printed| !printed.is_empty()) {
            running.tell(Event::Stdout(printed)).await;
        }
        let exit = follow(&sandbox, &running, output, deadline).await;
        sandbox.processes.running.lock().remove(&pid);
        if let Some(exit) = exit {
            running.tell(Event::End(exit)).await;
        }
    });
    events
}

/// Distributes the output of a process until it exits; `None` if its machine ended first. Later output of its background
/// children is discarded, as in `envd`.
async fn follow(
    sandbox: &Sandbox,
    running: &ProcessEntry,
    mut output: mpsc::Receiver<sandbar_machine::Result<Output>>,
    deadline: Option<Duration>,
) -> Option<Exit> {
    let mut deadline = deadline.map(|after| Box::pin(tokio::time::sleep(after)));
    loop {
        tokio::select! {
            heard = output.recv() => match heard {
                Some(Ok(Output::Stdout(bytes))) => running.tell(Event::Stdout(bytes)).await,
                Some(Ok(Output::Stderr(bytes))) => running.tell(Event::Stderr(bytes)).await,
                Some(Ok(Output::Omitted(_))) => {}
                Some(Ok(Output::Exit(exit))) => return Some(exit),
                Some(Err(_)) | None => return None,
            },
            () = async { match &mut deadline { Some(timer) => timer.await, None => std::future::pending().await } } => {
                deadline = None;
                let _ended_by_itself = sandbox.signal(&running.user, "KILL", &running.pid.to_string()).await;
            }
        }
    }
}

/// The `EndEvent` of an exit.
pub(super) fn end(exit: Exit) -> Value {
    let mut end = match exit {
        Exit { code, reason: ExitReason::Exited } => {
            json!({"exitCode": code, "exited": true, "status": format!("exit status {code}")})
        }
        Exit { code, .. } => json!({"exitCode": -1, "status": format!("signal: {}", signal_name(code - 128))}),
    };
    match exit {
        Exit { code: 0, reason: ExitReason::Exited } => {
            let _omitted = end.as_object_mut().and_then(|end| end.remove("exitCode"));
        }
        _ => end["error"] = end["status"].clone(),
    }
    end
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        4 => "illegal instruction",
        6 => "aborted",
        8 => "floating point exception",
        9 => "killed",
        11 => "segmentation fault",
        13 => "broken pipe",
        14 => "alarm clock",
        15 => "terminated",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_leaves_out_what_is_zero() {
        let exit = |code, reason| end(Exit { code, reason });
        assert_eq!(exit(0, ExitReason::Exited), json!({"exited": true, "status": "exit status 0"}));
        let seven = json!({"exitCode": 7, "exited": true, "status": "exit status 7", "error": "exit status 7"});
        assert_eq!(exit(7, ExitReason::Exited), seven);
        let killed = json!({"exitCode": -1, "status": "signal: killed", "error": "signal: killed"});
        assert_eq!(exit(137, ExitReason::Signaled), killed);
    }
}
