//! A failure of the command itself, in three parts: what happened, why, and what to do next.

use std::{collections::BTreeMap, error::Error, fmt, io, iter};

use sandbar::{MachineError, SandboxError, client::registry::Unreachable};
use sandbar_runs::{ErrorKind, describe, without_number};
use serde_json::{Value, json};

/// Exit code of failures of sandbar itself; exit codes of commands are passed on.
pub(crate) const OWN: u8 = 125;

/// Exit code if a removal continues after the command stops waiting for it.
const UNFINISHED: u8 = 75;

/// A failure, printed as `what; why: its cause; what to do next`.
#[derive(Debug)]
pub(crate) struct Failure {
    code: &'static str,
    facts: BTreeMap<&'static str, Value>,
    what: String,
    why: Vec<String>,
    next: Option<String>,
}

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { code: "failed", facts: BTreeMap::new(), what: what.into(), why: Vec::new(), next: None }
    }

    /// Adds an error and everything that caused it.
    pub(crate) fn because(mut self, error: impl Error + 'static) -> Self {
        self.why.extend(chain(Some(&error)));
        self
    }

    /// Adds everything that caused an error, but not the error itself.
    pub(crate) fn causes_of(mut self, error: &(dyn Error + 'static)) -> Self {
        self.why.extend(chain(error.source()));
        self
    }

    pub(crate) fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// Replaces the first part.
    pub(crate) fn saying(mut self, what: impl Into<String>) -> Self {
        self.what = what.into();
        self
    }

    /// The failure of a cause, with the message and the next step of this failure if they say more than the cause's text.
    fn about(self, text: String, cause: Self) -> Self {
        let what = if self.what == text { cause.what } else { self.what };
        Self { what, next: self.next.or(cause.next), ..cause }
    }

    /// Removes the mention of a machine from the first part, for commands that start none.
    pub(crate) fn without_machine(mut self) -> Self {
        if let Some(rest) = self.what.strip_prefix("cannot start the machine: ") {
            self.what = rest.to_owned();
        }
        self
    }

    /// Removes the next step.
    pub(crate) fn without_next(mut self) -> Self {
        self.next = None;
        self
    }

    /// Sets the code for programs.
    pub(crate) fn code(mut self, code: &'static str) -> Self {
        self.code = code;
        self
    }

    /// The code for programs.
    pub(crate) fn name(&self) -> &'static str {
        self.code
    }

    /// Whether the code is this one.
    pub(crate) fn is(&self, code: &str) -> bool {
        self.code == code
    }

    /// The exit code, for a command whose failures usually have the code `usual`.
    pub(crate) fn exit(&self, usual: u8) -> u8 {
        if usual == 1 && self.is("still_being_removed") { UNFINISHED } else { usual }
    }

    /// The JSON document.
    pub(crate) fn document(&self) -> Value {
        json!({"error": {"code": self.code, "message": self.to_string(), "context": self.facts}})
    }
}

