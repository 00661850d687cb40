//! Machines in containers keep every promise of the suite, whatever the image, and nothing of them is left.
//!
//! Without an engine these tests say so and do nothing; where `CI` is set to `true` that is a failure.
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
