//! Benchmark of the agent loop against the Python SDK, with the same model server.
//!
//! Run with `cargo xtask bench harness [--json] [--quick] [--only NAME] [--check]`.

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

#[path = "harness/peer.rs"]
mod peer;
#[path = "harness/rows.rs"]
mod rows;
#[path = "../../clients/benches/local/table.rs"]
mod table;
#[path = "harness/work.rs"]
mod work;

fn main() -> std::process::ExitCode {
    let mut args = std::env::args().skip(1).peekable();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if args.next_if(|arg| arg == "--many").is_some() {
        runtime.block_on(work::many_and_report(&args.next().unwrap(), args.next().unwrap().parse().unwrap()));
        return std::process::ExitCode::SUCCESS;
    }
    let options = table::Options::from_args(args);
    let table = runtime.block_on(rows::all(&options));
    table.finish(&options)
}
