//! Waits until the files of a machine are removed, with notes on standard error and a time limit.

use std::time::Duration;

use sandbar::MachineError;
use sandbar_runs::sessions::{RemovalPatience, until_removed};
use tokio::time::Instant;

use crate::{failure::Failure, render::Render};

/// Time limit of one command for all its removals.
const PATIENCE: Duration = Duration::from_secs(600);
/// Delay of the first note about a long removal, and interval of the next notes.
const FIRST_NOTE: Duration = Duration::from_secs(3);
const NEXT_NOTE: Duration = Duration::from_secs(30);

/// The removals of one command, which share a time limit.
pub(super) struct Removals<'a> {
    /// `None` with `--json`.
    notes: Option<&'a Render>,
    until: Instant,
}

impl<'a> Removals<'a> {
    /// Waits up to the time limit.
    pub(super) fn patient(render: &'a Render, json: bool) -> Self {
        Self { notes: (!json).then_some(render), until: Instant::now() + PATIENCE }
    }

    /// Waits only for the first request of each removal.
    pub(super) fn hurried(render: &'a Render, json: bool) -> Self {
        Self { until: Instant::now(), ..Self::patient(render, json) }
    }

    /// Repeats a request until the removal is done, has failed, or the time is over.
    pub(super) async fn wait<F>(&self, what: &str, request: impl Fn() -> F) -> Result<(), MachineError>
    where
        F: Future<Output = Result<(), MachineError>>,
    {
        let patience = RemovalPatience { until: self.until, first_report: FIRST_NOTE, next_report: NEXT_NOTE };
        until_removed(patience, request, |waited| self.note(what, waited)).await
    }

    fn note(&self, what: &str, waited: Duration) {
        if let Some(render) = self.notes {
            let seconds = waited.as_secs();
            render.note(&format!("waiting for {seconds} seconds until the files of {what} are removed"));
        }
    }
}

/// The failure of `sandbar session COMMAND` to end a session.
pub(super) fn failure(command: &str, id: &str, error: MachineError) -> Failure {
    let code = error.code();
    let failure = match error {
        MachineError::StillBeingRemoved { .. } => {
            let next = format!("that goes on by itself; `sandbar session {command} {id}` waits for it again");
            Failure::new(format!("the session {id} has ended, and its files are still being removed"))
                .because(error)
                .next(next)
        }
        MachineError::Unresponsive { .. } => Failure::new(format!("cannot end the session {id}")).because(error),
        error if command == "rm" => {
            let next = "try again, or forget it with --force";
            Failure::new(format!("cannot remove the session {id}")).because(error).next(next)
        }
        error => Failure::new(format!("cannot {command} the session {id}")).because(error).next("try again"),
    };
    failure.code(code)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn late() -> MachineError {
        MachineError::StillBeingRemoved { what: "machine x".to_owned(), waited: Duration::from_secs(30) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_removal_that_takes_long_is_waited_for() {
        let render = Render::default();
        let requests = Cell::new(0);
        let request = || async {
            tokio::time::sleep(Duration::from_secs(30)).await;
            requests.set(requests.get() + 1);
            if requests.get() < 5 { Err(late()) } else { Ok(()) }
        };
        Removals::patient(&render, true).wait("x", request).await.expect("removed");
        assert_eq!(requests.get(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_takes_too_long_is_told_as_still_going_on() {
        let render = Render::default();
        let request = || async {
            tokio::time::sleep(Duration::from_secs(30)).await;
            Err(late())
        };
        let error = Removals::patient(&render, true).wait("x", request).await.expect_err("late");
        assert_eq!(error.to_string(), "machine x is still being removed after 600 seconds");
        let failure = failure("rm", "abcd", error);
        assert_eq!((failure.document()["error"]["code"].as_str(), failure.exit(1)), (Some("still_being_removed"), 75));
        assert!(failure.to_string().ends_with("`sandbar session rm abcd` waits for it again"), "{failure}");
        let error = Removals::hurried(&render, true).wait("x", request).await.expect_err("late");
        assert_eq!(error.to_string(), "machine x is still being removed after 30 seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_fails_is_not_tried_again() {
        let render = Render::default();
        let source = || std::io::Error::from(std::io::ErrorKind::ReadOnlyFilesystem);
        let request = || async { Err(MachineError::NotRemoved { what: "machine x".to_owned(), source: source() }) };
        let error = Removals::patient(&render, true).wait("x", request).await.expect_err("fails");
        let failure = failure("rm", "abcd", error);
        assert_eq!((failure.document()["error"]["code"].as_str(), failure.exit(1)), (Some("not_removed"), 1));
    }
}
