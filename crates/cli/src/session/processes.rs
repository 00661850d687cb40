//! `sandbar session ps` and `kill`: the commands of a session, whichever client started and holds them.

use std::ffi::OsString;

use sandbar::{Commands, Machine, MachineError, ProcessInfo, ProcessState};
use serde_json::{Value, json};

use super::{
    Home,
    list::{age, now},
};
use crate::{
    args::{KillArgs, PsArgs},
    failure::Failure,
    render::{Render, Style, inert_line},
};

/// How much of a command a line shows.
const SHOWN: usize = 100;

pub(super) async fn list(args: &PsArgs, home: &Home, render: &Render) -> Result<u8, Failure> {
    let session = home.attach(&args.session).await?;
    let processes = commands(session.machine().as_ref())?.list().await?;
    let text = if args.json {
        let processes: Vec<Value> = processes.iter().map(document).collect();
        format!("{}\n", json!({"id": session.id(), "processes": processes}))
    } else {
        table(&processes, render)
    };
    render.result(text.as_bytes())
}

pub(super) async fn kill(args: &KillArgs, home: &Home, render: &Render) -> Result<u8, Failure> {
    let session = home.attach(&args.session).await?;
    if !commands(session.machine().as_ref())?.signal(args.process, args.signal).await? {
        return Err(missing(args.process, &args.session));
    }
    if args.json {
        let document = json!({"id": session.id(), "process": args.process, "signal": args.signal.number()});
        return render.result(format!("{document}\n").as_bytes());
    }
    Ok(0)
}

/// The commands of a machine that knows them.
pub(super) fn commands(machine: &dyn Machine) -> Result<&dyn Commands, Failure> {
    machine.commands().ok_or_else(|| MachineError::Unsupported("keep commands and list them").into())
}

/// There is no such process.
pub(super) fn missing(process: sandbar::ProcessId, session: &str) -> Failure {
    let what = format!("the session {session} has no process {process}; it ended, or was never there");
    Failure::new(what).code("process_not_found").next(format!("`sandbar session ps {session}` shows what it has"))
}

/// The processes that nobody holds.
pub(super) async fn alone(machine: &dyn Machine) -> Result<Vec<ProcessInfo>, Failure> {
    let mut processes = commands(machine)?.list().await?;
    processes.retain(|info| info.state != ProcessState::Held);
    Ok(processes)
}

fn state(info: &ProcessInfo) -> (&'static str, Style) {
    match info.state {
        ProcessState::Held => ("held", Style::Good),
        ProcessState::Alone => ("alone", Style::Strong),
        ProcessState::Ended(_) => ("ended", Style::Faint),
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
        "state": state(info).0,
        "exit_code": exit_code(info),
    })
}

fn table(processes: &[ProcessInfo], render: &Render) -> String {
    let users = processes.iter().filter_map(|info| info.user.as_ref());
    let wide = users.map(|user| user.chars().count()).max().unwrap_or(0).clamp(4, 32);
    let head =
        format!("{:>7}  {:>4}  {:5}  {:>4}  {:3}  {:wide$}  COMMAND", "PROCESS", "AGE", "STATE", "EXIT", "TTY", "USER");
    let mut text = render.paint(Style::Faint, &head);
    text.push('\n');
    let now = now();
    for info in processes {
        let age = age(now.saturating_sub(i64::try_from(info.since).unwrap_or(i64::MAX)));
        let (name, style) = state(info);
        let state = render.paint(style, &format!("{name:5}"));
        let exit = exit_code(info).map_or("-".to_owned(), |code| code.to_string());
        let tty = if info.tty { "yes" } else { "no" };
        let user = inert_line(info.user.as_deref().unwrap_or("-"));
        let (id, command) = (info.id.to_string(), command(&info.argv));
        text.push_str(&format!("{id:>7}  {age:>4}  {state}  {exit:>4}  {tty:3}  {user:wide$}  {command}\n"));
    }
    text
}

/// The words in one line. What needs quotes in a shell has some, so that nobody mistakes one word for two.
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
