//! The command line of `sandbar gc`.

use clap::ValueEnum;

pub(super) const EXAMPLES: &str = "\
Examples:
  sandbar gc --dry-run
  sandbar gc
  sandbar gc --sandbox docker --json

Exit codes:
  0  nothing of it is left
  1  something could not be removed, or looked at
  2  used wrongly";

#[derive(Debug, clap::Args)]
pub(crate) struct GcArgs {
    /// Say what would be removed, and why, and remove nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Look only here; without an engine, `docker` is then a failure.
    #[arg(long, value_name = "WHERE")]
    pub(crate) sandbox: Option<GcPlace>,

    /// Print a document for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GcPlace {
    /// Machines, sessions and runs on this host.
    Local,
    /// Containers and volumes of the engine that DOCKER_HOST names, or of this host's own.
    Docker,
}
