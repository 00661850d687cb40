//! The command line of `sandbar session`.

use std::{ffi::OsString, time::Duration};

use clap::{
    Subcommand,
    builder::{OsStringValueParser, TypedValueParser},
};
use sandbar::{Signal, machine::ProcessId};

use super::{CommandArgs, FillArgs, GitArg, MachineArgs};
use crate::args::values::{self, CopyPath, SessionPath, Variable};

const CREATE_EXAMPLES: &str = "\
Examples:
  id=$(sandbar session create)
  sandbar session create --name review --manifest workspace.yaml --secret TOKEN
  sandbar session create --workspace . --port 8000 --json
  sandbar session create --manifest task.json --grant ~/datasets:/data

The session lives until `sandbar session rm`, until the host restarts, or, with --idle, until it has been unused for
that time.";

const LS_EXAMPLES: &str = "\
Examples:
  sandbar session ls                      list the sessions, newest first
  sandbar session ls review               list the workspace of a session
  sandbar session ls -l review:src        list a directory of the workspace, with sizes and times";

const EXEC_EXAMPLES: &str = "\
Examples:
  sandbar session exec review -- make test
  sandbar session exec review --cwd src --timeout 5m -- cargo build
  echo hello | sandbar session exec review -- cat

  sandbar session exec --detach review -- make watch      prints a number for `session attach`

Exit codes are those of `sandbar exec`: that of the command, 124 if it timed out, 125 if sandbar failed.";

const ATTACH_EXAMPLES: &str = "\
Examples:
  sandbar session attach review           the only detached process
  sandbar session attach review 3         process 3

First, the output of the process while it was detached is shown, at most the last 1 MiB. If the process has a terminal,
it takes over yours, and Ctrl-P Ctrl-Q detaches. Otherwise its output is shown, standard input is passed to it, and Ctrl-C
detaches. The process continues after you detach, also if this command is killed or its input ends. The exit code is that
of the process, or 0 if you detach.";

const PS_EXAMPLES: &str = "\
Examples:
  sandbar session ps review
  sandbar session ps review --json

STATE is `attached` (to a client), `detached` (no client), or `exited`; with --json `held`, `alone`, or `ended`. An exited
process is listed until its exit code is read with `session attach`.";

const KILL_EXAMPLES: &str = "\
Examples:
  sandbar session kill review 3
  sandbar session kill review 3 --signal KILL";

const READ_EXAMPLES: &str = "\
Examples:
  sandbar session read review:report.md | less
  sandbar session read review:data.bin > data.bin";

const WRITE_EXAMPLES: &str = "\
Examples:
  sandbar session write review:brief.md < brief.md
  git diff | sandbar session write review:changes.diff";

const CP_EXAMPLES: &str = "\
Examples:
  sandbar session cp src review:              copy the directory to /workspace/src
  sandbar session cp review:out/report.pdf .
  sandbar session cp review:. result          copy the whole workspace
  sandbar session cp notes.txt review:docs/   copy into a directory
  sandbar session cp ./odd:name review:x      write ./ before a name of the host with a colon

Incomplete files are never visible: the copy is first written to `.sandbar-copy-…` in or beside the destination, which
needs the disk space twice, and then renamed. The next copy to the same destination removes the leftovers of a killed one.
Holes in a file are copied as zeros.";

const RM_EXAMPLES: &str = "\
Examples:
  sandbar session rm review
  sandbar session rm --all

Removing many files takes time: after a few seconds, a note says what is being removed. Exit codes: 0 everything is
removed, 75 the removal takes longer than ten minutes and continues in the background, 1 any other failure.";

