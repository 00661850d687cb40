//! The options of `sandbar run`.

use std::path::PathBuf;

use clap::{
    ValueEnum, ValueHint,
    builder::{NonEmptyStringValueParser, OsStringValueParser, TypedValueParser},
};

use super::{FillArgs, MachineArgs};
use crate::args::values::{self, PriceArg, Variable};

pub(super) const EXAMPLES: &str = "\
Examples:
  sandbar run \"fix the failing test\" --workspace .
  sandbar run \"summarise the contracts\" --workspace ./contracts --in-place --max-cost 0.50
  sandbar run \"review this\" --agent reviewer.toml --workspace . --json
  sandbar run \"what is in here?\" --workspace . --model ollama/qwen3:8b
  git diff | sandbar run - --workspace .

Which model: --model, the agent file, then OPENAI_API_KEY (and OPENAI_BASE_URL), then a server of this host that answers
(Ollama, LM Studio, llama.cpp, vLLM). A name says where to ask: gpt-5.5, ollama/NAME, chat/NAME (Chat Completions at
--base-url), script:FILE.

Options can also be set in $XDG_CONFIG_HOME/sandbar/config.toml, with the same names: model = \"gpt-5.5\", max-turns = 40.

Exit codes:
  0    completed
  1    failed
  2    the command line is wrong
  3    an approval is needed, and there is no terminal to ask on
  4    the limit of turns, tokens or cost is reached
  130  cancelled";

#[derive(Debug, clap::Args)]
#[command(
    args_override_self = true,
    mut_arg("workspace", |arg| arg.help(
        "Directory to work on. The agent gets a copy (ignored files are left out, .git is copied), and the changes are \
         shown at the end. Without this option, the workspace is empty"
    ).value_name("DIR")),
    mut_arg("network", |arg| arg.help("Network of commands: only their own loopback, or all networks of the host [default: off]"))
)]
pub(crate) struct RunArgs {
    /// Task for the agent; `-` reads it from standard input.
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Vec<String>,

    /// Agent file with instructions, model, capabilities and manifest (TOML, YAML or JSON).
    #[arg(long, value_name = "FILE", help_heading = "Agent", value_hint = ValueHint::FilePath)]
    pub(crate) agent: Option<PathBuf>,

    /// Model name, or script:FILE for replies from a file.
    #[arg(long, value_name = "NAME", help_heading = "Agent", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) model: Option<String>,

    /// Address of the model server, such as http://localhost:8000/v1.
    #[arg(long, value_name = "URL", help_heading = "Agent", value_hint = ValueHint::Url)]
    pub(crate) base_url: Option<String>,

    /// Maximum number of model calls [default: 100].
    #[arg(long, value_name = "N", help_heading = "Agent", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,

    /// Stop once input and output tokens together reach this number.
    #[arg(long, value_name = "N", help_heading = "Agent", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_tokens: Option<u64>,

    /// Stop once the cost reaches this many dollars.
    #[arg(long, value_name = "USD", help_heading = "Agent", value_parser = values::dollars)]
    pub(crate) max_cost: Option<f64>,

    /// Price of a model whose price is not known, in dollars per million input and output tokens.
    #[arg(long = "price", value_name = "MODEL=IN/OUT", help_heading = "Agent", value_parser = values::price)]
    pub(crate) prices: Vec<PriceArg>,

    /// When to ask for your approval: never, before every command and patch, or by the rules of the agent file.
    #[arg(long, value_name = "WHEN", default_value = "on-rule", help_heading = "Agent")]
    pub(crate) ask: AskArg,

    /// Let the agent change DIR itself instead of a copy. Repositories in DIR (.git) stay read-only.
    #[arg(long, requires = "workspace", help_heading = "Files")]
    pub(crate) in_place: bool,

    #[command(flatten)]
    pub(crate) machine: MachineArgs,

    #[command(flatten)]
    pub(crate) fill: FillArgs,

    /// Do not replace the value of this secret by [secret] in the results of tools. The model then sees the value, and the
    /// trace contains it.
    #[arg(long = "show-secret", value_name = "NAME", help_heading = "Workspace")]
    pub(crate) show_secrets: Vec<String>,

    /// Set an environment variable for the agent's commands, or copy yours of that name.
    #[arg(long, value_name = "NAME[=VALUE]", help_heading = "Workspace",
        value_parser = OsStringValueParser::new().try_map(values::variable))]
    pub(crate) env: Vec<Variable>,

    /// User of the machine that all tools run as; created if needed. The workspace belongs to the user `agent`; other users
    /// can only read it [default: run_as of the agent file, or agent].
    #[arg(long, value_name = "NAME", help_heading = "Agent", value_parser = values::account)]
    pub(crate) user: Option<String>,

    /// Print events as JSON lines; the last line holds the result.
    #[arg(long)]
    pub(crate) json: bool,

    /// Read options from this file instead of the default one.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AskArg {
    /// No tool call needs an approval.
    Never,
    /// Every command and every patch needs one.
    Always,
    /// The rules of the agent file decide.
    OnRule,
}
