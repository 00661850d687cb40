//! The command line of `sandbar diff`, `apply` and `runs`.

use std::{path::PathBuf, time::Duration};

use clap::Subcommand;

use crate::values;

pub(super) const DIFF_EXAMPLES: &str = "\
Examples:
  sandbar diff 0199f3a2
  sandbar diff 0199f3a2 --stat
  sandbar diff 0199f3a2 | git apply --check

Exit codes:
  0  shown, whether there are changes or not
  1  failed
  2  used wrongly";

pub(super) const APPLY_EXAMPLES: &str = "\
Examples:
  sandbar apply 0199f3a2
  sandbar apply 0199f3a2 --dry-run
  sandbar apply 0199f3a2 --to ../other-checkout
  sandbar apply 0199f3a2 --yes

Exit codes:
  0  applied, or there was nothing to apply
  1  refused, with nothing changed; or some links or parts of repositories were refused, and are named
  2  used wrongly
  3  tools run or obey some of the files by themselves, which takes a yes; nothing was changed";

const RM_EXAMPLES: &str = "\
Examples:
  sandbar runs rm 0199f3a2
  sandbar runs rm --older-than 48h
  sandbar runs rm --all";

#[derive(Debug, clap::Args)]
pub(crate) struct DiffArgs {
    /// The run: its id, or at least four characters that it begins or ends with.
    #[arg(value_name = "ID")]
    pub(crate) run: String,

    /// Show how much changed in each file instead.
    #[arg(long, conflicts_with_all = ["name_only", "json"])]
    pub(crate) stat: bool,

    /// Show only the names of what changed.
    #[arg(long, conflicts_with = "json")]
    pub(crate) name_only: bool,

    /// Include new files that the copy's ignore rules name, such as build output.
    #[arg(long)]
    pub(crate) all: bool,

    /// Print a document for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ApplyArgs {
    /// The run: its id, or at least four characters that it begins or ends with.
    #[arg(value_name = "ID")]
    pub(crate) run: String,

    /// Apply them to this directory, instead of the one that was copied.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,

    /// Overwrite files that changed since they were copied, and apply what a run left that was killed.
    #[arg(long)]
    pub(crate) force: bool,

    /// Do not ask about files that tools run or obey by themselves, such as .envrc, .vscode or .github/workflows.
    #[arg(long, short)]
    pub(crate) yes: bool,

    /// Say what would be done, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Include new files that the copy's ignore rules name, such as build output.
    #[arg(long)]
    pub(crate) all: bool,

    /// Print a document for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to do with runs.
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
    /// Print a document for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunsRmArgs {
    /// The runs: their ids, or at least four characters that they begin or end with.
    #[arg(value_name = "ID", required_unless_present_any = ["all", "older_than"], conflicts_with_all = ["all", "older_than"])]
    pub(crate) runs: Vec<String>,

    /// All that nobody is at, those whose record is damaged too.
    #[arg(long, conflicts_with = "older_than")]
    pub(crate) all: bool,

    /// All that were made longer ago than this, like 30m or 48h, and that nobody is at.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) older_than: Option<Duration>,

    /// Print a document for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

impl RunsTask {
    /// Whether failures are told to programs.
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::Ls(args) => args.json,
            Self::Rm(args) => args.json,
        }
    }
}
