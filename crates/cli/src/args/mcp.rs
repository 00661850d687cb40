//! The command line of `sandbar mcp`.

use std::path::PathBuf;

use clap::{
    ValueHint,
    builder::{OsStringValueParser, TypedValueParser},
};

use super::{FillArgs, MachineArgs};
use crate::args::values::{self, Variable};

pub(super) const EXAMPLES: &str = "\
Entry in the list of servers of an MCP client:
  \"sandbox\": {\"command\": \"sandbar\", \"args\": [\"mcp\", \"--workspace\", \"/path/to/project\"]}

Clients start the server without a shell and from any directory, so write absolute paths. Commands:
  sandbar mcp                                       an empty workspace, deleted at the end
  sandbar mcp --workspace /path/to/project          of the host, only this directory is writable; repositories are read-only
  sandbar mcp --workspace /path/to/project:ro       this directory is read-only
  sandbar mcp --ro /path/to/datasets:/data          one more directory, read-only
  sandbar mcp --manifest /path/to/workspace.yaml --secret TOKEN
  sandbar mcp --workspace /path/to/project --port 8000 --audit /path/to/audit.jsonl

Exit codes:
  0    the client closed the connection
  1    the sandbox could not be created; nothing was written to standard output, and nothing is left
  2    the command line is wrong
  130  interrupted; 143 terminated";

#[derive(Debug, clap::Args)]
pub(crate) struct McpArgs {
    #[command(flatten)]
    pub(crate) machine: MachineArgs,

    #[command(flatten)]
    pub(crate) fill: FillArgs,

    /// Do not replace the value of this secret by [secret] in the results of tools. The model then sees the value.
    #[arg(long = "show-secret", value_name = "NAME", help_heading = "Workspace")]
    pub(crate) show_secrets: Vec<String>,

    /// Set an environment variable for every command, or copy yours of that name. Commands get no other variable of yours.
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = OsStringValueParser::new().try_map(values::variable))]
    pub(crate) env: Vec<Variable>,

    /// User of the machine that all tools run as; created if needed. The workspace belongs to the user `agent`; other users
    /// can only read it.
    #[arg(long, value_name = "NAME", value_parser = values::account)]
    pub(crate) user: Option<String>,

    /// Append an audit log of the client's calls to this file, one JSON line per event. The sandbox must not be able to write
    /// to the file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) audit: Option<PathBuf>,
}
