//! The command lines of `sandbar manifest` and `sandbar patch`: documents that are checked, shown or applied.

use std::path::PathBuf;

use clap::{
    Subcommand, ValueEnum, ValueHint,
    builder::{OsStringValueParser, TypedValueParser},
};

use super::{GitArg, Level};
use crate::values::{self, GrantArg};

const CHECK_EXAMPLES: &str = "\
Examples:
  sandbar manifest check workspace.yaml
  sandbar manifest check task.json --grant ~/datasets
  generate | sandbar manifest check - --input-format json --json

Exit codes:
  0  the manifest is sound, and so is what it takes from this host
  1  something is not; everything that is wrong is listed
  2  there is nothing to check";

const RENDER_EXAMPLES: &str = "\
Examples:
  sandbar manifest render workspace.yaml             the workspace it declares, as a tree
  sandbar manifest render workspace.yaml --depth 2
  sandbar manifest render workspace.toml --format json";

/// What to do with manifests.
#[derive(Debug, Subcommand)]
pub(crate) enum ManifestTask {
    /// List everything that is wrong with a manifest.
    ///
    /// Its sources on this host are looked at, too, and whether a local machine can do what it asks for. Nothing is
    /// started and no server is asked: what comes from elsewhere is named as not checked.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Show the workspace that a manifest declares, or the manifest itself in another format.
    #[command(after_help = RENDER_EXAMPLES)]
    Render(RenderArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SourceArgs {
    /// The manifest: JSON, YAML or TOML, by the end of its name; `-` is standard input.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// Read it as this, whatever its name says.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) input_format: Option<FormatArg>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,

    /// Judge it as if it were used with this grant.
    #[arg(long = "grant", value_name = "HOST[:INSIDE][:ro|rw]", value_hint = ValueHint::AnyPath,
        value_parser = OsStringValueParser::new().try_map(values::grant))]
    pub(crate) grants: Vec<GrantArg>,

    /// Judge it as if it were used with this.
    #[arg(long)]
    pub(crate) allow_mounts: bool,

    /// Print a document for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RenderArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,

    /// Print the whole manifest like this, with every default.
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["tree", "depth"])]
    pub(crate) format: Option<FormatArg>,

    /// Print the workspace as a tree; this is what happens without --format.
    #[arg(long)]
    pub(crate) tree: bool,

    /// How many levels of the tree.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) depth: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArg {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// TOML.
    Toml,
}

impl From<FormatArg> for sandbar::Format {
    fn from(format: FormatArg) -> Self {
        match format {
            FormatArg::Json => Self::Json,
            FormatArg::Yaml => Self::Yaml,
            FormatArg::Toml => Self::Toml,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct PatchArgs {
    /// The patch; without it, standard input.
    #[arg(value_name = "PATCH")]
    pub(crate) patch: Option<String>,

    /// The directory whose files are changed. Nothing outside of it can be.
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: PathBuf,

    /// `rw` lets the patch change what belongs to a repository: what it puts into hooks and configuration runs as you.
    #[arg(long, value_name = "HOW")]
    pub(crate) git: Option<GitArg>,

    /// Whose habits decide where engines differ.
    #[arg(long, value_name = "WHICH", default_value = "codex")]
    pub(crate) profile: ProfileArg,

    /// The isolation below which nothing is done.
    #[arg(long, value_name = "LEVEL", default_value = "full")]
    pub(crate) isolation: Level,

    /// Print a document for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileArg {
    /// The freeform tool: files end with a newline, every anchor must be found.
    Codex,
    /// Single operations: final newlines stay as they are.
    Sdk,
}
