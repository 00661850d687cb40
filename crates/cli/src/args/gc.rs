//! The command line of `sandbar gc`.

use crate::machine::client;

pub(super) const EXAMPLES: &str = "\
Examples:
  sandbar gc --dry-run
  sandbar gc
  sandbar gc --sandbox docker --json

Exit codes:
  0  no leftovers remain
  1  a leftover could not be removed, or a provider could not be checked
  2  the command line is wrong";

#[derive(Debug, clap::Args)]
pub(crate) struct GcArgs {
    /// Show what would be removed, and why, without removing it.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Check only this: `local` (machines, sessions and runs on this host), or a provider, which must then answer.
    #[arg(long, value_name = "WHERE", value_parser = client::provider)]
    pub(crate) sandbox: Option<String>,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
