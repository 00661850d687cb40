//! Retry rules for failed model calls: the transport's own, and the run's, which comes on top.

use std::time::Duration;

use crate::{ModelError, Retry, RetryOn};

/// Longest `Retry-After` that is respected; a longer one ends the retries.
const LONGEST_WISH: Duration = Duration::from_secs(120);

/// How often the transport retries.
const TRANSPORT_RETRIES: u32 = 2;
const TRANSPORT_FIRST: Duration = Duration::from_millis(500);
const TRANSPORT_LONGEST: Duration = Duration::from_secs(8);

/// How often the transport retries while another request locks the conversation.
const LOCKED_RETRIES: u32 = 3;
const LOCKED_FIRST: Duration = Duration::from_secs(1);

/// A failed attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure<'a> {
    pub(crate) error: &'a ModelError,
    /// Number of retries so far.
    pub(crate) retries: u32,
    /// Whether part of a reply was shown.
    pub(crate) seen_output: bool,
    /// Whether the server keeps the conversation, so that a retry could be recorded twice.
    pub(crate) stateful: bool,
}

/// How long a run waits before a retry, by its policy; `None` if it must not retry. `chance` is from 0 to 1.
pub(crate) fn decide(policy: &Retry, failure: &Failure<'_>, chance: f64) -> Option<Duration> {
    let Failure { error, retries, seen_output, stateful } = *failure;
    let shown = seen_output || matches!(error, ModelError::AfterOutput { .. });
    // A server that rejects a request has not recorded it. If there was no answer, that is unknown.
    let safe = !stateful || matches!(error, ModelError::Status { .. });
    if retries >= policy.max_retries || shown || !safe || !policy.on.iter().any(|reason| reason.covers(error)) {
        return None;
    }
    match error.retry_after() {
        Some(wish) => Some(wish).filter(|wish| *wish <= LONGEST_WISH),
        None => Some(scaled(backoff(policy, retries), 0.875 + 0.25 * unit(chance))),
    }
}

impl RetryOn {
    fn covers(&self, error: &ModelError) -> bool {
        match self {
            Self::Suggested => error.retryable(),
            Self::Network => matches!(error, ModelError::Network { .. } | ModelError::Timeout(_)),
            Self::RetryAfter => error.retry_after().is_some(),
            Self::Status(statuses) => {
                matches!(error, ModelError::Status { status, .. } if statuses.contains(status))
            }
        }
    }
}

fn backoff(policy: &Retry, retries: u32) -> Duration {
    let factor = policy.multiplier.max(1.0).powf(f64::from(retries));
    let wait = policy.initial.as_secs_f64() * factor;
    Duration::try_from_secs_f64(wait).unwrap_or(policy.max).min(policy.max)
}

/// The number itself if it is from 0 to 1, otherwise 0.5.
fn unit(chance: f64) -> f64 {
    if (0.0..=1.0).contains(&chance) { chance } else { 0.5 }
}

fn scaled(wait: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(wait.as_secs_f64() * factor).unwrap_or(wait)
}

/// Attempts of the transport for one request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attempts {
    again: u32,
    locked: u32,
}

impl Attempts {
    /// Number of failed requests.
    pub(crate) fn failed(self) -> u32 {
        self.again + self.locked
    }

    /// How long the transport waits before a retry; `None` if it must not retry. Counts the retry.
    pub(crate) fn again(&mut self, error: &ModelError, chance: f64) -> Option<Duration> {
        if is_locked(error) {
            let wait = LOCKED_FIRST.saturating_mul(1 << self.locked.min(10));
            self.locked += 1;
            return (self.locked <= LOCKED_RETRIES).then_some(wait);
        }
        let transient =
            matches!(error, ModelError::Status { .. } | ModelError::Network { .. } | ModelError::Timeout(_));
        if !transient || !error.retryable() || self.again >= TRANSPORT_RETRIES {
            return None;
        }
        let wait = match error.retry_after() {
            Some(wish) if wish > LONGEST_WISH => return None,
            Some(wish) => wish,
            None => {
                let wait = TRANSPORT_FIRST.saturating_mul(1 << self.again.min(10)).min(TRANSPORT_LONGEST);
                scaled(wait, 1.0 - 0.25 * unit(chance))
            }
        };
        self.again += 1;
        Some(wait)
    }
}

