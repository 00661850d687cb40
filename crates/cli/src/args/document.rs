//! The command lines of `sandbar manifest` and `sandbar patch`.

use std::path::PathBuf;

use clap::{
    Subcommand, ValueEnum, ValueHint,
    builder::{OsStringValueParser, TypedValueParser},
};

use super::{GitArg, Level};
use crate::args::values::{self, GrantArg};

const CHECK_EXAMPLES: &str = "\
Examples:
  sandbar manifest check workspace.yaml
  sandbar manifest check task.json --grant ~/datasets
  generate | sandbar manifest check - --input-format json --json

Exit codes:
  0  the manifest and its sources on this host are valid
  1  the manifest or a source is invalid; all mistakes are listed
  2  the manifest cannot be read";

const RENDER_EXAMPLES: &str = "\
Examples:
  sandbar manifest render workspace.yaml             print the declared workspace as a tree
  sandbar manifest render workspace.yaml --depth 2
  sandbar manifest render workspace.toml --format json";

/// Tasks of `sandbar manifest`.
#[derive(Debug, Subcommand)]
pub(crate) enum ManifestTask {
    /// List all mistakes in a manifest.
    ///
    /// The check includes the sources on this host, and whether a local machine supports what the manifest asks for. It
    /// starts no machine and contacts no server: remote sources are listed as not checked.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Show the workspace that a manifest declares, or the manifest itself in another format.
    #[command(after_help = RENDER_EXAMPLES)]
    Render(RenderArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SourceArgs {
    /// Manifest file in JSON, YAML or TOML, as its extension says; `-` is standard input.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// Format of the manifest, instead of the one that its extension names.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) input_format: Option<FormatArg>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,

    /// Check as if the manifest were used with this grant.
    #[arg(long = "grant", value_name = "HOST[:INSIDE][:ro|rw]", value_hint = ValueHint::AnyPath,
        value_parser = OsStringValueParser::new().try_map(values::grant))]
    pub(crate) grants: Vec<GrantArg>,

    /// Check as if the manifest were used with --allow-mounts.
    #[arg(long)]
    pub(crate) allow_mounts: bool,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RenderArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,

    /// Print the complete manifest in this format, with all defaults.
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["tree", "depth"])]
    pub(crate) format: Option<FormatArg>,

    /// Print the workspace as a tree. This is the default without --format.
    #[arg(long)]
    pub(crate) tree: bool,

    /// Levels of the tree to print.
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

impl From<FormatArg> for sandbar::sandbox::Format {
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
    /// Patch text; read from standard input if it is missing.
    #[arg(value_name = "PATCH")]
    pub(crate) patch: Option<String>,

    /// Directory whose files are changed. Files outside of it are not changed.
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: PathBuf,

    /// `rw` lets the patch change git repositories. Git runs hooks and commands from their configuration as you.
    #[arg(long, value_name = "HOW")]
    pub(crate) git: Option<GitArg>,

    /// apply_patch dialect to follow.
    #[arg(long, value_name = "WHICH", default_value = "codex")]
    pub(crate) profile: ProfileArg,

    /// Minimum isolation; without it, nothing is changed.
    #[arg(long, value_name = "LEVEL", default_value = "full")]
    pub(crate) isolation: Level,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileArg {
    /// Free-form tool: files end with a newline, and every anchor must match.
    Codex,
    /// Single operations: final newlines are not changed.
    Sdk,
}
