//! The command line: every subcommand, option and word of help.

mod demo;
mod document;
mod gc;
mod machine;
mod mcp;
mod run;
mod runs;
mod session;

use std::ffi::OsString;

use clap::{ArgAction, CommandFactory, Parser, Subcommand, ValueEnum, error::ErrorKind};
use clap_complete::Shell;

pub(crate) use self::{
    demo::DemoArgs,
    document::{CheckArgs, ManifestTask, PatchArgs, ProfileArg, RenderArgs, SourceArgs},
    gc::{GcArgs, GcPlace},
    machine::{CommandArgs, FillArgs, GitArg, Level, MachineArgs, NetworkArg, UsageArgs},
    mcp::McpArgs,
    run::{AskArg, RunArgs},
    runs::{ApplyArgs, DiffArgs, RunsLsArgs, RunsRmArgs, RunsTask},
    session::{
        AttachArgs, CopyArgs, CreateArgs, KillArgs, LsArgs, PortsArgs, PsArgs, RmArgs, SessionExecArgs, SessionTask,
        ShellArgs, StopArgs,
    },
};
pub(crate) use crate::values::SandboxArg;
use crate::{failure, values::Place};

const EXAMPLES: &str = "\
Examples:
  sandbar demo                                    see an agent at work, without a key
  sandbar run \"fix the failing test\" --workspace .  let one work on a copy of this directory
  sandbar exec -- sh -c 'id; ls /'                run a program that sees nothing of yours
  sandbar exec --workspace . -- make test         let it work here, and only here
  sandbar exec --tty --workspace . -- bash        a shell in a sandbox
  sandbar session create --name work              a sandbox that stays
  sandbar session exec work -- make test          run something in it
  sandbar manifest check workspace.yaml           what is wrong with a declared workspace
  sandbar patch < changes.patch                   change files here, all of them or none
  sandbar mcp --workspace .                       a sandbox for any MCP client
  sandbar gc --dry-run                            what dead processes left
  sandbar doctor                                  what this host can enforce";

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
  The command's own, or 128 + the number of the signal that ended it.
  124  the command ran longer than --timeout
  125  sandbar itself failed, or was used wrongly; nothing is left running
  126  the command was found but could not be run
  127  the command was not found";

const PATCH_EXAMPLES: &str = "\
Examples:
  sandbar patch < changes.patch
  sandbar patch --workspace src --profile sdk \"$PATCH\"

Exit codes:
  0  applied
  1  refused, and nothing is changed
  2  used wrongly";

