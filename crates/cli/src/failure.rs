//! Why sandbar itself could not go on, in three parts: what happened, why, and what to do next.

use std::{collections::BTreeMap, error::Error, fmt, io, iter};

use sandbar::{MachineError, SandboxError, client::docker::Unreachable};
use serde_json::{Value, json};

/// The exit code of sandbar's own failures; a command's own codes pass through.
pub(crate) const OWN: u8 = 125;

/// The exit code where something is still being removed when a command stops waiting for it.
const UNFINISHED: u8 = 75;

/// What is printed, as `what; why: its cause; what to do next`.
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

    /// The same, told as this.
    pub(crate) fn saying(mut self, what: impl Into<String>) -> Self {
        self.what = what.into();
        self
    }

    /// The same where no machine was to be started.
    pub(crate) fn without_machine(mut self) -> Self {
        if let Some(rest) = self.what.strip_prefix("cannot start the machine: ") {
            self.what = rest.to_owned();
        }
        self
    }

    /// The same without a next step.
    pub(crate) fn without_next(mut self) -> Self {
        self.next = None;
        self
    }

    /// Names it for programs.
    pub(crate) fn code(mut self, code: &'static str) -> Self {
        self.code = code;
        self
    }

    /// What programs call it.
    pub(crate) fn name(&self) -> &'static str {
        self.code
    }

    /// Whether it is called this.
    pub(crate) fn is(&self, code: &str) -> bool {
        self.code == code
    }

    /// The exit code, where a command's failures usually have this one.
    pub(crate) fn exit(&self, usual: u8) -> u8 {
        if usual == 1 && self.is("still_being_removed") { UNFINISHED } else { usual }
    }

    /// The document that programs get.
    pub(crate) fn document(&self) -> Value {
        json!({"error": {"code": self.code, "message": self.to_string(), "context": self.facts}})
    }
}

/// An error and its causes.
fn chain(first: Option<&(dyn Error + 'static)>) -> Vec<String> {
    let mut words: Vec<String> = iter::successors(first, |error| (*error).source()).map(plain).collect();
    // Some say what their cause says.
    words.dedup();
    words
}

/// An error in its own words; the number of a system error helps nobody who reads it in English.
fn plain(error: &(dyn Error + 'static)) -> String {
    without_number(&error.to_string())
}

pub(crate) fn without_number(text: &str) -> String {
    match text.split_once(" (os error ") {
        Some((words, rest)) if rest.ends_with(')') => words.to_owned(),
        _ => text.to_owned(),
    }
}

/// Whether what failed, failed for want of space.
fn is_full(error: &MachineError) -> bool {
    error.source().and_then(|cause| cause.downcast_ref()).is_some_and(has_no_room)
}

fn has_no_room(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether the directory for what machines keep could not be used.
fn is_about_state(error: &MachineError) -> bool {
    matches!(error, MachineError::Start { stage, .. } if stage.contains("the state directory"))
}

/// Whether an image is missing, and the error says itself what to do.
fn is_missing(error: &MachineError) -> bool {
    error.to_string().contains("cannot be pulled")
}

impl From<MachineError> for Failure {
    fn from(error: MachineError) -> Self {
        if let Some(unreachable) = error.source().and_then(|cause| cause.downcast_ref::<Unreachable>()) {
            // The system's own words add nothing to it.
            tracing::debug!(%unreachable, "no engine");
            return Self { code: error.code(), ..Self::new(plain(&error)) };
        }
        let next = match error.code() {
            "start" if is_full(&error) => Some("free some space, or set TMPDIR to a directory that has some"),
            "start" if is_missing(&error) => None,
            "start" if is_about_state(&error) => {
                Some("set TMPDIR, or XDG_STATE_HOME for sessions, to a directory that you can write to")
            }
            "isolation" | "start" => Some("`sandbar doctor` shows what this host can enforce"),
            "gone" | "transport" => Some("run it again with -vv to see more"),
            "still_being_removed" => Some("that goes on by itself"),
            "invalid" if error.to_string().contains("its own door") => {
                Some("or set XDG_STATE_HOME to a directory outside of it")
            }
            _ => None,
        };
        let (code, what, why) = (error.code(), plain(&error), chain(error.source()));
        Self { code, facts: BTreeMap::new(), what, why, next: next.map(str::to_owned) }
    }
}

impl From<SandboxError> for Failure {
    fn from(error: SandboxError) -> Self {
        let (code, facts) = (error.code(), error.context());
        let error = match error {
            // What the machine says is all there is to say.
            SandboxError::WorkspaceStart { source: Some(source), path, reason } => {
                match source.downcast::<MachineError>() {
                    Ok(machine) if machine.code() == reason => return Self { code, facts, ..Self::from(*machine) },
                    Ok(machine) => SandboxError::workspace_start_error(path, reason).because(*machine),
                    Err(source) => SandboxError::workspace_start_error(path, reason).because(source),
                }
            }
            other => other,
        };
        let next = next(&error);
        let mut what = plain(&error);
        if next.as_deref() == Some(GRANT) {
            // Said twice otherwise, and better the second time.
            what.truncate(what.trim_end_matches("; grant it").len());
        }
        let why = error.causes().into_iter().map(|cause| without_number(&cause)).collect();
        Self { code, facts, what, why, next }
    }
}

/// What to do about a source that lies elsewhere.
const GRANT: &str = "allow it with --grant HOST";

/// What to do about it, where that is known.
fn next(error: &SandboxError) -> Option<String> {
    if let SandboxError::SessionDamaged { session, .. } = error {
        return Some(format!("`sandbar session rm {session}` removes it"));
    }
    let reason = error.context().remove("reason");
    let is_outside = || reason.as_ref().and_then(Value::as_str).is_some_and(|text| text.contains("outside_base_dir"));
    let is_full = || error.source().and_then(|cause| cause.downcast_ref()).is_some_and(has_no_room);
    let next = match error.code() {
        "session_not_found" => "`sandbar session ls` shows them all",
        "session_closed" => "`sandbar session rm` removes what is left of it",
        "session_store_error" if is_full() => {
            "free some space there, or set XDG_STATE_HOME to a directory that has some"
        }
        "session_store_error" => "set XDG_STATE_HOME to a directory of your own",
        "exposed_port_unavailable" => "declare ports when the session is made: --port PORT",
        "local_dir_read_error" | "local_file_read_error" | "mount_config_invalid" if is_outside() => GRANT,
        // Nobody can tell from the manifest alone.
        "manifest_invalid" if error.source().is_some_and(|cause| cause.is::<SandboxError>()) => return None,
        "manifest_invalid" => "`sandbar manifest check FILE` lists all that is wrong",
        "workspace_archive_read_error" | "workspace_archive_write_error" | "machine_error" => {
            return of_machine(error.source()?.downcast_ref()?).map(str::to_owned);
        }
        _ => return None,
    };
    Some(next.to_owned())
}

/// What to do about something that a machine said of a file.
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
