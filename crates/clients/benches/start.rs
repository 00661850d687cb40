//! The time from `create` to the result of the first command, compared with the same namespaces and mounts made by a C
//! program.
//!
//! Run with `cargo xtask bench start [--json] [--quick] [--only NAME] [--check]`, as root, on a quiet machine: a run
//! that begins at a load above 2 is void.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark"
)]

#[cfg(target_os = "linux")]
#[path = "start/floor.rs"]
mod floor;
#[cfg(target_os = "linux")]
#[path = "local/release.rs"]
mod release;
#[cfg(target_os = "linux")]
#[path = "start/rows.rs"]
mod rows;
#[cfg(target_os = "linux")]
#[path = "local/table.rs"]
mod table;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    let options = table::Options::from_args(std::env::args().skip(1));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let before = rows::load();
    let table = runtime.block_on(rows::all(&options));
    eprintln!("load: {before} at the start, {} at the end (the benchmark's own included)", rows::load());
    if before > rows::MOST_LOAD {
        eprintln!("VOID: the load was above {} at the start; run this on a quiet machine", rows::MOST_LOAD);
        return std::process::ExitCode::FAILURE;
    }
    table.finish(&options)
}

#[cfg(not(target_os = "linux"))]
fn main() {}
