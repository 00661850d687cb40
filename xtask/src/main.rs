//! The project's own commands, run as `cargo xtask NAME`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool speaks on its own streams")]

mod api;
mod bench;
mod conformance;
mod examples;
mod fuzz;
mod mutants;
mod program;
mod release;
mod setup;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "xtask", bin_name = "cargo xtask", about = "The project's own commands", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check the rules that neither the compiler nor clippy knows
    Tidy,
    /// Install what the tests need (as root, on a Debian-like machine)
    Setup(setup::Options),
    /// Run every check, then every test
    Test(test::Options),
    /// Run every example of the library, and compare what it prints with what it says it prints
    Examples,
    /// Write docs/api anew: the public items of each library
    Api(api::Options),
    /// Write docs/conformance.md anew from what the suites find
    Conformance,
    /// Measure a client against its floor
    Bench(bench::Options),
    /// Fuzz every decoder, on the nightly compiler
    Fuzz(fuzz::Options),
    /// Build the program as it is handed out: a tarball and a Debian package
    Release(release::Options),
    /// Change the cores without I/O, one thing at a time, and see that a test notices
    Mutants(mutants::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Tidy => tidy::run(),
        Command::Setup(options) => setup::run(&options),
        Command::Test(options) => test::run(&options),
        Command::Examples => examples::run(),
        Command::Api(options) => api::run(&options),
        Command::Conformance => conformance::run(),
        Command::Bench(options) => bench::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Release(options) => release::run(&options),
        Command::Mutants(options) => mutants::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                eprintln!("xtask: {}", failure.message);
            }
            ExitCode::from(failure.code)
        }
    }
}
