//! Why a machine could not be set up: the step, the system's reason, and, when the host lacks something, what and how to
//! get it.

use std::io;

use sandbar_guest::protocol::BootFailure;

/// The result of a step of setting up.
pub(crate) type Setup<T> = Result<T, BootFailure>;

/// Names the step a result belongs to.
pub(crate) trait Step<T> {
    /// The step, as what could not be done: "mount /proc".
    fn step(self, step: &str) -> Setup<T>;

    /// The step, and the piece of the host that is missing if it fails.
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

/// A failure of our own finding.
pub(crate) fn refuse(stage: impl Into<String>, missing: &str, fix: &str) -> BootFailure {
    BootFailure { stage: stage.into(), errno: 0, missing: missing.to_owned(), fix: fix.to_owned() }
}
