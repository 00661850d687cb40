//! The command line of `sandbar session`.

use std::{ffi::OsString, time::Duration};

use clap::{
    Subcommand,
    builder::{OsStringValueParser, TypedValueParser},
};
use sandbar::{ProcessId, Signal};

use super::{CommandArgs, FillArgs, GitArg, MachineArgs};
use crate::values::{self, Inside, Place, Variable};

const CREATE_EXAMPLES: &str = "\
Examples:
  id=$(sandbar session create)
  sandbar session create --name review --manifest workspace.yaml --secret TOKEN
  sandbar session create --workspace . --port 8000 --json
  sandbar session create --manifest task.json --grant ~/datasets:/data

The session lives until `sandbar session rm`, or until the host restarts, or, with --idle, until nobody has used it
for so long.";

const LS_EXAMPLES: &str = "\
Examples:
  sandbar session ls                      the sessions, newest first
  sandbar session ls review               what is in a session's workspace
  sandbar session ls -l review:src        a directory of it, with sizes and times";

const EXEC_EXAMPLES: &str = "\
Examples:
  sandbar session exec review -- make test
  sandbar session exec review --cwd src --timeout 5m -- cargo build
  echo hello | sandbar session exec review -- cat

  sandbar session exec --detach review -- make watch      prints a number for `session attach`

Exit codes are those of `sandbar exec`: the command's own, 124 out of time, 125 sandbar itself failed.";

const ATTACH_EXAMPLES: &str = "\
Examples:
  sandbar session attach review           the only process that nobody is attached to
  sandbar session attach review 3         this one

What it printed while nobody was there comes first, at most its last mebibyte. A process with a terminal takes over
yours; Ctrl-P Ctrl-Q leaves it. One without shows what it prints and is typed to line by line; Ctrl-C leaves it. It goes
on when you leave, also when this command is killed or its input ends. The exit code is the process's own, or 0.";

const PS_EXAMPLES: &str = "\
Examples:
  sandbar session ps review
  sandbar session ps review --json

STATE is `held` while somebody is attached, `alone` while nobody is, `ended` until somebody attaches to hear how.";

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
  sandbar session cp src review:              copies the directory to /workspace/src
  sandbar session cp review:out/report.pdf .
  sandbar session cp review:. result          copies the whole workspace
  sandbar session cp notes.txt review:docs/   into a directory
  sandbar session cp ./odd:name review:x      a colon in a name of the host needs a slash before it

No file appears half-written: a copy is written to `.sandbar-copy-…` in or beside the place it goes to, which takes as much
room once more, and renamed when all of it is there. What a killed copy left is removed by the next one to that place. Holes
in a file are copied as zeros.";

const RM_EXAMPLES: &str = "\
Examples:
  sandbar session rm review
  sandbar session rm --all

Removing many files takes time: after a few seconds it is said what is waited for. Exit codes: 0 everything is gone,
75 some files are still being removed after ten minutes, which goes on by itself, 1 anything else.";

