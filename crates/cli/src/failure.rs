//! Why sandbar itself could not go on, in three parts: what happened, why, and what to do next.

use std::{error::Error, fmt, iter};

use sandbar::MachineError;

/// The exit code of sandbar's own failures; a command's own codes pass through.
pub(crate) const OWN: u8 = 125;

/// What is printed, as `what; why: its cause; what to do next`.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    why: Vec<String>,
    next: Option<String>,
}

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), why: Vec::new(), next: None }
    }

    /// Adds an error and everything that caused it.
    pub(crate) fn because(mut self, error: impl Error + 'static) -> Self {
        self.why.extend(chain(Some(&error)));
        self
    }

    pub(crate) fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }
}

/// An error and its causes.
fn chain(first: Option<&(dyn Error + 'static)>) -> Vec<String> {
    iter::successors(first, |error| (*error).source()).map(plain).collect()
}

/// An error in its own words; the number of a system error helps nobody who reads it in English.
fn plain(error: &(dyn Error + 'static)) -> String {
    let text = error.to_string();
    match text.split_once(" (os error ") {
        Some((words, rest)) if rest.ends_with(')') => words.to_owned(),
        _ => text,
    }
}

/// Whether what failed, failed for want of space.
fn is_full(error: &MachineError) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::StorageFull)
}

impl From<MachineError> for Failure {
    fn from(error: MachineError) -> Self {
        let next = match error.code() {
            "start" if is_full(&error) => Some("free some space, or set TMPDIR to a directory that has some"),
            "isolation" | "start" => Some("`sandbar doctor` shows what this host can enforce"),
            "gone" | "transport" => Some("run it again with -vv to see more"),
            _ => None,
        };
        Self { what: plain(&error), why: chain(error.source()), next: next.map(str::to_owned) }
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
    use std::io;

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
}
