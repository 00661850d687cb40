//! Why a machine could not be set up: the step, the system error, and, when the host lacks something, what is missing
//! and how to fix it.

use std::io;

use sandbar_guest::protocol::BootFailure;

/// Result of a setup step.
pub(crate) type Setup<T> = Result<T, BootFailure>;

/// Adds the name of the step to an error.
pub(crate) trait Step<T> {
    /// The step in the form "mount /proc", as it follows "cannot".
    fn step(self, step: &str) -> Setup<T>;

    /// The step, and what the host lacks if the step fails.
    fn needs(self, step: &str, missing: &str, fix: &str) -> Setup<T>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: &str) -> Setup<T> {
        self.needs(step, "", "")
    }

    fn needs(self, step: &str, missing: &str, fix: &str) -> Setup<T> {
        self.map_err(|error| BootFailure {
            stage: step.to_owned(),
            errno: error.into().raw_os_error().unwrap_or_default(),
            missing: missing.to_owned(),
            fix: fix.to_owned(),
        })
    }
}

/// A failure that no system call reported.
pub(crate) fn refuse(stage: impl Into<String>, missing: &str, fix: &str) -> BootFailure {
    BootFailure { stage: stage.into(), errno: 0, missing: missing.to_owned(), fix: fix.to_owned() }
}
