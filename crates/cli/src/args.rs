//! The command line: every subcommand, option and word of help.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{
    ArgAction, Parser, Subcommand, ValueEnum, ValueHint,
    builder::{OsStringValueParser, TypedValueParser},
};
use clap_complete::Shell;

use crate::{
    failure,
    values::{self, Shown, Variable, WorkspaceDir},
};

const EXAMPLES: &str = "\
Examples:
  sandbar exec -- sh -c 'id; ls /'                run a program that sees nothing of yours
  sandbar exec --workspace . -- make test         let it work here, and only here
  sandbar exec --tty --workspace . -- bash        a shell in a sandbox
  sandbar doctor                                  what this host can enforce";

const EXEC_EXAMPLES: &str = "\
Examples:
  sandbar exec -- sh -c 'id; ls /'
  sandbar exec --workspace .:ro -- grep -r TODO .
  sandbar exec --workspace . --ro ~/datasets:/data --timeout 10m -- python3 train.py
  sandbar exec --workspace . --env TOKEN --env DEBUG=1 -- ./server
  sandbar exec --port 8000 -- python3 -m http.server 8000
  sandbar exec --tty --workspace . -- bash

Exit codes:
  The command's own, or 128 + the number of the signal that ended it.
  124  the command ran longer than --timeout
  125  sandbar itself failed, or was used wrongly; nothing is left running
  126  the command was found but could not be run
  127  the command was not found";

/// A computer of its own for a program you do not trust: isolated, without root, without a daemon.
#[derive(Debug, Parser)]
#[command(name = "sandbar", version, after_help = EXAMPLES, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) task: Task,

    /// Say more about what sandbar does, on standard error; twice for details.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// When sandbar colours its own words. NO_COLOR is respected.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_possible_values = false)]
    pub(crate) color: Color,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Run a command in a new sandbox.
    ///
    /// The command sees the host's programs, an empty workspace and nothing else: none of your files, none of your
    /// environment, no network. Its output, its exit code and its standard input pass through unchanged (a terminal
    /// as input only with --tty). When it ends, everything it started is ended and removed.
    #[command(after_help = EXEC_EXAMPLES, override_usage = "sandbar exec [OPTIONS] -- <COMMAND>...")]
    Exec(Box<ExecArgs>),
    /// Show what this host can enforce, what it costs, and how to get what is missing.
    ///
    /// Exits 0 when `sandbar exec` reaches full isolation here, otherwise 1.
    Doctor(DoctorArgs),
    /// Print a completion script for a shell.
    ///
    /// For example: sandbar completions bash > ~/.local/share/bash-completion/completions/sandbar
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExecArgs {
    /// Use this directory as /workspace, in place. Without it, the workspace is empty and deleted at the end.
    #[arg(long, value_name = "DIR[:ro]", help_heading = "Files", value_hint = ValueHint::DirPath,
        value_parser = OsStringValueParser::new().try_map(values::workspace))]
    pub(crate) workspace: Option<WorkspaceDir>,

    /// Show a file or directory of the host, read-only. INSIDE is the same path unless given.
    #[arg(long, value_name = "HOST[:INSIDE]", help_heading = "Files", value_hint = ValueHint::AnyPath,
        value_parser = OsStringValueParser::new().try_map(values::shown))]
    pub(crate) ro: Vec<Shown>,

    /// Show a file or directory of the host that the command may change.
    #[arg(long, value_name = "HOST[:INSIDE]", help_heading = "Files", value_hint = ValueHint::AnyPath,
        value_parser = OsStringValueParser::new().try_map(values::shown))]
    pub(crate) rw: Vec<Shown>,

    /// Use the programs of this file tree instead of the host's.
    #[arg(long, value_name = "DIR", help_heading = "Files", value_hint = ValueHint::DirPath)]
    pub(crate) rootfs: Option<PathBuf>,

    /// Set a variable, or copy one of yours by its name. Nothing else of your environment gets in.
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = OsStringValueParser::new().try_map(values::variable))]
    pub(crate) env: Vec<Variable>,

    /// Give the command a terminal, as an interactive shell or a full-screen program needs.
    #[arg(long)]
    pub(crate) tty: bool,

    /// What the command can reach: nothing but itself, or everything the host can [default: off].
    #[arg(long, value_name = "WHICH", help_heading = "Isolation")]
    pub(crate) network: Option<NetworkArg>,

    /// Make this port of the sandbox reachable from the host; where, is said on standard error.
    #[arg(long = "port", value_name = "PORT", help_heading = "Isolation",
        value_parser = values::port)]
    pub(crate) ports: Vec<u16>,

    /// The isolation below which nothing runs.
    #[arg(long, value_name = "LEVEL", default_value = "full", help_heading = "Isolation")]
    pub(crate) isolation: Level,

    /// End the command and everything it started after this long: 500ms, 10s, 5m, 1h.
    #[arg(long, value_name = "DURATION", help_heading = "Limits", value_parser = values::duration)]
    pub(crate) timeout: Option<Duration>,

    /// Processes and threads that may exist at once [default: 1024].
    #[arg(long, value_name = "N", help_heading = "Limits", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) pids: Option<u64>,

    /// Files that one process may have open [default: 4096].
    #[arg(long, value_name = "N", help_heading = "Limits", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) open_files: Option<u64>,

    /// Room in /tmp, and again in /dev/shm: 64k, 512m, 1g [default: 1g].
    #[arg(long, value_name = "SIZE", help_heading = "Limits", value_parser = values::size)]
    pub(crate) tmp_size: Option<u64>,

    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Print a report for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal.
    #[default]
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NetworkArg {
    /// Its own loopback, nothing else.
    Off,
    /// The host's network, all of it.
    Host,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// Own namespaces and file tree, no capabilities, seccomp and Landlock.
    Full,
    /// Landlock and seccomp on the host's own file tree, where namespaces cannot be had.
    Landlock,
    /// None: the command is an ordinary process of yours.
    None,
}

