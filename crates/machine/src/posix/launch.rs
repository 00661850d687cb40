//! Commands for providers whose protocol carries only text: a shell on the machine does what the protocol lacks.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

use super::script;
use crate::{Command, MachineError, Result, Signal};

/// The environment variable by which [`signal_tree`] finds a command and its descendants.
pub const TREE_VARIABLE: &str = "SANDBAR_TREE";

/// A command as text, created by [`launch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Variables that are added to the machine's environment, or replace variables of it.
    pub env: BTreeMap<String, String>,
    /// Working directory. `None` if the command has none, which means the workspace, or if the directory is not UTF-8 and was
    /// added to the arguments.
    pub cwd: Option<String>,
}

/// Converts a command to text. `sh` replaces itself with the program, so a program that cannot be executed exits with 126 or
/// 127. Before that, `sh` redirects standard error if the command is [`joined`](Command::joined), sets `TERM` and `NO_COLOR`
/// unless they are set, and decodes arguments that are not UTF-8. The command and its descendants have the variable
/// [`TREE_VARIABLE`] with the value `tree`.
///
/// # Errors
/// [`MachineError::Invalid`] for a command without a program, a NUL byte, or an invalid name of a variable.
pub fn launch(command: &Command, tree: &str) -> Result<Launch> {
    check(command)?;
    let mut env = BTreeMap::from([(TREE_VARIABLE.to_owned(), tree.to_owned())]);
    let mut arguments: Vec<OsString> = Vec::new();
    for (name, value) in &command.env {
        match (name.to_str(), value.to_str()) {
            (Some(name), Some(value)) => {
                env.insert(name.to_owned(), value.to_owned());
            }
            _ => arguments.push([name, OsStr::new("="), value].into_iter().collect()),
        }
    }
    if !arguments.is_empty() {
        arguments.insert(0, "env".into());
    }
    arguments.extend(command.argv.iter().cloned());
    let cwd = command.cwd.as_ref().map(|cwd| cwd.as_os_str().to_owned());
    // The directory is the first argument; it is empty if the protocol carries the directory.
    let (cwd, inside) = match cwd.map(OsString::into_string) {
        None => (None, OsString::new()),
        Some(Ok(cwd)) => (Some(cwd), OsString::new()),
        Some(Err(bytes)) => (None, bytes),
    };
    arguments.insert(0, inside);
    let texts: Option<Vec<String>> = arguments.iter().map(|bytes| bytes.to_str().map(str::to_owned)).collect();
    let modes = [
        if command.joined { "joined" } else { "apart" },
        if command.tty.is_some() { "terminal" } else { "pipes" },
        if texts.is_some() { "plain" } else { "escaped" },
    ];
    let mut argv = ["sh", "-c", script::LAUNCH, "sh", &modes.join(",")].map(str::to_owned).to_vec();
    argv.extend(texts.unwrap_or_else(|| arguments.iter().map(|bytes| escaped(bytes)).collect()));
    Ok(Launch { argv, env, cwd })
}

/// A command that sends a signal to every process with this value of [`TREE_VARIABLE`], including daemons. A kill is repeated
/// until no such process exists. Processes that cleared their environment or run as another user are not found.
#[must_use]
pub fn signal_tree(tree: &str, signal: Signal) -> Command {
    let mark = format!("{TREE_VARIABLE}={tree}");
    let number = signal.number().to_string();
    Command::new(["sh", "-c", script::SIGNAL_TREE, "sh", &mark, &number]).cwd(crate::MachinePath::root())
}

fn check(command: &Command) -> Result<()> {
    let bad = |what: String, reason: &str| Err(MachineError::invalid(what, reason));
    let has_nul = |text: &OsStr| text.as_bytes().contains(&0);
    if command.argv.first().is_none_or(|program| program.is_empty()) {
        return bad("command".to_owned(), "is empty; its first argument is the program to run");
    }
    if let Some(argument) = command.argv.iter().find(|argument| has_nul(argument)) {
        return bad(format!("argument {argument:?}"), "contains a NUL byte");
    }
    let is_wrong = |name: &OsStr| name.is_empty() || name.as_bytes().contains(&b'=') || has_nul(name);
    match command.env.iter().find(|(name, value)| is_wrong(name) || has_nul(value)) {
        Some((name, _)) => bad(format!("environment variable {name:?}"), "has no name, a `=` in it, or a NUL byte"),
        None => Ok(()),
    }
}

/// Escapes bytes so that `%b` of `printf` decodes them.
fn escaped(bytes: &OsStr) -> String {
    let mut text = String::new();
    for byte in bytes.as_bytes() {
        match byte {
            b'\\' | 0..0x20 | 0x7f.. => text.push_str(&format!("\\0{byte:03o}")),
            plain => text.push(char::from(*plain)),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MachinePath, TerminalSize};

    fn arguments(launch: &Launch) -> Vec<&str> {
        launch.argv[4..].iter().map(String::as_str).collect()
    }

    #[test]
    fn text_is_passed_as_it_is_and_other_bytes_are_escaped() {
        let workspace = MachinePath::workspace();
        let plain = launch(&Command::new(["a", "b c"]).env("X", "ü").cwd(workspace), "t1").unwrap();
        assert_eq!(arguments(&plain), ["apart,pipes,plain", "", "a", "b c"]);
        assert_eq!(plain.cwd.as_deref(), Some("/workspace"));
        assert_eq!(plain.env, BTreeMap::from([("SANDBAR_TREE", "t1"), ("X", "ü")].map(|(n, v)| (n.into(), v.into()))));
        let odd = OsStr::from_bytes(b"/\xff\\\n");
        let command = Command::new([OsStr::new("a"), odd]).env("X", odd).cwd(MachinePath::new(odd).unwrap()).joined();
        let escaped = launch(&command.tty(TerminalSize::default()), "t1").unwrap();
        let odd = "/\\0377\\0134\\0012";
        assert_eq!(arguments(&escaped), ["joined,terminal,escaped", odd, "env", &format!("X={odd}"), "a", odd]);
        assert_eq!((escaped.cwd, escaped.env.len()), (None, 1));
    }

    #[test]
    fn arguments_and_variables_that_no_process_can_have_are_refused() {
        let none = Command::new(Vec::<OsString>::new());
        let env = |name: &str, value: &str| Command::new(["a"]).env(name, value);
        for command in
            [none, Command::new([""]), Command::new(["a", "\0"]), env("", "x"), env("a=", ""), env("a", "\0")]
        {
            assert_eq!(launch(&command, "t").unwrap_err().code(), "invalid", "{command:?}");
        }
    }
}
