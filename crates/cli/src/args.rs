//! The command line: subcommands, options and help texts.

mod demo;
mod document;
mod gc;
mod machine;
mod mcp;
mod run;
mod runs;
mod session;
pub(crate) mod values;

use std::ffi::OsString;

use clap::{ArgAction, CommandFactory, Parser, Subcommand, ValueEnum, error::ErrorKind};
use clap_complete::Shell;

pub(crate) use self::{
    demo::DemoArgs,
    document::{CheckArgs, ManifestTask, PatchArgs, ProfileArg, RenderArgs, SourceArgs},
    gc::GcArgs,
    machine::{CommandArgs, FillArgs, GitArg, Level, MachineArgs, NetworkArg, UsageArgs},
    mcp::McpArgs,
    run::{AskArg, RunArgs},
    runs::{ApplyArgs, DiffArgs, RunsLsArgs, RunsRmArgs, RunsTask},
    session::{
        AttachArgs, CopyArgs, CreateArgs, KillArgs, LsArgs, PortsArgs, PsArgs, RmArgs, SessionExecArgs, SessionTask,
        ShellArgs, StopArgs,
    },
};
use crate::{args::values::CopyPath, failure};

const EXAMPLES: &str = "\
Examples:
  sandbar demo                                    watch an agent work, without an API key
  sandbar run \"fix the failing test\" --workspace .  let an agent work on a copy of this directory
  sandbar exec -- sh -c 'id; ls /'                run a program that cannot see your files
  sandbar exec --workspace . -- make test         run a program that can change only this directory
  sandbar exec --tty --workspace . -- bash        open a shell in a new sandbox
  sandbar session create --name work              create a sandbox that outlives this command
  sandbar session exec work -- make test          run a program in that sandbox
  sandbar manifest check workspace.yaml           list the mistakes in a manifest
  sandbar patch < changes.patch                   apply a patch to this directory, completely or not at all
  sandbar mcp --workspace .                       serve a sandbox to an MCP client
  sandbar gc --dry-run                            list the leftovers of dead processes
  sandbar doctor                                  show which isolation this host supports";

const EXEC_EXAMPLES: &str = "\
Examples:
  sandbar exec -- sh -c 'id; ls /'
  sandbar exec --workspace .:ro -- grep -r TODO .
  sandbar exec --workspace . --ro ~/datasets:/data --timeout 10m -- python3 train.py
  sandbar exec --workspace . --env TOKEN --env DEBUG=1 -- ./server
  sandbar exec --port 8000 -- python3 -m http.server 8000
  sandbar exec --manifest workspace.yaml --secret TOKEN -- ./run
  sandbar exec --tty --workspace . -- bash
  sandbar exec --workspace . --git rw -- git add --all

Exit codes:
  The exit code of the command, or 128 + the number of the signal that ended it.
  124  the command ran longer than --timeout
  125  sandbar failed, or the command line is wrong; nothing is left running
  126  the command was found but could not be run
  127  the command was not found";

const PATCH_EXAMPLES: &str = "\
Examples:
  sandbar patch < changes.patch
  sandbar patch --workspace src --profile sdk \"$PATCH\"

Exit codes:
  0  applied
  1  refused; nothing is changed
  2  the command line is wrong";

