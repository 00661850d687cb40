//! The command line of `sandbar mcp`.

use std::path::PathBuf;

use clap::{
    ValueHint,
    builder::{OsStringValueParser, TypedValueParser},
};

use super::{FillArgs, MachineArgs};
use crate::values::{self, Variable};

pub(super) const EXAMPLES: &str = "\
In the configuration of an MCP client, among its servers:
  \"sandbox\": {\"command\": \"sandbar\", \"args\": [\"mcp\", \"--workspace\", \"/path/to/project\"]}

Clients start it without a shell and from any directory: write whole paths there. It may say
  sandbar mcp                                       an empty workspace, deleted at the end
  sandbar mcp --workspace /path/to/project          work there, and only there; repositories are read-only
  sandbar mcp --workspace /path/to/project:ro       only look
  sandbar mcp --ro /path/to/datasets:/data          show one more directory
  sandbar mcp --manifest /path/to/workspace.yaml --secret TOKEN
  sandbar mcp --workspace /path/to/project --port 8000 --audit /path/to/audit.jsonl

Exit codes:
  0    the client closed the connection
  1    the sandbox could not be made; nothing was said on standard output, and nothing is left
  2    used wrongly
  130  interrupted; 143 terminated";

#[derive(Debug, clap::Args)]
pub(crate) struct McpArgs {
    #[command(flatten)]
    pub(crate) machine: MachineArgs,

    #[command(flatten)]
    pub(crate) fill: FillArgs,

    /// Let the secret of this name through where a tool's answer shows it, not hidden as [secret]. The model sees it then.
    #[arg(long = "show-secret", value_name = "NAME", help_heading = "Workspace")]
    pub(crate) show_secrets: Vec<String>,

    /// Set a variable for every command, or copy one of yours by its name. Nothing else of your environment gets in.
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = OsStringValueParser::new().try_map(values::variable))]
    pub(crate) env: Vec<Variable>,

    /// Do everything as this user of the machine, who is made if it does not have one. The workspace belongs to agent;
    /// others read it.
    #[arg(long, value_name = "NAME", value_parser = values::account)]
    pub(crate) user: Option<String>,

    /// Append a record of everything the client did to this file: JSON, one line for each event. It must lie where the
    /// sandbox cannot write.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) audit: Option<PathBuf>,
}
