//! `cargo xtask bench CLIENT`: that client's benchmark, built for release.

use clap::Args;

use crate::program::{self, Result};

#[derive(Args)]
pub(crate) struct Options {
    /// The client to measure: a file of crates/clients/benches
    client: String,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
    /// Fewer rounds: good enough to see that everything runs
    #[arg(long)]
    quick: bool,
    /// Only the rows whose name contains this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result {
    let mut command = program::cargo();
    command.args(["bench", "--quiet", "--package", "sandbar-clients", "--all-features", "--bench"]);
    command.arg(&options.client).arg("--");
    for (wanted, flag) in [(options.json, "--json"), (options.quick, "--quick")] {
        if wanted {
            command.arg(flag);
        }
    }
    if let Some(name) = &options.only {
        command.args(["--only", name]);
    }
    program::run(&mut command)
}
