//! Lists the commands of a guest and signals them. What the guest answers is untrusted.

use std::{ffi::OsString, os::unix::ffi::OsStringExt, sync::Arc, time::Duration};

use sandbar_guest::protocol::{self, FailKind, Open, ProcessRecord, WireError};
use sandbar_machine::{Exit, MachineError, MachinePath, ProcessId, ProcessInfo, ProcessState, Result, Signal};

use super::{
    channel::Channel,
    failure::printable,
    lane::{Incoming, Shape},
    link::Link,
    process::{UNEXPECTED_ANSWER, reason},
};

/// How long the guest may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum length of the list in bytes: thousands of commands.
const MAX_LIST: usize = 4 << 20;

/// The commands of the machine, sorted by id.
pub(super) async fn list(link: &Arc<Link>) -> Result<Vec<ProcessInfo>> {
    const ACTION: &str = "list processes";
    let channel = Channel::open(link, Shape::Records, 1 << 20, Open::Processes).await?;
    let mut all = Vec::new();
    loop {
        match channel.answer(ACTION, PATIENCE).await? {
            Incoming::Data(bytes) if all.len() + bytes.len() <= MAX_LIST => {
                all.extend_from_slice(&bytes);
                channel.taken(bytes.len());
            }
            Incoming::Data(_) => return Err(link.violated(ACTION, WireError("its list of processes is too long"))),
            Incoming::Done => break,
            Incoming::Fail(failure) => return Err(failure.about(ACTION, &MachinePath::root())),
            _ => return Err(MachineError::transport(ACTION, UNEXPECTED_ANSWER)),
        }
    }
    let records = ProcessRecord::decode_all(&all).map_err(|how| link.violated(ACTION, how))?;
    Ok(records.into_iter().map(info).collect())
}

/// Sends a signal; `false` if there is no such command.
pub(super) async fn signal(link: &Arc<Link>, process: ProcessId, signal: Signal) -> Result<bool> {
    const ACTION: &str = "signal a process";
    let channel = Channel::open(link, Shape::Plain, 0, Open::Signal(process.0, signal.number())).await?;
    match channel.answer(ACTION, PATIENCE).await? {
        Incoming::Done => Ok(true),
        Incoming::Fail(failure) if failure.kind == FailKind::NoProcess => Ok(false),
        Incoming::Fail(failure) => Err(failure.about(ACTION, &MachinePath::root())),
        _ => Err(MachineError::transport(ACTION, UNEXPECTED_ANSWER)),
    }
}

fn info(record: ProcessRecord) -> ProcessInfo {
    ProcessInfo {
        id: ProcessId(record.id),
        argv: record.argv.into_iter().map(OsString::from_vec).collect(),
        user: record.user.map(|user| printable(&String::from_utf8_lossy(&user))),
        tty: record.tty,
        kept: record.kept,
        since: record.since,
        state: match record.state {
            protocol::ProcessState::Held => ProcessState::Held,
            protocol::ProcessState::Alone => ProcessState::Alone,
            protocol::ProcessState::Ended(code, how) => ProcessState::Ended(Exit { code, reason: reason(how) }),
        },
    }
}
