//! The cost of a machine in a container, compared with the engine's own calls, a local machine and the Python SDK in
//! the same run.
//!
//! Run with `cargo xtask bench docker [--json] [--quick] [--only NAME] [--check]`; `cargo xtask setup` creates the
//! image.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark"
)]

#[cfg(target_os = "linux")]
#[path = "docker/bulk.rs"]
mod bulk;
#[cfg(target_os = "linux")]
#[path = "docker/peer.rs"]
mod peer;
#[cfg(target_os = "linux")]
#[path = "docker/raw.rs"]
mod raw;
#[cfg(target_os = "linux")]
#[path = "docker/rows.rs"]
mod rows;
#[cfg(target_os = "linux")]
#[path = "local/table.rs"]
mod table;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    let options = table::Options::from_args(std::env::args().skip(1));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let table = runtime.block_on(rows::all(&options));
    table.finish(&options)
}

#[cfg(not(target_os = "linux"))]
fn main() {}
