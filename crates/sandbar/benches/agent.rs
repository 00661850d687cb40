//! Benchmark of agents on machines against the Python SDK, which does not isolate, and of the `sandbar` command.
//!
//! Run with `cargo xtask bench agent [--json] [--quick] [--only NAME]`. It fails if a goal is missed.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a benchmark"
)]

#[cfg(target_os = "linux")]
#[path = "agent/command.rs"]
mod command;
#[cfg(target_os = "linux")]
#[path = "agent/memory.rs"]
mod memory;
#[cfg(target_os = "linux")]
#[path = "agent/peer.rs"]
mod peer;
#[cfg(target_os = "linux")]
#[path = "../../clients/benches/local/release.rs"]
mod release;
#[cfg(target_os = "linux")]
#[path = "agent/rows.rs"]
mod rows;
#[cfg(target_os = "linux")]
#[path = "../../clients/benches/local/table.rs"]
mod table;
#[cfg(target_os = "linux")]
#[path = "agent/work.rs"]
mod work;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    let mut args = std::env::args().skip(1).peekable();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if args.next_if(|arg| arg == "--many").is_some() {
        runtime.block_on(work::many_and_report(args.next().unwrap().parse().unwrap()));
        return std::process::ExitCode::SUCCESS;
    }
    let options = table::Options::from_args(args);
    let table = runtime.block_on(rows::all(&options));
    table.finish(&table::Options { check: true, ..options })
}

#[cfg(not(target_os = "linux"))]
fn main() {}