/// What to do with sessions. ID is a session's id, its name, or at least four characters its id begins or ends with.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionTask {
    /// Make a sandbox that stays, and print its id.
    #[command(after_help = CREATE_EXAMPLES)]
    Create(Box<CreateArgs>),
    /// List sessions, or the files of one.
    #[command(after_help = LS_EXAMPLES)]
    Ls(LsArgs),
    /// Run a command in a session.
    ///
    /// Its output, its exit code and its standard input pass through unchanged. When it ends it leaves the session and
    /// its files as they are then. With --detach it is only started, and goes on by itself.
    #[command(after_help = EXEC_EXAMPLES, override_usage = "sandbar session exec [OPTIONS] <ID> -- <COMMAND>...")]
    Exec(Box<SessionExecArgs>),
    /// Attach to a process of a session that goes on by itself.
    #[command(after_help = ATTACH_EXAMPLES)]
    Attach(AttachArgs),
    /// List the processes of a session: commands that run, and those that ended when nobody was attached.
    #[command(after_help = PS_EXAMPLES)]
    Ps(PsArgs),
    /// Send a signal to a process of a session and everything it started, whoever is attached to it.
    #[command(after_help = KILL_EXAMPLES)]
    Kill(KillArgs),
    /// Open a shell in a session. Without a terminal, it runs what is on standard input.
    #[command(after_help = "Examples:\n  sandbar session shell review\n  sandbar session shell review < setup.sh")]
    Shell(ShellArgs),
    /// Print a file of a session.
    #[command(after_help = READ_EXAMPLES)]
    Read(FileArgs),
    /// Write standard input to a file of a session: all of it, or nothing.
    #[command(after_help = WRITE_EXAMPLES)]
    Write(FileArgs),
    /// Copy a file or a directory into or out of a session.
    ///
    /// As with cp: what is copied to a directory that exists lands in it. A path is relative to the workspace. Copying out,
    /// nothing is ever written outside of the destination, a tree with links that lead out of it is refused, and a
    /// destination that is a symbolic link itself is followed only with a slash after it. Pipes, sockets and devices are
    /// left out, and said to be.
    #[command(after_help = CP_EXAMPLES)]
    Cp(CopyArgs),
    /// Make the declared ports of a session reachable, until Ctrl-C.
    #[command(after_help = "Example:\n  sandbar session ports review")]
    Ports(PortsArgs),
    /// End a session's processes and its machine. A workspace that was not given is gone with it.
    #[command(after_help = "Example:\n  sandbar session stop review")]
    Stop(StopArgs),
    /// Remove sessions and everything they have.
    #[command(after_help = RM_EXAMPLES,
        override_usage = "sandbar session rm [OPTIONS] <ID>...\n       sandbar session rm [OPTIONS] --all")]
    Rm(RmArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// A name to find it by: letters, digits, dots, dashes and underscores.
    #[arg(long, value_name = "NAME", value_parser = values::name)]
    pub(crate) name: Option<String>,

    /// Set a variable for every command, or copy one of yours by its name. It is never saved.
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = OsStringValueParser::new().try_map(values::variable))]
    pub(crate) env: Vec<Variable>,

    /// End it by itself when nobody has used it for this long: 10m, 8h. Everything it has is removed then, also what still
    /// runs by itself.
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub(crate) idle: Option<Duration>,

    /// Print a document for programs.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) fill: FillArgs,

    #[command(flatten)]
    pub(crate) machine: MachineArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    /// List the files of this session instead, in this directory.
    #[arg(value_name = "ID[:PATH]", value_parser = OsStringValueParser::new().try_map(values::inside))]
    pub(crate) place: Option<Inside>,

    /// Show permissions, sizes and times of files.
    #[arg(short, long, requires = "place")]
    pub(crate) long: bool,

    /// Print a document for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SessionExecArgs {
    /// The session.
    #[arg(value_name = "ID")]
    pub(crate) session: String,

    /// Start in this directory of the workspace.
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<OsString>,

    /// Start it, print the number it is known by, and leave it running; `session attach` comes back to it. At most 128 of
    /// them run in a session at a time; `session kill` ends one.
    #[arg(short, long)]
    pub(crate) detach: bool,

    /// Print a document for programs.
    #[arg(long, requires = "detach")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) command: CommandArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AttachArgs {
    /// The session.
    #[arg(value_name = "ID")]
    pub(crate) session: String,

    /// The number of the process; needed when there is more than one that nobody is attached to.
    #[arg(value_name = "PROCESS")]
    pub(crate) process: Option<ProcessId>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PsArgs {
    /// The session.
    #[arg(value_name = "ID")]
    pub(crate) session: String,

    /// Print a document for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct KillArgs {
    /// The session.
    #[arg(value_name = "ID")]
    pub(crate) session: String,

    /// The number of the process.
    #[arg(value_name = "PROCESS")]
    pub(crate) process: ProcessId,

    /// Which signal: HUP, INT, QUIT, KILL, USR1, USR2 or TERM.
    #[arg(long, short, value_name = "NAME", default_value = "TERM", value_parser = values::signal)]
    pub(crate) signal: Signal,

    /// Print a document for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShellArgs {
    /// The session.
    #[arg(value_name = "ID")]
    pub(crate) session: String,

    /// As this user of the session, which its manifest names: a name, or a number.
    #[arg(long, value_name = "NAME", value_parser = values::user)]
    pub(crate) user: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FileArgs {
    /// The session, and the file in its workspace.
    #[arg(value_name = "ID:PATH", value_parser = OsStringValueParser::new().try_map(values::file_inside))]
    pub(crate) file: Inside,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CopyArgs {
    /// What to copy: ID:PATH, or a path of the host.
    #[arg(value_name = "SRC", value_parser = OsStringValueParser::new().try_map(values::place))]
    pub(crate) from: Place,

    /// Where to: the other of the two.
    #[arg(value_name = "DST", value_parser = OsStringValueParser::new().try_map(values::place))]
    pub(crate) to: Place,

    /// Copy symbolic links that lead out of the copied directory as they are, instead of refusing it.
    #[arg(long)]
    pub(crate) keep_links: bool,

    /// Print a document for programs.
    #[arg(long)]
    pub(crate) json: bool,

    /// `rw` lets a copy out of a session replace what belongs to a repository of the host: hooks and configuration run as you.
    #[arg(long, value_name = "HOW")]
    pub(crate) git: Option<GitArg>,

    /// Copy no more than this out of a session at once, like 512m or 64g.
    #[arg(long, value_name = "SIZE", default_value = "16g", value_parser = values::size)]
    pub(crate) max_bytes: u64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PortsArgs {
    /// The session.
    #[arg(value_name = "ID")]
    pub(crate) session: String,

    /// Print one line for programs per port.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StopArgs {
    /// The session.
    #[arg(value_name = "ID")]
    pub(crate) session: String,

    /// Print a document for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RmArgs {
    /// The sessions.
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) sessions: Vec<String>,

    /// All of them, those whose record is damaged too, and machines that no session has.
    #[arg(long)]
    pub(crate) all: bool,

    /// Be content when there is no such session, and forget those whose machine cannot be removed, or not in half a minute.
    #[arg(long)]
    pub(crate) force: bool,

    /// Print a document for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

impl SessionTask {
    /// Whether failures are told to programs.
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
