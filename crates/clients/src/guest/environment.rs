//! The environment of a command: a fixed base, the machine's variables, then the command's own. Nothing comes from the
//! host.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use sandbar_guest::protocol::Spawn;
use sandbar_machine::{Command, MachineError, MachinePath, NEUTRAL_ENVIRONMENT, Result};

use super::About;

const BASE: [(&str, &str); 2] =
    [("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"), ("SHELL", "/bin/sh")];

const ON_A_TERMINAL: [(&str, &str); 1] = [("TERM", "xterm-256color")];
const WITHOUT_A_TERMINAL: [(&str, &str); 2] = [("TERM", "dumb"), ("NO_COLOR", "1")];

/// Refuses a name or a value that an environment cannot contain.
pub(crate) fn check_variable(name: &OsStr, value: &OsStr) -> Result<()> {
    let bad = |reason: &str| Err(MachineError::invalid(format!("environment variable {name:?}"), reason));
    if name.is_empty() {
        return bad("has no name");
    }
    if name.as_bytes().contains(&b'=') {
        return bad("has a `=` in its name");
    }
    if name.as_bytes().contains(&0) || value.as_bytes().contains(&0) {
        return bad("contains a NUL byte");
    }
    Ok(())
}

/// A command in the guest's form, and the directory it starts in.
pub(super) fn compose(command: Command, about: &About) -> Result<(Spawn, MachinePath)> {
    if command.argv.is_empty() {
        return Err(MachineError::invalid("command", "is empty; its first argument is the program to run"));
    }
    if let Some(word) = command.argv.iter().find(|word| word.as_bytes().contains(&0)) {
        return Err(MachineError::invalid(format!("argument {word:?}"), "contains a NUL byte"));
    }
    let env = variables(&command, about)?;
    let cwd = command.cwd.unwrap_or_else(|| about.features.workspace.clone());
    let deadline = command.deadline.or(about.deadline);
    let spawn = Spawn {
        argv: command.argv.into_iter().map(OsStringExt::into_vec).collect(),
        env,
        cwd: cwd.as_bytes().to_vec(),
        user: command.user.map(user_name).transpose()?,
        tty: command.tty.map(|size| (size.rows.get(), size.cols.get())),
        stdin: command.stdin,
        deadline_ms: deadline.map_or(0, |after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX).max(1)),
        rlimits: Vec::new(),
        keep: command.keep,
        joined: command.joined,
    };
    Ok((spawn, cwd))
}

/// A user's name in the guest's form.
pub(super) fn user_name(user: String) -> Result<Vec<u8>> {
    if user.is_empty() || user.contains('\0') {
        return Err(MachineError::invalid(format!("user {user:?}"), "is not a name"));
    }
    Ok(user.into_bytes())
}

fn variables(command: &Command, about: &About) -> Result<Vec<Vec<u8>>> {
    let home = about.home.as_bytes();
    let terminal: &[(&str, &str)] = if command.tty.is_some() { &ON_A_TERMINAL } else { &WITHOUT_A_TERMINAL };
    let mut all: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
    // For another user, only the guest knows these values.
    if command.user.is_none() {
        all.extend([(b"HOME".as_slice(), home), (b"USER", b"agent"), (b"LOGNAME", b"agent")]);
    }
    all.extend(
        BASE.iter()
            .chain(&NEUTRAL_ENVIRONMENT)
            .chain(terminal)
            .map(|(name, value)| (name.as_bytes(), value.as_bytes())),
    );
    all.extend(about.env.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
    for (name, value) in &command.env {
        check_variable(name, value)?;
        all.insert(name.as_bytes(), value.as_bytes());
    }
    Ok(all.into_iter().map(|(name, value)| [name, b"=", value].concat()).collect())
}
