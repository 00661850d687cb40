//! `cargo xtask setup`: what the tests need, put in place by `xtask/setup.sh`.

use clap::Args;

use crate::program::{self, Result};

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Also install cargo-deny, which takes minutes
    #[arg(long)]
    pub(crate) deny: bool,
}

pub(crate) fn run(options: &Options) -> Result {
    let mut command = program::at_root("bash");
    command.arg("xtask/setup.sh");
    if options.deny {
        command.arg("--deny");
    }
    program::run(&mut command).map_err(program::Failure::silent)
}
