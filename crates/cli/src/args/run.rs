//! The options of `sandbar run`.

use std::path::PathBuf;

use clap::{
    ValueEnum, ValueHint,
    builder::{NonEmptyStringValueParser, OsStringValueParser, TypedValueParser},
};

use super::{FillArgs, MachineArgs};
use crate::values::{self, PriceArg, Variable};

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

The options may also stand in $XDG_CONFIG_HOME/sandbar/config.toml, by the same names: model = \"gpt-5.5\", max-turns = 40.

Exit codes:
  0    completed
  1    failed
  2    used wrongly
  3    an approval is needed, and nobody can be asked
  4    turns, tokens or money are spent
  130  cancelled";

#[derive(Debug, clap::Args)]
#[command(
    args_override_self = true,
    mut_arg("workspace", |arg| arg.help(
        "The directory to work on. The agent gets a copy (what its ignore files name is left out, .git is not), and the \
         changes are shown at the end. Without it the workspace is empty"
    ).value_name("DIR")),
    mut_arg("network", |arg| arg.help("What commands can reach: nothing but themselves, or everything the host can [default: off]"))
)]
pub(crate) struct RunArgs {
    /// What to do; `-` reads it from standard input.
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Vec<String>,

    /// The agent, from a file: instructions, model, capabilities, manifest (TOML, YAML or JSON).
    #[arg(long, value_name = "FILE", help_heading = "Agent", value_hint = ValueHint::FilePath)]
    pub(crate) agent: Option<PathBuf>,

    /// The model that thinks: a name, or script:FILE for one that follows a script.
    #[arg(long, value_name = "NAME", help_heading = "Agent", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) model: Option<String>,

    /// The address of the model's server, such as http://localhost:8000/v1.
    #[arg(long, value_name = "URL", help_heading = "Agent", value_hint = ValueHint::Url)]
    pub(crate) base_url: Option<String>,

    /// The most model calls [default: 100].
    #[arg(long, value_name = "N", help_heading = "Agent", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,

    /// Stop once this many tokens are spent, read and written.
    #[arg(long, value_name = "N", help_heading = "Agent", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_tokens: Option<u64>,

    /// Stop once this many dollars are spent.
    #[arg(long, value_name = "USD", help_heading = "Agent", value_parser = values::dollars)]
    pub(crate) max_cost: Option<f64>,

    /// What a model costs, in dollars per million tokens read and written, for those whose price is not known.
    #[arg(long = "price", value_name = "MODEL=IN/OUT", help_heading = "Agent", value_parser = values::price)]
    pub(crate) prices: Vec<PriceArg>,

    /// When to ask you first: never, before every command and patch, or as the agent file's rules say.
    #[arg(long, value_name = "WHEN", default_value = "on-rule", help_heading = "Agent")]
    pub(crate) ask: AskArg,

    /// Let the agent change DIR itself, not a copy of it; but not the repositories in it.
    #[arg(long, requires = "workspace", help_heading = "Files")]
    pub(crate) in_place: bool,

    #[command(flatten)]
    pub(crate) machine: MachineArgs,

    #[command(flatten)]
    pub(crate) fill: FillArgs,

    /// Let the secret of this name through where a tool's answer shows it, not hidden as [secret]. The model sees it then, and
    /// the trace keeps it.
    #[arg(long = "show-secret", value_name = "NAME", help_heading = "Workspace")]
    pub(crate) show_secrets: Vec<String>,

    /// Set a variable for the agent's commands, or copy one of yours by its name.
    #[arg(long, value_name = "NAME[=VALUE]", help_heading = "Workspace",
        value_parser = OsStringValueParser::new().try_map(values::variable))]
    pub(crate) env: Vec<Variable>,

    /// Do everything as this user of the machine, who is made if it does not have one. The workspace belongs to agent:
    /// others read it [default: the agent file's run_as, or agent].
    #[arg(long, value_name = "NAME", help_heading = "Agent", value_parser = values::account)]
    pub(crate) user: Option<String>,

    /// Print what happens as JSON lines, the last one with the result.
    #[arg(long)]
    pub(crate) json: bool,

    /// Read options from this file, and not from the usual one.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AskArg {
    /// Nothing is asked.
    Never,
    /// Every command and every patch.
    Always,
    /// What the agent file's rules name.
    OnRule,
}
