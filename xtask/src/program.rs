//! A program that a command of ours starts, and how its failure becomes ours.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

/// Why a command of ours ends early: what to say, if anything, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) code: u8,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1 }
    }

    /// The one who failed has said why already.
    pub(crate) fn silent(self) -> Self {
        Self { message: String::new(), ..self }
    }
}

pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

/// The repository's top directory.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The directory that cargo builds in.
pub(crate) fn target() -> PathBuf {
    // We are in its `debug` directory ourselves.
    let ours = std::env::current_exe().ok();
    let found = ours.as_deref().and_then(Path::parent).and_then(Path::parent);
    found.map_or_else(|| root().join("target"), Path::to_path_buf)
}

/// The cargo that started this program, in the top directory of the repository. The variables that cargo sets for this program
/// are removed: build scripts that watch them would rebuild everything, here and again when cargo is called directly.
pub(crate) fn cargo() -> Command {
    let mut command = at_root(cargo_from_env());
    for name in ourselves_from_env() {
        command.env_remove(name);
    }
    command
}

/// A program in the repository's top directory. No command of ours reads from standard input.
pub(crate) fn at_root(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// Without the proxies of the environment: tests talk to this host, and must not depend on where they run.
pub(crate) fn without_proxies(command: &mut Command) -> &mut Command {
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    command
}

fn cargo_from_env() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

fn ourselves_from_env() -> impl Iterator<Item = OsString> {
    let about_us = |name: &OsString| {
        ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|start| name.to_string_lossy().starts_with(start))
    };
    std::env::vars_os().map(|(name, _)| name).filter(about_us)
}

/// Runs to the end; anything but success is a failure with the same exit code (128 plus the signal, as shells count).
pub(crate) fn run(command: &mut Command) -> Result {
    let line = spelled(command);
    let status = command.status().map_err(|error| Failure::new(format!("cannot start `{line}`: {error}")))?;
    judge(status, &line)
}

/// How a program ended, as our own result.
pub(crate) fn judge(status: ExitStatus, line: &str) -> Result {
    if status.success() {
        return Ok(());
    }
    let code = status.code().or_else(|| signal(status).map(|number| 128 + number)).unwrap_or(1);
    Err(Failure { message: format!("`{line}` failed ({status})"), code: u8::try_from(code).unwrap_or(1) })
}

/// Whether a program starts and succeeds, its output thrown away.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn spelled(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(unix)]
fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal(_status: ExitStatus) -> Option<i32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_hands_on_its_exit_code() {
        let failure = run(&mut at_root("false")).expect_err("false fails");
        assert_eq!(failure.code, 1);
        assert!(failure.message.starts_with("`false` failed"), "{}", failure.message);
    }

    #[test]
    fn a_program_can_be_kept_from_the_proxies_of_the_environment() {
        let mut command = at_root("env");
        command.env("HTTPS_PROXY", "http://p:1").env("no_proxy", "*").stdout(Stdio::piped());
        let output = without_proxies(&mut command).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).to_lowercase();
        assert!(said.contains("path=") && !said.contains("_proxy="), "{said}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let failure = run(&mut at_root("no-such-program-here")).expect_err("it does not exist");
        assert!(failure.message.contains("no-such-program-here"), "{}", failure.message);
    }
}
