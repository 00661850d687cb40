//! Machines in containers keep every promise of the suite, on any image, and leave nothing behind.
//!
//! Without an engine these tests print a line and pass; if `CI` is `true`, they fail.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

#[path = "docker/bench.rs"]
mod bench;
#[path = "docker/builds.rs"]
mod builds;
#[path = "docker/detached.rs"]
mod detached;
#[path = "docker/faults.rs"]
mod faults;
#[path = "docker/hostile.rs"]
mod hostile;
#[path = "docker/options.rs"]
mod options;
#[path = "docker/outage.rs"]
mod outage;
#[path = "docker/promises.rs"]
mod promises;
#[path = "docker/registry.rs"]
mod registry;
#[path = "docker/second.rs"]
mod second;
#[path = "docker/sessions.rs"]
mod sessions;
#[path = "docker/users.rs"]
mod users;
