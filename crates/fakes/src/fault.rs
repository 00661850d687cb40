//! Faults that tests arm: which requests they apply to, and what goes wrong.

use std::time::Duration;

use hyper::Method;
use parking_lot::Mutex;

/// What goes wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Answers with this status and body; the request is not served.
    Status(u16, String),
    /// Answers with this status and a `Retry-After` of so many seconds; the request is not served.
    RetryAfter(u16, u64),
    /// Reads the request and never answers; it is not served.
    Stall,
    /// Answers 200 with bytes that no decoder accepts; the request is not served.
    Garbage,
    /// Serves the request, and resets the connection before the first byte of the response.
    LoseReply,
    /// Serves the request, and resets the connection after so many bytes of the response's body.
    CutAfter(usize),
    /// Serves the request, and sends the response's body in small pieces.
    SlowBytes {
        /// Bytes in a piece.
        at_once: usize,
        /// The pause before each.
        every: Duration,
    },
}

/// Which requests a fault applies to.
///
/// In a path, `*` stands for one part: `/sandboxes/*/pause`. It is compared without the query, as it was encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct On {
    method: Option<Method>,
    path: String,
}

impl On {
    /// Requests of any method.
    #[must_use]
    pub fn any(path: impl Into<String>) -> Self {
        Self { method: None, path: path.into() }
    }

    /// `GET` requests.
    #[must_use]
    pub fn get(path: impl Into<String>) -> Self {
        Self { method: Some(Method::GET), path: path.into() }
    }

    /// `POST` requests.
    #[must_use]
    pub fn post(path: impl Into<String>) -> Self {
        Self { method: Some(Method::POST), path: path.into() }
    }

    /// `DELETE` requests.
    #[must_use]
    pub fn delete(path: impl Into<String>) -> Self {
        Self { method: Some(Method::DELETE), path: path.into() }
    }

    fn meets(&self, method: &Method, path: &str) -> bool {
        let (mut wanted, mut parts) = (self.path.split('/'), path.split('/'));
        self.method.as_ref().is_none_or(|wanted| wanted == method)
            && loop {
                match (wanted.next(), parts.next()) {
                    (None, None) => break true,
                    (Some("*"), Some(_)) => {}
                    (Some(wanted), Some(part)) if wanted == part => {}
                    _ => break false,
                }
            }
    }
}

/// The armed faults, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Vec<(On, Fault, usize)>>);

impl Faults {
    pub(crate) fn arm(&self, on: On, fault: Fault, times: usize) {
        self.0.lock().push((on, fault, times));
    }

    /// The oldest fault that applies to this request; its count decreases by one.
    pub(crate) fn take(&self, method: &Method, path: &str) -> Option<Fault> {
        let mut armed = self.0.lock();
        armed.retain(|(.., times)| *times > 0);
        let (_, fault, times) = armed.iter_mut().find(|(on, ..)| on.meets(method, path))?;
        *times -= 1;
        Some(fault.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_met_part_by_part_and_a_fault_is_used_up() {
        let on = On::post("/sandboxes/*/pause");
        for (method, path, met) in [
            (Method::POST, "/sandboxes/a/pause", true),
            (Method::GET, "/sandboxes/a/pause", false),
            (Method::POST, "/sandboxes/a/b/pause", false),
            (Method::POST, "/sandboxes/a", false),
            (Method::POST, "/sandboxes/a/pause/", false),
        ] {
            assert_eq!(on.meets(&method, path), met, "{method} {path}");
        }
        let faults = Faults::default();
        faults.arm(on, Fault::Stall, 1);
        faults.arm(On::any("/sandboxes/a/pause"), Fault::Garbage, 1);
        let take = || faults.take(&Method::POST, "/sandboxes/a/pause");
        assert_eq!([take(), take(), take()], [Some(Fault::Stall), Some(Fault::Garbage), None]);
    }
}
