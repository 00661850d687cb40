//! When a failed request is repeated, and after which pause.

use std::time::Duration;

use jiff::{Timestamp, fmt::rfc2822};
use reqwest::{StatusCode, header::HeaderMap};

use crate::{HttpError, Phase};

/// How often a request is repeated, and the pauses between the attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Number of attempts, including the first.
    pub attempts: u32,
    /// Pause before the second attempt. It doubles before each further attempt, and is shortened by up to a quarter at
    /// random.
    pub pause: Duration,
    /// The longest pause that the client chooses.
    pub longest: Duration,
    /// The longest pause that a server may ask for with `Retry-After`. If a server asks for more, the request is not
    /// repeated.
    pub longest_asked: Duration,
}

impl Retries {
    /// No retries: one attempt.
    #[must_use]
    pub fn none() -> Self {
        Self { attempts: 1, ..Self::default() }
    }
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            attempts: 3,
            pause: Duration::from_millis(500),
            longest: Duration::from_secs(8),
            longest_asked: Duration::from_secs(30),
        }
    }
}

/// Whether a request may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// A second arrival has no further effect: the request may be repeated after any temporary failure.
    Harmless,
    /// The request is repeated only if the server has not processed it.
    IfUntouched,
    /// The body was a stream and is used up.
    Impossible,
}

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server was not reached.
    Unreached,
    /// The connection broke, and it is not known what the server has done.
    Broken,
    /// The server answered with this status, and asked for this pause.
    Status(StatusCode, Option<Duration>),
    /// Another attempt would fail in the same way, or the time is used up.
    Lasting,
}

impl From<&HttpError> for Failure {
    fn from(error: &HttpError) -> Self {
        match error {
            HttpError::Connect { .. } | HttpError::Timeout { phase: Phase::Connect, .. } => Self::Unreached,
            HttpError::Broken { .. } => Self::Broken,
            _ => Self::Lasting,
        }
    }
}

impl Retries {
    /// The pause before the next attempt, after `made` attempts; `None` if there is no next attempt. `chance` is from 0
    /// to 1.
    pub(crate) fn pause_after(&self, failure: Failure, repeat: Repeat, made: u32, chance: f64) -> Option<Duration> {
        let asked = match failure {
            Failure::Status(_, asked) => asked,
            Failure::Unreached | Failure::Broken | Failure::Lasting => None,
        };
        let passes = match (failure, repeat) {
            (_, Repeat::Impossible) | (Failure::Lasting, _) => false,
            (Failure::Unreached, _) => true,
            (Failure::Broken, repeat) => repeat == Repeat::Harmless,
            (Failure::Status(status, _), Repeat::Harmless) => {
                matches!(status.as_u16(), 408 | 425 | 429 | 500 | 502 | 503 | 504)
            }
            // A rate limit applies before the work starts; a server that is down says when it is back.
            (Failure::Status(status, asked), Repeat::IfUntouched) => {
                status == StatusCode::TOO_MANY_REQUESTS
                    || (status == StatusCode::SERVICE_UNAVAILABLE && asked.is_some())
            }
        };
        if !passes || made >= self.attempts || asked.is_some_and(|asked| asked > self.longest_asked) {
            return None;
        }
        let own = self.pause.saturating_mul(1 << (made.saturating_sub(1)).min(16)).min(self.longest);
        let shortened = own.as_secs_f64() * (1.0 - 0.25 * chance.clamp(0.0, 1.0));
        Some(asked.unwrap_or_else(|| Duration::try_from_secs_f64(shortened).unwrap_or(own)))
    }
}

/// How long a server asks to wait: given in milliseconds, in seconds or as a date. A time in the past is `None`.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |name| text(name)?.parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|millis| millis / 1000.0).or_else(|| number("retry-after"));
    let seconds = seconds.or_else(|| {
        let date = rfc2822::DateTimeParser::new().parse_timestamp(text("retry-after")?).ok()?;
        Some(date.duration_since(now).as_secs_f64())
    });
    // A huge value is capped, so that it does not overflow into `None`.
    let seconds = seconds.filter(|seconds| *seconds > 0.0)?.min(1e9);
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_can_say_when_in_three_ways() {
        let now: Timestamp = "2015-10-21T07:28:00Z".parse().expect("a time");
        for (name, value, expected) in [
            ("retry-after-ms", "1500", Some(1500)),
            ("retry-after", "2", Some(2000)),
            ("retry-after", "0.25", Some(250)),
            ("retry-after", "Wed, 21 Oct 2015 07:28:07 GMT", Some(7000)),
            ("retry-after", "Wed, 21 Oct 2015 07:27:00 GMT", None),
            ("retry-after", "0", None),
            ("retry-after", "-3", None),
            ("retry-after", "soon", None),
            ("retry-after", "NaN", None),
            ("retry-after", "1e300", Some(1_000_000_000_000)),
        ] {
            let headers = HeaderMap::from_iter([(name.parse().expect("a name"), value.parse().expect("a value"))]);
            let wait = retry_after(&headers, now).map(|wait| wait.as_millis());
            assert_eq!(wait, expected, "{name}: {value}");
        }
    }

    #[test]
    fn a_request_is_made_again_where_that_is_harmless_and_may_help() {
        let status = |code, asked: Option<u64>| {
            Failure::Status(StatusCode::from_u16(code).expect("a status"), asked.map(Duration::from_secs))
        };
        for (failure, harmless, if_untouched) in [
            (Failure::Unreached, Some(500), Some(500)),
            (Failure::Broken, Some(500), None),
            (Failure::Lasting, None, None),
            (status(429, None), Some(500), Some(500)),
            (status(429, Some(7)), Some(7000), Some(7000)),
            (status(429, Some(30)), Some(30_000), Some(30_000)),
            (status(429, Some(31)), None, None),
            (status(503, None), Some(500), None),
            (status(503, Some(2)), Some(2000), Some(2000)),
            (status(500, None), Some(500), None),
            (status(500, Some(2)), Some(2000), None),
            (status(502, None), Some(500), None),
            (status(504, None), Some(500), None),
            (status(408, None), Some(500), None),
            (status(501, None), None, None),
            (status(400, None), None, None),
            (status(404, Some(1)), None, None),
            (status(200, None), None, None),
        ] {
            let wait = |repeat| Retries::default().pause_after(failure, repeat, 1, 0.0).map(|wait| wait.as_millis());
            assert_eq!(wait(Repeat::Harmless), harmless, "{failure:?}");
            assert_eq!(wait(Repeat::IfUntouched), if_untouched, "{failure:?}");
            assert_eq!(wait(Repeat::Impossible), None, "{failure:?}");
        }
    }

    #[test]
    fn pauses_grow_to_their_limit_and_end() {
        let retries = Retries { attempts: 100, ..Retries::default() };
        let wait = |made, chance| {
            retries.pause_after(Failure::Unreached, Repeat::Harmless, made, chance).map(|wait| wait.as_millis())
        };
        assert_eq!([1, 2, 3, 5, 99].map(|made| wait(made, 0.0)), [500, 1000, 2000, 8000, 8000].map(Some));
        assert_eq!((wait(1, 1.0), wait(1, f64::NAN).is_some(), wait(100, 0.0)), (Some(375), true, None));
        assert_eq!(Retries::none().pause_after(Failure::Unreached, Repeat::Harmless, 1, 0.0), None);
    }
}