/// Run AI agents, and any program you do not trust, on an isolated machine: without root, without a daemon.
#[derive(Debug, Parser)]
#[command(name = "sandbar", version, after_help = EXAMPLES, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) task: Task,

    /// Log to standard error; repeat for more detail.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// When to colour the output of sandbar. NO_COLOR is respected.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_possible_values = false)]
    pub(crate) color: Color,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Run an agent on an isolated machine, and show what it changed.
    ///
    /// The agent gets a shell, a patch tool and an image viewer on an isolated machine without network, and works until it
    /// is done. With --workspace it works on a copy: `sandbar diff` shows the changes, and `sandbar apply` copies them back.
    #[command(after_help = run::EXAMPLES)]
    Run(Box<RunArgs>),
    /// Watch an agent work, without an API key and without network: a script replaces the model.
    ///
    /// The agent finds and fixes a bug in a small C project. Every command, patch, process and refusal is real, on an
    /// isolated machine. The resulting workspace and the audit log are kept.
    Demo(DemoArgs),
    /// Run a command in a new sandbox.
    ///
    /// The command sees the programs of the host and an empty workspace. It does not see your files, your environment
    /// variables or the network. Its output, exit code and standard input pass through unchanged (a terminal as input only
    /// with --tty). When the command ends, its processes are killed and its temporary files are removed.
    #[command(after_help = EXEC_EXAMPLES, override_usage = "sandbar exec [OPTIONS] -- <COMMAND>...")]
    Exec(Box<ExecArgs>),
    /// Create, use and remove sandboxes that outlive a command.
    ///
    /// A session is a sandbox that outlives the command that created it. ID is the id or the name of the session, or at
    /// least four characters that the id begins or ends with. Sessions are stored in $XDG_STATE_HOME/sandbar.
    #[command(subcommand)]
    Session(SessionTask),
    /// Check and show manifests.
    #[command(subcommand)]
    Manifest(ManifestTask),
    /// Apply a patch to the files of a directory, completely or not at all.
    ///
    /// The patch is in the format of the apply_patch tool (`*** Begin Patch`). Links that lead out of the directory are not
    /// followed, and the files of git repositories (.git) are not changed. If the command is killed, the next one undoes its
    /// changes.
    #[command(after_help = PATCH_EXAMPLES)]
    Patch(PatchArgs),
    /// Serve a sandbox to an MCP client, on standard input and output.
    ///
    /// The server creates one sandbox when it starts, and removes the sandbox when its standard input ends. The tools run
    /// commands, type to them, patch, read, write and list files, and show images. They reach only what the options name. At
    /// most 64 commands run at a time: one more ends the least recently used command, and the answer names it.
    #[command(after_help = mcp::EXAMPLES)]
    Mcp(Box<McpArgs>),
    /// Show what a run changed in its working copy, as a git diff.
    ///
    /// New files that match the ignore rules of the copy are left out. Changes in repositories (.git) are only counted.
    #[command(after_help = runs::DIFF_EXAMPLES)]
    Diff(DiffArgs),
    /// Apply the changes of a run to the directory that was copied, completely or not at all.
    ///
    /// A file that changed since it was copied is a conflict: all conflicts are listed, and nothing is changed. Links in the
    /// directory are not followed. Changes to repositories (.git) and links that lead out of the directory are refused. Files
    /// that tools run or read on their own (.envrc, .vscode, .github/workflows) are marked, and written only after you agree.
    #[command(after_help = runs::APPLY_EXAMPLES)]
    Apply(ApplyArgs),
    /// List and remove runs.
    ///
    /// Runs are stored in $XDG_STATE_HOME/sandbar/runs, each with its working copy, until they are removed.
    #[command(subcommand)]
    Runs(RunsTask),
    /// Remove the leftovers of dead processes: containers, volumes, machines, partly removed runs.
    ///
    /// Normally there are none. Leftovers remain after a power cut, if the supervisor of a machine dies, or if the process
    /// that creates a container is killed. Resources of a live process, of a session, of another user or of another host are
    /// retained, and so are named resources and those whose owner is unknown; -v shows why.
    #[command(after_help = gc::EXAMPLES)]
    Gc(GcArgs),
    /// Show which isolation and limits this host supports, what a sandbox costs, and how to enable what is missing.
    ///
    /// The report also describes the container engine. The exit code is 0 if `sandbar exec` reaches full isolation on this
    /// host, otherwise 1.
    Doctor(DoctorArgs),
    /// Print a completion script for a shell.
    ///
    /// For example: sandbar completions bash > ~/.local/share/bash-completion/completions/sandbar
    Completions {
        /// Shell.
        shell: Shell,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    pub(crate) machine: MachineArgs,

    #[command(flatten)]
    pub(crate) fill: FillArgs,

    #[command(flatten)]
    pub(crate) command: CommandArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show an AppArmor profile that lets sandbar use user namespaces, and install the profile after asking.
    ///
    /// Ubuntu 23.10 and newer give programs without a profile user namespaces without capabilities. Installing needs root;
    /// without root, the profile is only shown.
    #[arg(long)]
    pub(crate) fix: bool,
    /// Install the profile without asking.
    #[arg(long, requires = "fix")]
    pub(crate) yes: bool,
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

impl Args {
    /// Reads the command line.
    pub(crate) fn read(words: Vec<OsString>) -> Result<Self, clap::Error> {
        let args = Self::try_parse_from(words)?;
        args.check()?;
        Ok(args)
    }

    /// Checks that clap cannot express.
    fn check(&self) -> Result<(), clap::Error> {
        let Task::Session(SessionTask::Cp(CopyArgs { from, to, .. })) = &self.task else { return Ok(()) };
        let reason = match (from, to) {
            (CopyPath::Host(_), CopyPath::Host(_)) => "neither path is in a session; write one of them as ID:PATH",
            (CopyPath::Session(_), CopyPath::Session(_)) => {
                "both paths are in a session; one must be on the host (write ./a:b for a name with a colon)"
            }
            (CopyPath::Host(_), CopyPath::Session(_)) | (CopyPath::Session(_), CopyPath::Host(_)) => return Ok(()),
        };
        let mut command = Self::command();
        command.build();
        let session = command.find_subcommand_mut("session").and_then(|session| session.find_subcommand_mut("cp"));
        Err(session.map_or_else(
            || clap::Error::raw(ErrorKind::ArgumentConflict, reason),
            |copy| copy.error(ErrorKind::ArgumentConflict, reason),
        ))
    }

    /// Whether failures are reported as JSON.
    pub(crate) fn json(&self) -> bool {
        match &self.task {
            Task::Session(task) => task.json(),
            Task::Manifest(ManifestTask::Check(args)) => args.json,
            Task::Patch(args) => args.json,
            Task::Diff(args) => args.json,
            Task::Apply(args) => args.json,
            Task::Gc(args) => args.json,
            Task::Runs(task) => task.json(),
            Task::Run(args) => args.json,
            Task::Demo(args) => args.json,
            Task::Manifest(ManifestTask::Render(_))
            | Task::Exec(_)
            | Task::Mcp(_)
            | Task::Doctor(_)
            | Task::Completions { .. } => false,
        }
    }
}

/// Exit code for a mistake on the command line: a command of `exec` can itself exit with the usual 2.
pub(crate) fn usage_code(words: impl Iterator<Item = OsString>) -> u8 {
    const TASKS: [&str; 13] = [
        "run",
        "demo",
        "exec",
        "session",
        "manifest",
        "patch",
        "mcp",
        "diff",
        "apply",
        "runs",
        "gc",
        "doctor",
        "completions",
    ];
    const SESSION_TASKS: [&str; 13] =
        ["create", "ls", "exec", "attach", "ps", "kill", "shell", "read", "write", "cp", "ports", "stop", "rm"];
    let mut words = words.skip_while(|word| !TASKS.iter().any(|task| word == task));
    let runs_a_command = match words.next() {
        Some(word) if word == "exec" => true,
        Some(word) if word == "session" => {
            let task = words.find(|word| SESSION_TASKS.iter().any(|task| word == task));
            task.is_some_and(|task| task == "exec" || task == "shell" || task == "attach")
        }
        _ => false,
    };
    if runs_a_command { failure::OWN } else { 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(words: &[&str]) -> Result<Box<ExecArgs>, ErrorKind> {
        let words = ["sandbar", "exec"].iter().chain(words);
        match Args::try_parse_from(words).map_err(|error| error.kind())?.task {
            Task::Exec(args) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn clap_accepts_the_definition_of_the_command_line() {
        Args::command().debug_assert();
    }

    #[test]
    fn arguments_after_the_command_belong_to_the_command() {
        let words = |given: &[&str]| exec(given).map(|args| args.command.command);
        let ls = || Ok(["ls", "-l", "--tty"].map(OsString::from).to_vec());
        assert_eq!(words(&["--", "ls", "-l", "--tty"]), ls());
        assert_eq!(words(&["ls", "-l", "--tty"]), ls());
        assert_eq!(words(&["--", "git", "log", "--", "x"]).map(|words| words.len()), Ok(4));
        assert_eq!(words(&["git", "log", "--", "x"]).map(|words| words.len()), Ok(4));
    }

    #[test]
    fn a_misspelled_option_is_not_the_command() {
        assert_eq!(exec(&["--netwrok", "off", "--", "ls"]).err(), Some(ErrorKind::UnknownArgument));
        assert_eq!(exec(&[]).err(), Some(ErrorKind::MissingRequiredArgument));
        assert_eq!(exec(&["--tty"]).err(), Some(ErrorKind::MissingRequiredArgument));
    }

    #[test]
    fn options_may_be_repeated() {
        let args = exec(&["--port", "80", "--port", "81", "--env", "A=1", "--env", "B", "--", "x"]).expect("parsed");
        assert_eq!((args.machine.ports.as_slice(), args.command.env.len()), ([80, 81].as_slice(), 2));
    }

    #[test]
    fn only_tasks_that_run_a_command_have_their_own_exit_code_for_mistakes() {
        let code = |line: &str| usage_code(line.split(' ').map(OsString::from));
        for line in ["sandbar exec --x", "sandbar -v exec", "sandbar session exec a", "sandbar session -v shell"] {
            assert_eq!(code(line), failure::OWN, "{line}");
        }
        for line in
            ["sandbar", "sandbar session", "sandbar session ls exec", "sandbar doctor exec", "sandbar patch exec"]
        {
            assert_eq!(code(line), 2, "{line}");
        }
    }

    #[test]
    fn exactly_one_path_of_a_copy_is_in_a_session() {
        let copy = |from: &str, to: &str| {
            let args = Args::try_parse_from(["sandbar", "session", "cp", from, to]).expect("parsed");
            args.check().is_ok()
        };
        assert!(copy("a", "work:b") && copy("work:b", "./a:b"));
        assert!(!copy("a", "b") && !copy("work:a", "other:b"));
    }
}