/// What a mistake on the command line exits with: a command run by `exec` could itself exit with the usual 2.
pub(crate) fn usage_code() -> u8 {
    let is_exec = std::env::args_os().skip(1).find(|word| word == "exec" || word == "doctor" || word == "completions");
    if is_exec.is_some_and(|word| word == "exec") { failure::OWN } else { 2 }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, error::ErrorKind};

    use super::*;

    fn exec(words: &[&str]) -> Result<Box<ExecArgs>, ErrorKind> {
        let words = ["sandbar", "exec"].iter().chain(words);
        match Args::try_parse_from(words).map_err(|error| error.kind())?.task {
            Task::Exec(args) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_makes_sense_to_clap() {
        Args::command().debug_assert();
    }

    #[test]
    fn everything_after_the_command_is_its_own() {
        let words = |given: &[&str]| exec(given).map(|args| args.command);
        let ls = || Ok(["ls", "-l", "--tty"].map(OsString::from).to_vec());
        assert_eq!(words(&["--", "ls", "-l", "--tty"]), ls());
        assert_eq!(words(&["ls", "-l", "--tty"]), ls());
        assert_eq!(words(&["--", "git", "log", "--", "x"]).map(|words| words.len()), Ok(4));
        assert_eq!(words(&["git", "log", "--", "x"]).map(|words| words.len()), Ok(4));
    }

    #[test]
    fn a_misspelt_option_is_never_taken_for_the_command() {
        assert_eq!(exec(&["--netwrok", "off", "--", "ls"]).err(), Some(ErrorKind::UnknownArgument));
        assert_eq!(exec(&[]).err(), Some(ErrorKind::MissingRequiredArgument));
        assert_eq!(exec(&["--tty"]).err(), Some(ErrorKind::MissingRequiredArgument));
    }

    #[test]
    fn options_may_be_repeated() {
        let args = exec(&["--port", "80", "--port", "81", "--env", "A=1", "--env", "B", "--", "x"]).expect("parsed");
        assert_eq!((args.ports.as_slice(), args.env.len()), ([80, 81].as_slice(), 2));
    }
}
