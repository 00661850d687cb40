//! The guest's refusals as errors of the caller. Text of the guest is untrusted: it is shortened and made printable.

use std::io;

use sandbar_guest::protocol::{CWD, FailKind};
use sandbar_machine::{KEPT_PROCESSES, MachineError, MachinePath};

use super::lane::Failure;

const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const EOVERFLOW: i32 = 75;

/// Reason for an `EOVERFLOW`, for which the kernel has no text.
const WRONG_OWNER: &str = "is in a directory of the host, where only its owner, agent, can have files";

/// Maximum number of characters of a guest's text.
const MAX_TEXT: usize = 512;

/// Text from the guest with control characters replaced, so that it cannot control a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().take(MAX_TEXT).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl Failure {
    /// The error of a file operation.
    pub(super) fn about(self, action: &'static str, path: &MachinePath) -> MachineError {
        let message = printable(&self.message);
        let denied = |reason: String| MachineError::Denied { path: path.clone(), reason };
        let or = |fallback: &str| if message.is_empty() { fallback.to_owned() } else { message.clone() };
        match self.kind {
            FailKind::Errno if self.errno == EOVERFLOW => denied(WRONG_OWNER.to_owned()),
            FailKind::Errno => {
                let source = io::Error::from_raw_os_error(self.errno);
                // The message names a member of an archive, which the path does not.
                let source = match message.starts_with("member ") {
                    true => io::Error::new(source.kind(), message),
                    false => source,
                };
                MachineError::from_io(action, path, source)
            }
            FailKind::Symlink => denied("is a symbolic link".to_owned()),
            FailKind::WrongKind => {
                let source = io::Error::new(io::ErrorKind::InvalidInput, or("not a regular file"));
                MachineError::File { action, path: path.clone(), source }
            }
            FailKind::User => MachineError::invalid("user", or("no such user on this machine")),
            FailKind::Archive => denied(or("the archive holds something that must not be unpacked")),
            FailKind::Changed => MachineError::Changed(path.clone()),
            FailKind::Full => {
                let reason = format!("{path}: {}", or("the machine may not have more on disk"));
                MachineError::Exhausted { what: "the disk limit".to_owned(), reason }
            }
            FailKind::Invalid | FailKind::NoProcess | FailKind::Held => {
                MachineError::invalid(path.to_string(), or("the request is not valid now"))
            }
        }
    }

    /// The error of starting a command in `cwd`.
    pub(super) fn of_spawn(self, cwd: &MachinePath) -> MachineError {
        match (self.kind, self.errno) {
            (FailKind::Errno, EAGAIN | ENOMEM) => MachineError::Exhausted {
                what: if self.errno == EAGAIN { "processes" } else { "memory" }.to_owned(),
                reason: io::Error::from_raw_os_error(self.errno).to_string(),
            },
            (FailKind::Full, _) => {
                MachineError::Exhausted { what: KEPT_PROCESSES.to_owned(), reason: printable(&self.message) }
            }
            (FailKind::Invalid, _) => MachineError::invalid("command", printable(&self.message)),
            // A step other than entering the directory failed: the error is not about its path.
            (FailKind::Errno, _) if !["", CWD].contains(&self.message.as_str()) => MachineError::File {
                action: "start a command in",
                path: cwd.clone(),
                source: io::Error::other(printable(&self.message)),
            },
            _ => self.about("start a command in", cwd),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: FailKind, errno: i32) -> MachineError {
        let failure = Failure { kind, errno, message: String::new() };
        failure.about("read", &MachinePath::workspace())
    }

    #[test]
    fn a_refusal_becomes_the_kind_a_caller_can_branch_on() {
        let cases = [
            (FailKind::Errno, 2, "not_found"),
            (FailKind::Errno, 13, "denied"),
            (FailKind::Errno, 30, "denied"),
            (FailKind::Errno, 18, "denied"),
            (FailKind::Errno, 28, "exhausted"),
            (FailKind::Errno, 122, "exhausted"),
            (FailKind::Errno, 20, "file"),
            (FailKind::Errno, -7, "file"),
            (FailKind::Symlink, 0, "denied"),
            (FailKind::WrongKind, 0, "file"),
            (FailKind::User, 0, "invalid"),
            (FailKind::Archive, 0, "denied"),
            (FailKind::Invalid, 0, "invalid"),
            (FailKind::Changed, 0, "changed"),
            (FailKind::Full, 0, "exhausted"),
        ];
        for (kind, errno, code) in cases {
            assert_eq!(error(kind, errno).code(), code, "{kind:?} {errno}");
        }
    }

    #[test]
    fn an_archive_member_that_cannot_be_written_is_named() {
        let message = "member \"sub/file\": No space left on device".to_owned();
        let failure = Failure { kind: FailKind::Errno, errno: 28, message };
        let error = failure.about("unpack into", &MachinePath::workspace());
        assert_eq!(error.code(), "exhausted");
        assert!(error.to_string().contains("/workspace: member \"sub/file\": No space"), "{error}");
    }

    #[test]
    fn a_spawn_that_finds_no_room_is_exhausted_and_a_missing_directory_is_not_found() {
        let spawn = |errno| {
            let failure = Failure { kind: FailKind::Errno, errno, message: CWD.to_owned() };
            failure.of_spawn(&MachinePath::workspace())
        };
        let failure = Failure { kind: FailKind::Errno, errno: 1, message: "cannot limit it: not permitted".to_owned() };
        let MachineError::File { source, .. } = failure.of_spawn(&MachinePath::workspace()) else {
            panic!("a limit that cannot be set is not the directory's fault")
        };
        assert_eq!(source.to_string(), "cannot limit it: not permitted");
        assert!(matches!(spawn(EAGAIN), MachineError::Exhausted { what, .. } if what == "processes"));
        assert!(matches!(spawn(2), MachineError::NotFound(path) if path == MachinePath::workspace()));
        let full = Failure { kind: FailKind::Full, errno: 0, message: "at most 128".to_owned() };
        let text = full.of_spawn(&MachinePath::workspace()).to_string();
        assert_eq!(text, "room for kept processes is exhausted: at most 128");
    }

    #[test]
    fn text_of_the_guest_cannot_control_a_terminal() {
        assert_eq!(printable("\u{1b}[2Jhi\n"), " [2Jhi ");
        assert_eq!(printable(&"x".repeat(100_000)).len(), MAX_TEXT);
    }
}
