//! Machines at E2B keep the promises of the suite that the service supports, tested against a fake service on a real
//! socket.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

#[path = "e2b/bench.rs"]
mod bench;
#[path = "e2b/facets.rs"]
mod facets;
#[path = "e2b/faults.rs"]
mod faults;
#[path = "e2b/golden.rs"]
mod golden;
#[path = "conformance/page.rs"]
mod page;
#[path = "e2b/promises.rs"]
mod promises;
#[path = "e2b/sessions.rs"]
mod sessions;