/// Tasks of `sandbar session`. ID is the id or the name of a session, or at least four characters its id begins or ends with.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionTask {
    /// Create a sandbox that outlives this command, and print its id.
    #[command(after_help = CREATE_EXAMPLES)]
    Create(Box<CreateArgs>),
    /// List sessions, or the files of one session.
    #[command(after_help = LS_EXAMPLES)]
    Ls(LsArgs),
    /// Run a command in a session.
    ///
    /// The output, the exit code and the standard input of the command pass through unchanged. The session and its files
    /// remain when the command ends. With --detach, the command is only started, and continues without a client.
    #[command(after_help = EXEC_EXAMPLES, override_usage = "sandbar session exec [OPTIONS] <ID> -- <COMMAND>...")]
    Exec(Box<SessionExecArgs>),
    /// Attach to a detached process of a session.
    #[command(after_help = ATTACH_EXAMPLES)]
    Attach(AttachArgs),
    /// List the processes of a session: running commands, and commands that exited while they were detached.
    #[command(after_help = PS_EXAMPLES)]
    Ps(PsArgs),
    /// Send a signal to a process of a session and everything it started, attached or not.
    #[command(after_help = KILL_EXAMPLES)]
    Kill(KillArgs),
    /// Open a shell in a session. Without a terminal, the shell reads standard input.
    #[command(after_help = "Examples:\n  sandbar session shell review\n  sandbar session shell review < setup.sh")]
    Shell(ShellArgs),
    /// Print a file of a session.
    #[command(after_help = READ_EXAMPLES)]
    Read(FileArgs),
    /// Write standard input to a file of a session, completely or not at all.
    #[command(after_help = WRITE_EXAMPLES)]
    Write(FileArgs),
    /// Copy a file or a directory into or out of a session.
    ///
    /// As with cp, a copy to an existing directory is placed in it. Paths in a session are relative to the workspace. Copying
    /// out of a session never writes outside of the destination, refuses a tree with links that lead out of it, and follows
    /// a destination that is a symbolic link only if it ends with a slash. Pipes, sockets and devices are left out, with a
    /// warning.
    #[command(after_help = CP_EXAMPLES)]
    Cp(CopyArgs),
    /// Make the declared ports of a session reachable from the host, until Ctrl-C.
    #[command(after_help = "Example:\n  sandbar session ports review")]
    Ports(PortsArgs),
    /// Stop the processes and the machine of a session. The workspace is deleted, unless it was given with
    /// --workspace.
    #[command(after_help = "Example:\n  sandbar session stop review")]
    Stop(StopArgs),
    /// Remove sessions with their machines and files.
    #[command(after_help = RM_EXAMPLES,
        override_usage = "sandbar session rm [OPTIONS] <ID>...\n       sandbar session rm [OPTIONS] --all")]
    Rm(RmArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// Name of the session: letters, digits, dots, dashes and underscores.
    #[arg(long, value_name = "NAME", value_parser = values::name)]
    pub(crate) name: Option<String>,

    /// Set an environment variable for every command, or copy yours of that name. Its value is never saved.
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = OsStringValueParser::new().try_map(values::variable))]
    pub(crate) env: Vec<Variable>,

    /// Remove the session once it has been unused for this time: 10m, 8h. Its files are deleted, and its detached processes
    /// are killed.
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub(crate) idle: Option<Duration>,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) fill: FillArgs,

    #[command(flatten)]
    pub(crate) machine: MachineArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    /// Session, and directory of its workspace, whose files are listed instead of the sessions.
    #[arg(value_name = "ID[:PATH]", value_parser = OsStringValueParser::new().try_map(values::inside))]
    pub(crate) place: Option<SessionPath>,

    /// Show permissions, sizes and times of files.
    #[arg(short, long, requires = "place")]
    pub(crate) long: bool,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SessionExecArgs {
    /// Session.
    #[arg(value_name = "ID")]
    pub(crate) session: String,

    /// Directory of the workspace to start in.
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<OsString>,

    /// Start the command, print its process number, and leave it running; `session attach` attaches to it. At most 128
    /// commands run in a session at a time; `session kill` ends one.
    #[arg(short, long)]
    pub(crate) detach: bool,

    /// Print JSON.
    #[arg(long, requires = "detach")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) command: CommandArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AttachArgs {
    /// Session.
    #[arg(value_name = "ID")]
    pub(crate) session: String,

    /// Process number; required if several processes are detached.
    #[arg(value_name = "PROCESS")]
    pub(crate) process: Option<ProcessId>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PsArgs {
    /// Session.
    #[arg(value_name = "ID")]
    pub(crate) session: String,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct KillArgs {
    /// Session.
    #[arg(value_name = "ID")]
    pub(crate) session: String,

    /// Process number.
    #[arg(value_name = "PROCESS")]
    pub(crate) process: ProcessId,

    /// Signal: HUP, INT, QUIT, KILL, USR1, USR2 or TERM.
    #[arg(long, short, value_name = "NAME", default_value = "TERM", value_parser = values::signal)]
    pub(crate) signal: Signal,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShellArgs {
    /// Session.
    #[arg(value_name = "ID")]
    pub(crate) session: String,

    /// User of the session that runs the shell: a name from its manifest, or a number.
    #[arg(long, value_name = "NAME", value_parser = values::user)]
    pub(crate) user: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FileArgs {
    /// Session, and file in its workspace.
    #[arg(value_name = "ID:PATH", value_parser = OsStringValueParser::new().try_map(values::file_inside))]
    pub(crate) file: SessionPath,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CopyArgs {
    /// Source: ID:PATH, or a path of the host.
    #[arg(value_name = "SRC", value_parser = OsStringValueParser::new().try_map(values::place))]
    pub(crate) from: CopyPath,

    /// Destination: a path of the host, or ID:PATH.
    #[arg(value_name = "DST", value_parser = OsStringValueParser::new().try_map(values::place))]
    pub(crate) to: CopyPath,

    /// Copy symbolic links that lead out of the copied directory unchanged, instead of refusing the directory.
    #[arg(long)]
    pub(crate) keep_links: bool,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,

    /// `rw` lets a copy out of a session change git repositories of the host. Git runs their hooks and configuration as you.
    #[arg(long, value_name = "HOW")]
    pub(crate) git: Option<GitArg>,

    /// Maximum size of a copy out of a session, like 512m or 64g.
    #[arg(long, value_name = "SIZE", default_value = "16g", value_parser = values::size)]
    pub(crate) max_bytes: u64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PortsArgs {
    /// Session.
    #[arg(value_name = "ID")]
    pub(crate) session: String,

    /// Print one JSON line per port.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StopArgs {
    /// Session.
    #[arg(value_name = "ID")]
    pub(crate) session: String,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RmArgs {
    /// Sessions.
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) sessions: Vec<String>,

    /// Remove all sessions, including those with a damaged record, and machines without a session.
    #[arg(long)]
    pub(crate) all: bool,

    /// Ignore missing sessions, and drop the record of a session even if its machine cannot be removed within 30 seconds.
    #[arg(long)]
    pub(crate) force: bool,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

impl SessionTask {
    /// Whether failures are reported as JSON.
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::Create(args) => args.json,
            Self::Ls(args) => args.json,
            Self::Ports(args) => args.json,
            Self::Stop(args) => args.json,
            Self::Rm(args) => args.json,
            Self::Cp(args) => args.json,
            Self::Ps(args) => args.json,
            Self::Kill(args) => args.json,
            Self::Exec(args) => args.json,
            Self::Attach(_) | Self::Shell(_) | Self::Read(_) | Self::Write(_) => false,
        }
    }
}
