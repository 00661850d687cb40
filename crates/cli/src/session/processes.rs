//! `sandbar session ps` and `kill`: the commands of a session, of all clients.

use std::ffi::OsString;

use sandbar::{
    Machine, MachineError,
    machine::{Commands, ProcessInfo, ProcessState},
};
use serde_json::{Value, json};

use super::{Sessions, list::now};
use crate::{
    args::{KillArgs, PsArgs},
    failure::Failure,
    render::{Render, Style, inert_line},
    view::units::age,
};

/// Maximum number of characters of a command in a line.
const SHOWN: usize = 100;

pub(super) async fn list(args: &PsArgs, sessions: &Sessions, render: &Render) -> Result<u8, Failure> {
    let session = sessions.attach(&args.session).await?;
    let processes = commands(session.machine().as_ref())?.list().await?;
    let text = if args.json {
        let processes: Vec<Value> = processes.iter().map(document).collect();
        format!("{}\n", json!({"id": session.id(), "processes": processes}))
    } else {
        table(&processes, render)
    };
    render.result(text.as_bytes())
}

pub(super) async fn kill(args: &KillArgs, sessions: &Sessions, render: &Render) -> Result<u8, Failure> {
    let session = sessions.attach(&args.session).await?;
    if !commands(session.machine().as_ref())?.signal(args.process, args.signal).await? {
        return Err(missing(args.process, &args.session));
    }
    if args.json {
        let document = json!({"id": session.id(), "process": args.process, "signal": args.signal.number()});
        return render.result(format!("{document}\n").as_bytes());
    }
    Ok(0)
}

/// The command list of a machine, if the machine supports it.
pub(super) fn commands(machine: &dyn Machine) -> Result<&dyn Commands, Failure> {
    machine.commands().ok_or_else(|| MachineError::Unsupported("keep commands and list them").into())
}

/// The failure for a process that does not exist.
pub(super) fn missing(process: sandbar::machine::ProcessId, session: &str) -> Failure {
    let what = format!("session {session} has no process {process}; the process has ended or never existed");
    Failure::new(what).code("process_not_found").next(format!("`sandbar session ps {session}` lists its processes"))
}

/// Processes without a client, including exited ones.
pub(super) async fn without_client(machine: &dyn Machine) -> Result<Vec<ProcessInfo>, Failure> {
    let mut processes = commands(machine)?.list().await?;
    processes.retain(|info| info.state != ProcessState::Held);
    Ok(processes)
}

/// Name of the state in JSON.
fn state_key(info: &ProcessInfo) -> &'static str {
    match info.state {
        ProcessState::Held => "held",
        ProcessState::Alone => "alone",
        ProcessState::Ended(_) => "ended",
    }
}

/// Name of the state in the table.
fn state(info: &ProcessInfo) -> (&'static str, Style) {
    match info.state {
        ProcessState::Held => ("attached", Style::Good),
        ProcessState::Alone => ("detached", Style::Strong),
        ProcessState::Ended(_) => ("exited", Style::Faint),
    }
}

fn exit_code(info: &ProcessInfo) -> Option<i32> {
    match info.state {
        ProcessState::Ended(exit) => Some(exit.code),
        ProcessState::Held | ProcessState::Alone => None,
    }
}

fn document(info: &ProcessInfo) -> Value {
    let command: Vec<_> = info.argv.iter().map(|word| word.to_string_lossy()).collect();
    json!({
        "process": info.id,
        "command": command,
        "user": info.user,
        "tty": info.tty,
        "detached": info.kept,
        "since": info.since,
        "state": state_key(info),
        "exit_code": exit_code(info),
    })
}

fn table(processes: &[ProcessInfo], render: &Render) -> String {
    let users = processes.iter().filter_map(|info| info.user.as_ref());
    let wide = users.map(|user| user.chars().count()).max().unwrap_or(0).clamp(4, 32);
    let head =
        format!("{:>7}  {:>4}  {:8}  {:>4}  {:3}  {:wide$}  COMMAND", "PROCESS", "AGE", "STATE", "EXIT", "TTY", "USER");
    let mut text = render.paint(Style::Faint, &head);
    text.push('\n');
    let now = now();
    for info in processes {
        let age = age(now.saturating_sub(i64::try_from(info.since).unwrap_or(i64::MAX)));
        let (name, style) = state(info);
        let state = render.paint(style, &format!("{name:8}"));
        let exit = exit_code(info).map_or("-".to_owned(), |code| code.to_string());
        let tty = if info.tty { "yes" } else { "no" };
        let user = inert_line(info.user.as_deref().unwrap_or("-"));
        let (id, command) = (info.id.to_string(), command(&info.argv));
        text.push_str(&format!("{id:>7}  {age:>4}  {state}  {exit:>4}  {tty:3}  {user:wide$}  {command}\n"));
    }
    text
}

/// The arguments in one line, quoted as for a shell.
fn command(argv: &[OsString]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    let words = argv.iter().map(|word| {
        let word = inert_line(&word.to_string_lossy());
        if !word.is_empty() && word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
    });
    let line = words.collect::<Vec<_>>().join(" ");
    if line.chars().count() <= SHOWN {
        return line;
    }
    line.chars().take(SHOWN - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_one_short_line() {
        let line = |words: &[&str]| command(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(line(&["sh", "-c", "echo 'a b'"]), r"sh -c 'echo '\''a b'\'''");
        assert_eq!(line(&["x", ""]), "x ''");
        assert!(!line(&["x\n\u{1b}[2J"]).contains(['\n', '\u{1b}']));
        assert_eq!(line(&[&"y".repeat(5000)]).chars().count(), SHOWN);
    }
}