/// Whether another request locks the conversation, which is temporary.
fn is_locked(error: &ModelError) -> bool {
    matches!(error, ModelError::Status { status: 400, code: Some(code), .. } if code == "conversation_locked")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16) -> ModelError {
        ModelError::Status {
            status,
            code: None,
            message: String::new(),
            request_id: None,
            retry_after: None,
            should_retry: None,
        }
    }

    fn wishing(seconds: u64) -> ModelError {
        let mut error = status(429);
        if let ModelError::Status { retry_after, .. } = &mut error {
            *retry_after = Some(Duration::from_secs(seconds));
        }
        error
    }

    fn saying(number: u16, says: bool) -> ModelError {
        let mut error = status(number);
        if let ModelError::Status { should_retry, .. } = &mut error {
            *should_retry = Some(says);
        }
        error
    }

    fn network() -> ModelError {
        ModelError::Network { host: "h".to_owned(), reason: "r".to_owned() }
    }

    fn failed(code: &str) -> ModelError {
        ModelError::Failed { code: Some(code.to_owned()), message: String::new() }
    }

    fn policy(on: Vec<RetryOn>) -> Retry {
        Retry { max_retries: 9, on, ..Retry::default() }
    }

    fn plain(error: &ModelError) -> Failure<'_> {
        Failure { error, retries: 0, seen_output: false, stateful: false }
    }

    #[test]
    fn a_policy_covers_what_it_names() {
        use RetryOn::{Network, RetryAfter, Status, Suggested};
        for (on, error, expected) in [
            (Suggested, status(503), true),
            (Suggested, status(400), false),
            (Suggested, saying(400, true), true),
            (Suggested, saying(503, false), false),
            (Suggested, network(), true),
            (Suggested, failed("server_error"), true),
            (Suggested, failed("invalid_prompt"), false),
            (Suggested, ModelError::Malformed(String::new()), false),
            (Network, network(), true),
            (Network, ModelError::Timeout(Duration::ZERO), true),
            (Network, status(500), false),
            (RetryAfter, wishing(3), true),
            (RetryAfter, status(429), false),
            (Status(vec![418]), status(418), true),
            (Status(vec![418]), status(500), false),
        ] {
            let decided = decide(&policy(vec![on.clone()]), &plain(&error), 0.5);
            assert_eq!(decided.is_some(), expected, "{on:?} {error:?}");
        }
        assert_eq!(decide(&policy(vec![]), &plain(&network()), 0.5), None);
    }

    #[test]
    fn nothing_is_asked_twice_that_could_be_answered_twice() {
        let all = policy(vec![RetryOn::Suggested, RetryOn::Network]);
        let error = network();
        let after = ModelError::AfterOutput { cause: Box::new(network()) };
        let refused = status(503);
        assert!(decide(&all, &plain(&error), 0.5).is_some());
        assert_eq!(decide(&all, &Failure { seen_output: true, ..plain(&error) }, 0.5), None);
        assert_eq!(decide(&all, &Failure { stateful: true, ..plain(&error) }, 0.5), None);
        assert!(decide(&all, &Failure { stateful: true, ..plain(&refused) }, 0.5).is_some());
        assert_eq!(decide(&all, &plain(&after), 0.5), None);
        assert_eq!(decide(&all, &Failure { retries: 9, ..plain(&error) }, 0.5), None);
        assert_eq!(decide(&Retry::default(), &plain(&error), 0.5), None, "retries are asked for");
    }

    #[test]
    fn the_servers_wish_comes_before_the_backoff_which_grows_to_its_limit() {
        let all = policy(vec![RetryOn::Suggested]);
        let after = |retries, chance| decide(&all, &Failure { retries, ..plain(&network()) }, chance);
        assert_eq!(decide(&all, &plain(&wishing(7)), 0.9), Some(Duration::from_secs(7)));
        assert_eq!(decide(&all, &plain(&wishing(121)), 0.9), None);
        for (retries, chance, millis) in [(0, 0.5, 250), (1, 0.5, 500), (2, 0.5, 1000), (8, 0.5, 2000), (1, 0.0, 437)] {
            assert_eq!(after(retries, chance).map(|wait| wait.as_millis()), Some(millis), "{retries} {chance}");
        }
        assert_eq!(after(3, 1.0).map(|wait| wait.as_millis()), Some(2250));
    }

    #[test]
    fn absurd_numbers_in_a_policy_only_make_the_wait_long() {
        for multiplier in [f64::NAN, f64::INFINITY, -4.0, 1e300] {
            for max in [Duration::from_secs(2), Duration::MAX] {
                let policy = Retry { multiplier, max, max_retries: u32::MAX, ..policy(vec![RetryOn::Network]) };
                let error = network();
                let decided = decide(&policy, &Failure { retries: 4_000_000, ..plain(&error) }, f64::NAN);
                assert!(decided.is_some_and(|wait| wait <= max), "{multiplier}: {decided:?}");
            }
        }
    }

    #[test]
    fn the_transport_tries_twice_more_and_longer_each_time() {
        for (error, chance, expected) in [
            (status(500), 0.0, vec![500, 1000]),
            (network(), 1.0, vec![375, 750]),
            (ModelError::Timeout(Duration::ZERO), 0.0, vec![500, 1000]),
            (wishing(120), 0.5, vec![120_000, 120_000]),
            (wishing(121), 0.5, vec![]),
            (status(408), 0.0, vec![500, 1000]),
            (status(409), 0.0, vec![500, 1000]),
            (status(401), 0.0, vec![]),
            (saying(401, true), 0.0, vec![500, 1000]),
            (saying(500, false), 0.0, vec![]),
            (failed("server_error"), 0.0, vec![]),
        ] {
            let mut attempts = Attempts::default();
            let waits: Vec<_> =
                std::iter::from_fn(|| attempts.again(&error, chance)).map(|wait| wait.as_millis()).collect();
            assert_eq!(waits, expected, "{error:?}");
        }
    }

    #[test]
    fn a_conversation_that_is_held_is_asked_for_three_times() {
        let mut error = status(400);
        if let ModelError::Status { code, .. } = &mut error {
            *code = Some("conversation_locked".to_owned());
        }
        let mut attempts = Attempts::default();
        let waits: Vec<_> = std::iter::from_fn(|| attempts.again(&error, 0.7)).map(|wait| wait.as_secs()).collect();
        assert_eq!(waits, [1, 2, 4]);
    }
}
