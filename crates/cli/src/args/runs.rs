//! The command line of `sandbar diff`, `apply` and `runs`.

use std::{path::PathBuf, time::Duration};

use clap::Subcommand;

use crate::args::values;

pub(super) const DIFF_EXAMPLES: &str = "\
Examples:
  sandbar diff 0199f3a2
  sandbar diff 0199f3a2 --stat
  sandbar diff 0199f3a2 | git apply --check

Exit codes:
  0  shown, with or without changes
  1  failed
  2  the command line is wrong";

pub(super) const APPLY_EXAMPLES: &str = "\
Examples:
  sandbar apply 0199f3a2
  sandbar apply 0199f3a2 --dry-run
  sandbar apply 0199f3a2 --to ../other-checkout
  sandbar apply 0199f3a2 --yes

Exit codes:
  0  applied, or nothing to apply
  1  refused, and nothing was changed; or some links or parts of repositories were refused, and are named
  2  the command line is wrong
  3  tools run or read some of the files on their own, which needs your approval; nothing was changed";

const RM_EXAMPLES: &str = "\
Examples:
  sandbar runs rm 0199f3a2
  sandbar runs rm --older-than 48h
  sandbar runs rm --all";

#[derive(Debug, clap::Args)]
pub(crate) struct DiffArgs {
    /// Id of the run, or at least four characters that the id begins or ends with.
    #[arg(value_name = "ID")]
    pub(crate) run: String,

    /// Show the number of changed lines per file instead.
    #[arg(long, conflicts_with_all = ["name_only", "json"])]
    pub(crate) stat: bool,

    /// Show only the names of changed files.
    #[arg(long, conflicts_with = "json")]
    pub(crate) name_only: bool,

    /// Include new files that match the ignore rules of the copy, such as build output.
    #[arg(long)]
    pub(crate) all: bool,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ApplyArgs {
    /// Id of the run, or at least four characters that the id begins or ends with.
    #[arg(value_name = "ID")]
    pub(crate) run: String,

    /// Directory to apply the changes to, instead of the one that was copied.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,

    /// Overwrite files that changed since they were copied, and apply the changes of a run that was killed.
    #[arg(long)]
    pub(crate) force: bool,

    /// Do not ask about files that tools run or read on their own, such as .envrc, .vscode or .github/workflows.
    #[arg(long, short)]
    pub(crate) yes: bool,

    /// Show what would be changed, without changing it.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Include new files that match the ignore rules of the copy, such as build output.
    #[arg(long)]
    pub(crate) all: bool,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Tasks of `sandbar runs`.
#[derive(Debug, Subcommand)]
pub(crate) enum RunsTask {
    /// List runs, newest first.
    #[command(after_help = "Example:\n  sandbar runs ls --json")]
    Ls(RunsLsArgs),
    /// Remove runs with their working copies.
    #[command(after_help = RM_EXAMPLES,
        override_usage = "sandbar runs rm [OPTIONS] <ID>...\n       sandbar runs rm [OPTIONS] --all\n       sandbar runs rm [OPTIONS] --older-than <TIME>")]
    Rm(RunsRmArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunsLsArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunsRmArgs {
    /// Ids of runs, or at least four characters that each id begins or ends with.
    #[arg(value_name = "ID", required_unless_present_any = ["all", "older_than"], conflicts_with_all = ["all", "older_than"])]
    pub(crate) runs: Vec<String>,

    /// Remove all runs that are not in progress, including those with a damaged record.
    #[arg(long, conflicts_with = "older_than")]
    pub(crate) all: bool,

    /// Remove runs older than this (30m, 48h) that are not in progress.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) older_than: Option<Duration>,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

impl RunsTask {
    /// Whether failures are reported as JSON.
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::Ls(args) => args.json,
            Self::Rm(args) => args.json,
        }
    }
}