/// A computer of its own for an AI agent, or for any program you do not trust: isolated, without root, without a daemon.
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
    /// Let an agent work on something, on a machine of its own, and show what it changed.
    ///
    /// The agent gets a shell, a patch tool and an image viewer on an isolated machine without network, and works until it
    /// is done. With --workspace it works on a copy: `sandbar diff` and `sandbar apply` bring the changes home.
    #[command(after_help = run::EXAMPLES)]
    Run(Box<RunArgs>),
    /// See an agent at work without a key, without a network: only the model is played, by a script.
    ///
    /// The agent finds and fixes a bug in a small C project: every command, patch, process and refusal is real, on a real
    /// isolated machine. The finished workspace and the record of everything are kept.
    Demo(DemoArgs),
    /// Run a command in a new sandbox.
    ///
    /// The command sees the host's programs, an empty workspace and nothing else: none of your files, none of your
    /// environment, no network. Its output, its exit code and its standard input pass through unchanged (a terminal
    /// as input only with --tty). When it ends, everything it started is ended and removed.
    #[command(after_help = EXEC_EXAMPLES, override_usage = "sandbar exec [OPTIONS] -- <COMMAND>...")]
    Exec(Box<ExecArgs>),
    /// Sandboxes that stay: make one, work in it from anywhere, remove it.
    ///
    /// A session is a sandbox that outlives the command that made it. ID is its id, its name, or at least four
    /// characters that its id begins or ends with. Sessions are kept in $XDG_STATE_HOME/sandbar.
    #[command(subcommand)]
    Session(SessionTask),
    /// Declared workspaces: check them, show them.
    #[command(subcommand)]
    Manifest(ManifestTask),
    /// Apply a patch to the files of a directory: all of it, or nothing.
    ///
    /// The patch is in the format of the apply_patch tool (`*** Begin Patch`). Links that lead out of the directory are
    /// not followed, and what belongs to a git repository is not changed. One that is killed in the middle is taken back by
    /// the next.
    #[command(after_help = PATCH_EXAMPLES)]
    Patch(PatchArgs),
    /// Give any MCP client a sandbox: an MCP server on standard input and output.
    ///
    /// One sandbox is made when the server starts and removed when its standard input ends. Its tools run commands there,
    /// type to them, patch, read, write and list files and show images; they reach nothing that you do not name here. At
    /// most 64 commands are kept running: one more ends the one that was used least recently, and the answer says which.
    #[command(after_help = mcp::EXAMPLES)]
    Mcp(Box<McpArgs>),
    /// Show what a run changed in its working copy, as a diff that git understands.
    ///
    /// New files that the copy's ignore rules name are left out, and what changed in repositories (.git) is only counted.
    #[command(after_help = runs::DIFF_EXAMPLES)]
    Diff(DiffArgs),
    /// Bring what a run changed in its working copy to the directory that was copied: all of it, or nothing.
    ///
    /// A file that is no longer what was copied is a conflict: all of them are named, and nothing is changed. Links in the
    /// directory are not followed, and what belongs to a repository (.git) and links that would lead out are refused. Files
    /// that tools run or obey by themselves (.envrc, .vscode, .github/workflows) are marked, and written only after a yes.
    #[command(after_help = runs::APPLY_EXAMPLES)]
    Apply(ApplyArgs),
    /// Runs that were made: list them, remove them.
    ///
    /// Runs are kept in $XDG_STATE_HOME/sandbar/runs, each with its working copy, until they are removed.
    #[command(subcommand)]
    Runs(RunsTask),
    /// Remove what dead harnesses left: containers, volumes, machines, half-removed runs. And nothing else.
    ///
    /// Normally nothing is left. A machine whose supervisor died, a container whose maker was killed at the wrong moment, or
    /// a power cut leave something, and here it goes. What belongs to a process that lives, to a sandbox that stays, to
    /// another user or another host, what somebody named, and what cannot be judged is kept; -v says why.
    #[command(after_help = gc::EXAMPLES)]
    Gc(GcArgs),
    /// Show what this host can enforce, what it costs, and how to get what is missing; and what its container engine is.
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
    #[command(flatten)]
    pub(crate) machine: MachineArgs,

    #[command(flatten)]
    pub(crate) fill: FillArgs,

    #[command(flatten)]
    pub(crate) command: CommandArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Print a report for programs.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show an AppArmor profile that lets this program use user namespaces, and install it after asking.
    ///
    /// For hosts that leave them without powers to programs that have none (Ubuntu 23.10 and newer). It takes root; without,
    /// it is only shown.
    #[arg(long)]
    pub(crate) fix: bool,
    /// Install it without asking.
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

    /// What clap has no words for.
    fn check(&self) -> Result<(), clap::Error> {
        let Task::Session(SessionTask::Cp(CopyArgs { from, to, .. })) = &self.task else { return Ok(()) };
        let reason = match (from, to) {
            (Place::Host(_), Place::Host(_)) => "neither side is in a session; one must be ID:PATH",
            (Place::Inside(_), Place::Inside(_)) => {
                "both sides are in a session; one must be of the host (write ./a:b for a name with a colon)"
            }
            (Place::Host(_), Place::Inside(_)) | (Place::Inside(_), Place::Host(_)) => return Ok(()),
        };
        let mut command = Self::command();
        command.build();
        let session = command.find_subcommand_mut("session").and_then(|session| session.find_subcommand_mut("cp"));
        Err(session.map_or_else(
            || clap::Error::raw(ErrorKind::ArgumentConflict, reason),
            |copy| copy.error(ErrorKind::ArgumentConflict, reason),
        ))
    }

    /// Whether failures are told to programs.
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

/// What a mistake on the command line exits with: a command run by `exec` could itself exit with the usual 2.
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
    fn the_command_line_makes_sense_to_clap() {
        Args::command().debug_assert();
    }

    #[test]
    fn everything_after_the_command_is_its_own() {
        let words = |given: &[&str]| exec(given).map(|args| args.command.command);
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
        assert_eq!((args.machine.ports.as_slice(), args.command.env.len()), ([80, 81].as_slice(), 2));
    }

    #[test]
    fn only_what_runs_a_command_has_a_code_of_its_own_for_mistakes() {
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
    fn a_copy_has_one_side_in_a_session() {
        let copy = |from: &str, to: &str| {
            let args = Args::try_parse_from(["sandbar", "session", "cp", from, to]).expect("parsed");
            args.check().is_ok()
        };
        assert!(copy("a", "work:b") && copy("work:b", "./a:b"));
        assert!(!copy("a", "b") && !copy("work:a", "other:b"));
    }
}
