//! `sandbar completions`: completion scripts for shells.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::{args::Args, failure::Failure, render::Render};

pub(crate) fn write(shell: Shell, render: &Render) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "sandbar", &mut script);
    render.result(&script)
}
