//! The options that describe a machine, what fills it, and a command on it; several subcommands have them in common.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{
    ValueEnum, ValueHint,
    builder::{OsStringValueParser, TypedValueParser},
};
use sandbar::Cpus;

use crate::values::{self, GrantArg, SandboxArg, Shown, Variable, WorkspaceDir};

/// What a new machine should be.
#[derive(Debug, clap::Args)]
pub(crate) struct MachineArgs {
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

    /// Repositories in what the command may change are read-only. `ro` also shows a worktree's repository that lies elsewhere,
    /// for reading. `rw` lets the command change repositories: what it puts into their hooks and configuration runs as you.
    #[arg(long, value_name = "HOW", help_heading = "Files")]
    pub(crate) git: Option<GitArg>,

    /// Use the programs of this file tree instead of the host's.
    #[arg(long, value_name = "DIR", help_heading = "Files", value_hint = ValueHint::DirPath)]
    pub(crate) rootfs: Option<PathBuf>,

    /// Where the machine comes from: `local`, the namespaces of this host, or `docker:IMAGE`, a container.
    #[arg(long, value_name = "WHERE", default_value = "local", help_heading = "Isolation",
        value_parser = values::sandbox)]
    pub(crate) sandbox: SandboxArg,

    /// What the command can reach: nothing but itself, or everything the host can [default: off].
    #[arg(long, value_name = "WHICH", help_heading = "Isolation")]
    pub(crate) network: Option<NetworkArg>,

    /// Make this port of the sandbox reachable from the host.
    #[arg(long = "port", value_name = "PORT", help_heading = "Isolation",
        value_parser = values::port)]
    pub(crate) ports: Vec<u16>,

    /// The isolation below which nothing runs.
    #[arg(long, value_name = "LEVEL", default_value = "full", help_heading = "Isolation")]
    pub(crate) isolation: Level,

    /// Processes and threads that may exist at once [default: 1024].
    #[arg(long, value_name = "N", help_heading = "Limits", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) pids: Option<u64>,

    /// Files that one process may have open [default: 4096].
    #[arg(long, value_name = "N", help_heading = "Limits", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) open_files: Option<u64>,

    /// Room in /tmp, and again in /dev/shm: 64k, 512m, 1g; with --memory at most a third of it [default: 1g].
    #[arg(long, value_name = "SIZE", help_heading = "Limits", value_parser = values::size)]
    pub(crate) tmp_size: Option<u64>,

    #[command(flatten)]
    pub(crate) usage: UsageArgs,
}

/// What all processes of a machine may use up together.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct UsageArgs {
    /// Memory of everything that runs: 64m, 2g. What goes past it is ended.
    #[arg(long, value_name = "SIZE", help_heading = "Limits", value_parser = values::size)]
    pub(crate) memory: Option<u64>,

    /// Processors for everything that runs, in parts: 2, 1.5.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) cpus: Option<Cpus>,

    /// Room on disk in the workspace and the homes: 512m, 2g. What goes past it is ended; no single file is larger anywhere.
    #[arg(long, value_name = "SIZE", help_heading = "Limits", value_parser = values::size)]
    pub(crate) disk: Option<u64>,
}

/// What the workspace of a new machine begins with.
#[derive(Debug, clap::Args)]
pub(crate) struct FillArgs {
    /// Fill the workspace as this manifest says: JSON, YAML or TOML, by the end of its name.
    #[arg(long, value_name = "FILE", help_heading = "Workspace", value_hint = ValueHint::FilePath)]
    pub(crate) manifest: Option<PathBuf>,

    /// Give a secret that the manifest names, or copy one of your variables by its name. Sandbar does not write it down, and
    /// hides it in what the tools of `run` and `mcp` answer; what commands do with it is up to them.
    #[arg(long = "secret", value_name = "NAME[=VALUE]", help_heading = "Workspace",
        value_parser = OsStringValueParser::new().try_map(values::variable))]
    pub(crate) secrets: Vec<Variable>,

    /// Show a directory of the host, read-only unless it says :rw, and let the manifest copy from it.
    #[arg(long = "grant", value_name = "HOST[:INSIDE][:ro|rw]", help_heading = "Workspace",
        value_hint = ValueHint::AnyPath, value_parser = OsStringValueParser::new().try_map(values::grant))]
    pub(crate) grants: Vec<GrantArg>,

    /// Let the manifest show directories below its own writable, not only for reading.
    #[arg(long, requires = "manifest", help_heading = "Workspace")]
    pub(crate) allow_mounts: bool,

    /// Let the manifest fetch from this host and its private networks, not only from public addresses.
    #[arg(long, help_heading = "Workspace")]
    pub(crate) allow_private_addresses: bool,

    /// Let the manifest download through the proxies of the environment, which resolve names without this check.
    #[arg(long, help_heading = "Workspace")]
    pub(crate) fetch_via_proxy: bool,
}

impl FillArgs {
    /// Whether there is nothing to fill it with.
    pub(crate) fn is_empty(&self) -> bool {
        self.manifest.is_none() && self.secrets.is_empty() && self.grants.is_empty()
    }
}

/// What to run, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct CommandArgs {
    /// Set a variable, or copy one of yours by its name. Nothing else of your environment gets in.
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = OsStringValueParser::new().try_map(values::variable))]
    pub(crate) env: Vec<Variable>,

    /// Run it as this user of the machine: a name, which a new machine is given if it does not have it, or a number, which
    /// has no home. The workspace belongs to agent; others read it.
    #[arg(long, value_name = "NAME", value_parser = values::user)]
    pub(crate) user: Option<String>,

    /// Give the command a terminal, as an interactive shell or a full-screen program needs.
    #[arg(long)]
    pub(crate) tty: bool,

    /// End the command and everything it started after this long: 500ms, 10s, 5m, 1h.
    #[arg(long, value_name = "DURATION", help_heading = "Limits", value_parser = values::duration)]
    pub(crate) timeout: Option<Duration>,

    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NetworkArg {
    /// Its own loopback, nothing else.
    Off,
    /// The host's network, all of it.
    Host,
}

/// What a sandbox may do to repositories. It is typed, and stands in no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GitArg {
    /// Read them, also the one of a worktree that lies elsewhere.
    Ro,
    /// Change them, their hooks and configuration included.
    Rw,
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

impl From<Level> for sandbar::Demand {
    fn from(level: Level) -> Self {
        match level {
            Level::Full => Self::Full,
            Level::Landlock => Self::Landlock,
            Level::None => Self::None,
        }
    }
}
