//! The cost of a local machine, compared with the floor: the same work by bare system calls, in the same loop of the
//! same run.
//!
//! Run with `cargo xtask bench local [--json] [--quick] [--only NAME] [--check]`.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark"
)]

#[cfg(target_os = "linux")]
#[path = "local/floor.rs"]
mod floor;
#[cfg(target_os = "linux")]
#[path = "local/rows.rs"]
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