/// An error and its causes.
fn chain(first: Option<&(dyn Error + 'static)>) -> Vec<String> {
    let mut words: Vec<String> = iter::successors(first, |error| (*error).source()).map(describe).collect();
    // Some errors repeat the text of their cause.
    words.dedup();
    words
}

/// Whether the error was caused by a full disk.
fn is_full(error: &MachineError) -> bool {
    error.source().and_then(|cause| cause.downcast_ref()).is_some_and(has_no_room)
}

fn has_no_room(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether the error is about the state directory of machines.
fn is_about_state(error: &MachineError) -> bool {
    matches!(error, MachineError::Start { stage, .. } if stage.contains("the state directory"))
}

/// Whether an image is missing; the error then contains the next step.
fn is_missing(error: &MachineError) -> bool {
    error.to_string().contains("cannot be pulled")
}

impl From<MachineError> for Failure {
    fn from(error: MachineError) -> Self {
        Self::from(&error)
    }
}

impl From<&MachineError> for Failure {
    fn from(error: &MachineError) -> Self {
        if let Some(unreachable) = error.source().and_then(|cause| cause.downcast_ref::<Unreachable>()) {
            // The cause adds nothing.
            tracing::debug!(%unreachable, "no way to the provider");
            return Self { code: error.code(), ..Self::new(describe(error)) };
        }
        let next = match error.code() {
            "start" if is_full(error) => Some("free some space, or set TMPDIR to a directory that has some"),
            "start" if is_missing(error) => None,
            "start" if is_about_state(error) => {
                Some("set TMPDIR, or XDG_STATE_HOME for sessions, to a directory that you can write to")
            }
            "isolation" | "start" => Some("`sandbar doctor` shows what this host can enforce"),
            "unsupported" if error.to_string().contains("directories of the host") => {
                Some("copy them: with `sandbar run`, `sandbar session cp`, or a manifest's local_dir")
            }
            "gone" | "transport" => Some("run it again with -vv to see more"),
            "still_being_removed" => Some("that goes on by itself"),
            "invalid" if error.to_string().contains("its own door") => {
                Some("or set XDG_STATE_HOME to a directory outside of it")
            }
            _ => None,
        };
        let (code, what, why) = (error.code(), describe(error), chain(error.source()));
        Self { code, facts: BTreeMap::new(), what, why, next: next.map(str::to_owned) }
    }
}

impl From<sandbar_runs::Error> for Failure {
    fn from(error: sandbar_runs::Error) -> Self {
        let next = next_of_run(&error).or_else(|| error.advice().map(str::to_owned));
        let (kind, code, facts) = (error.kind(), error.code(), BTreeMap::new());
        let own = Self { code, facts, what: error.to_string(), why: chain(error.source()), next };
        match (kind, error.into_cause()) {
            (ErrorKind::Sandbox, Some(cause)) => match cause.downcast::<SandboxError>() {
                Ok(error) => own.about(describe(&error), Self::from(*error)),
                Err(_) => own,
            },
            (ErrorKind::Machine, Some(cause)) => match cause.downcast::<MachineError>() {
                Ok(error) => own.about(describe(&error), Self::from(*error)),
                Err(_) => own,
            },
            _ => own,
        }
    }
}

/// The next step after an error about a run, as an option or a command.
fn next_of_run(error: &sandbar_runs::Error) -> Option<String> {
    match error.kind() {
        ErrorKind::RunNotFound => Some("`sandbar runs ls` shows them all".to_owned()),
        ErrorKind::RunDamaged | ErrorKind::IncompleteCopy => {
            Some(format!("`sandbar runs rm {}` removes it", error.subject()?))
        }
        ErrorKind::Repository => Some("show it :ro, or add --git rw".to_owned()),
        ErrorKind::RepositoryPatch => Some("nothing was changed; --git rw allows it".to_owned()),
        ErrorKind::RepositoryLink => Some("work on a copy, show it :ro, or add --git rw".to_owned()),
        ErrorKind::RepositoryIsolation => {
            Some("leave --isolation out, show the directory :ro, or add --git rw".to_owned())
        }
        ErrorKind::TooManyRepositories => Some("show a directory with fewer repositories, or add --git rw".to_owned()),
        ErrorKind::RunKilled => Some("look at it with `sandbar diff`, and apply it with --force".to_owned()),
        ErrorKind::Destination if error.advice().is_some() => None,
        ErrorKind::Destination if error.source().is_none() => Some("give --to DIR".to_owned()),
        ErrorKind::Destination | ErrorKind::DestinationInRepository => {
            Some("give another directory with --to DIR".to_owned())
        }
        ErrorKind::NoSpace | ErrorKind::LimitExceeded | ErrorKind::IgnoreRules | ErrorKind::NotCopied => {
            Some(format!("{}, or work on the directory itself with --in-place", error.advice()?))
        }
        _ => None,
    }
}

impl From<SandboxError> for Failure {
    fn from(error: SandboxError) -> Self {
        let (code, facts) = (error.code(), error.context());
        let machine = error.source().and_then(|cause| cause.downcast_ref::<MachineError>());
        let machine = machine.filter(|machine| error.text("reason") == Some(machine.code()));
        if let Some(machine) = machine.filter(|_| code == "workspace_start_error") {
            // The error of the machine says everything.
            return Self { code, facts, ..Self::from(machine) };
        }
        let next = next(&error);
        let mut what = describe(&error);
        if next.as_deref() == Some(GRANT) {
            // The next step says the same, with the option.
            what.truncate(what.trim_end_matches("; grant it").len());
        }
        let why = error.causes().into_iter().map(|cause| without_number(&cause).to_owned()).collect();
        Self { code, facts, what, why, next }
    }
}

/// Next step for a source outside of the manifest's directory.
const GRANT: &str = "allow it with --grant HOST";

/// The next step, if it is known.
fn next(error: &SandboxError) -> Option<String> {
    let reason = error.context().remove("reason");
    let is_outside = || reason.as_ref().and_then(Value::as_str).is_some_and(|text| text.contains("outside_base_dir"));
    let is_full = || error.source().and_then(|cause| cause.downcast_ref()).is_some_and(has_no_room);
    let next = match error.code() {
        "session_damaged" => return Some(format!("`sandbar session rm {}` removes it", error.text("session")?)),
        "session_not_found" => "`sandbar session ls` shows them all",
        "session_closed" => "`sandbar session rm` removes what is left of it",
        "session_store_error" if is_full() => {
            "free some space there, or set XDG_STATE_HOME to a directory that has some"
        }
        "session_store_error" => "set XDG_STATE_HOME to a directory of your own",
        "exposed_port_unavailable" => "declare ports when the session is made: --port PORT",
        "local_dir_read_error" | "local_file_read_error" | "mount_config_invalid" if is_outside() => GRANT,
        // The cause is not in the manifest.
        "manifest_invalid" if error.source().is_some_and(|cause| cause.is::<SandboxError>()) => return None,
        "manifest_invalid" => "`sandbar manifest check FILE` lists all that is wrong",
        "workspace_archive_read_error" | "workspace_archive_write_error" | "machine_error" => {
            return of_machine(error.source()?.downcast_ref()?).map(str::to_owned);
        }
        _ => return None,
    };
    Some(next.to_owned())
}

/// The next step after an error of a machine about a file.
fn of_machine(cause: &MachineError) -> Option<&'static str> {
    match cause {
        MachineError::Gone | MachineError::Transport { .. } => {
            Some("`sandbar session ls` shows whether it is still running")
        }
        MachineError::File { action: "read", source, .. } if source.kind() == io::ErrorKind::IsADirectory => {
            Some("`sandbar session ls` lists it, and `sandbar session cp` copies it")
        }
        _ => None,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if !self.why.is_empty() {
            write!(f, "; {}", self.why.join(": "))?;
        }
        match &self.next {
            Some(next) => write!(f, "; {next}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_why_and_what_to_do_next() {
        let failure = Failure::new("cannot use --workspace x").because(io::Error::from_raw_os_error(2)).next("make it");
        assert_eq!(failure.to_string(), "cannot use --workspace x; No such file or directory; make it");
        assert_eq!(Failure::new("no").to_string(), "no");
    }

    #[test]
    fn the_causes_of_a_machines_error_are_kept() {
        let source = Box::new(io::Error::from_raw_os_error(1));
        let error = MachineError::Start { stage: "mounting proc".to_owned(), source };
        let text = Failure::from(error).to_string();
        assert!(text.starts_with("cannot start the machine: mounting proc; Operation not permitted; "), "{text}");
    }

    #[test]
    fn an_error_of_a_workspace_keeps_its_code_its_facts_and_gets_a_next_step() {
        let failure = Failure::from(SandboxError::session_not_found("x", "there is none of this id or name"));
        let document = failure.document();
        assert_eq!(document["error"]["code"], "session_not_found");
        assert_eq!(document["error"]["context"]["session"], "x");
        assert!(failure.to_string().ends_with("`sandbar session ls` shows them all"), "{failure}");
        let outside = SandboxError::local_dir_read_error("../x", ".", "outside_base_dir: it is elsewhere");
        assert!(Failure::from(outside).to_string().ends_with("allow it with --grant HOST"));
    }

    #[test]
    fn a_machine_that_cannot_be_made_speaks_for_itself() {
        let missing = MachineError::Isolation { missing: "user namespaces".to_owned(), fix: "allow them".to_owned() };
        let failure = Failure::from(SandboxError::workspace_start_error("/workspace", "isolation").because(missing));
        let text = failure.to_string();
        assert!(text.starts_with("cannot isolate the machine: user namespaces"), "{text}");
        assert_eq!(failure.document()["error"]["code"], "workspace_start_error");
    }
}
