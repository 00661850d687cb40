//! The options for a machine, its workspace and its command, which several subcommands share.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{
    ValueEnum, ValueHint,
    builder::{OsStringValueParser, TypedValueParser},
};
use sandbar::{Cpus, client::Source};

use crate::{
    args::values::{self, GrantArg, Shown, Variable, WorkspaceDir},
    machine::client,
};

/// Options for a new machine.
#[derive(Debug, clap::Args)]
pub(crate) struct MachineArgs {
    /// Directory to use as /workspace, in place. Without this option, the workspace is empty, and deleted at the end.
    #[arg(long, value_name = "DIR[:ro]", help_heading = "Files", value_hint = ValueHint::DirPath,
        value_parser = OsStringValueParser::new().try_map(values::workspace))]
    pub(crate) workspace: Option<WorkspaceDir>,

    /// Show a file or directory of the host, read-only. INSIDE defaults to the same path.
    #[arg(long, value_name = "HOST[:INSIDE]", help_heading = "Files", value_hint = ValueHint::AnyPath,
        value_parser = OsStringValueParser::new().try_map(values::shown))]
    pub(crate) ro: Vec<Shown>,

    /// Show a file or directory of the host, writable.
    #[arg(long, value_name = "HOST[:INSIDE]", help_heading = "Files", value_hint = ValueHint::AnyPath,
        value_parser = OsStringValueParser::new().try_map(values::shown))]
    pub(crate) rw: Vec<Shown>,

    /// Access to git repositories. By default, repositories in writable directories are read-only. `ro` also shows, read-only,
    /// the repository of a worktree that lies elsewhere. `rw` makes repositories writable: git runs their hooks as you.
    #[arg(long, value_name = "HOW", help_heading = "Files")]
    pub(crate) git: Option<GitArg>,

    /// Root file system to use instead of the programs of the host.
    #[arg(long, value_name = "DIR", help_heading = "Files", value_hint = ValueHint::DirPath)]
    pub(crate) rootfs: Option<PathBuf>,

    #[arg(long, value_name = "WHERE", default_value = "local", help_heading = "Isolation", help = client::help(),
        value_parser = client::source)]
    pub(crate) sandbox: Source,

    /// Network of the command: only its own loopback, the internet, or all networks of the host [default: off].
    #[arg(long, value_name = "WHICH", help_heading = "Isolation")]
    pub(crate) network: Option<NetworkArg>,

    /// Make this port of the sandbox reachable from the host.
    #[arg(long = "port", value_name = "PORT", help_heading = "Isolation",
        value_parser = values::port)]
    pub(crate) ports: Vec<u16>,

    /// Minimum isolation. If the host cannot enforce it, the command does not run.
    #[arg(long, value_name = "LEVEL", default_value = "full", help_heading = "Isolation")]
    pub(crate) isolation: Level,

    /// Maximum number of processes and threads [default: 1024].
    #[arg(long, value_name = "N", help_heading = "Limits", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) pids: Option<u64>,

    /// Maximum number of open files per process [default: 4096].
    #[arg(long, value_name = "N", help_heading = "Limits", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) open_files: Option<u64>,

    /// Size limit of /tmp, and of /dev/shm: 64k, 512m, 1g; with --memory at most a third of that [default: 1g].
    #[arg(long, value_name = "SIZE", help_heading = "Limits", value_parser = values::size)]
    pub(crate) tmp_size: Option<u64>,

    #[command(flatten)]
    pub(crate) usage: UsageArgs,
}

/// Limits for all processes of a machine together.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct UsageArgs {
    /// Memory limit of all processes together: 64m, 2g. If the sum is above the limit, processes are killed.
    #[arg(long, value_name = "SIZE", help_heading = "Limits", value_parser = values::size)]
    pub(crate) memory: Option<u64>,

    /// CPU limit of all processes together: 2, 1.5.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) cpus: Option<Cpus>,

    /// Disk limit of the workspace and the home directories: 512m, 2g. Above the limit, commands are killed. No single file
    /// can be larger.
    #[arg(long, value_name = "SIZE", help_heading = "Limits", value_parser = values::size)]
    pub(crate) disk: Option<u64>,
}

/// Initial contents of the workspace of a new machine.
#[derive(Debug, clap::Args)]
pub(crate) struct FillArgs {
    /// Manifest that fills the workspace: JSON, YAML or TOML, as its extension says.
    #[arg(long, value_name = "FILE", help_heading = "Workspace", value_hint = ValueHint::FilePath)]
    pub(crate) manifest: Option<PathBuf>,

    /// Set a secret that the manifest names, or copy an environment variable of that name. Sandbar does not store its value,
    /// and hides it in the results of the tools of `run` and `mcp`. Commands can still store or print it.
    #[arg(long = "secret", value_name = "NAME[=VALUE]", help_heading = "Workspace",
        value_parser = OsStringValueParser::new().try_map(values::variable))]
    pub(crate) secrets: Vec<Variable>,

    /// Show a directory of the host, read-only unless `:rw` is added, and let the manifest copy from it.
    #[arg(long = "grant", value_name = "HOST[:INSIDE][:ro|rw]", help_heading = "Workspace",
        value_hint = ValueHint::AnyPath, value_parser = OsStringValueParser::new().try_map(values::grant))]
    pub(crate) grants: Vec<GrantArg>,

    /// Let the manifest mount directories below its own directory writable, not only read-only.
    #[arg(long, requires = "manifest", help_heading = "Workspace")]
    pub(crate) allow_mounts: bool,

    /// Let the manifest fetch from this host and its private networks, not only from public addresses.
    #[arg(long, help_heading = "Workspace")]
    pub(crate) allow_private_addresses: bool,

    /// Let the manifest download through the proxies of the environment, which resolve names without an address check.
    #[arg(long, help_heading = "Workspace")]
    pub(crate) fetch_via_proxy: bool,
}

impl FillArgs {
    /// Whether the workspace starts empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.manifest.is_none() && self.secrets.is_empty() && self.grants.is_empty()
    }
}

/// Options for a command.
#[derive(Debug, clap::Args)]
pub(crate) struct CommandArgs {
    /// Set an environment variable, or copy yours of that name. The command gets no other variable of yours.
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = OsStringValueParser::new().try_map(values::variable))]
    pub(crate) env: Vec<Variable>,

    /// User of the machine that runs the command: a name, which a new machine creates if needed, or a number, which has no
    /// home directory. The workspace belongs to the user `agent`; other users can only read it.
    #[arg(long, value_name = "NAME", value_parser = values::user)]
    pub(crate) user: Option<String>,

    /// Give the command a terminal, for interactive shells and full-screen programs.
    #[arg(long)]
    pub(crate) tty: bool,

    /// Kill the command and everything it started after this time: 500ms, 10s, 5m, 1h.
    #[arg(long, value_name = "DURATION", help_heading = "Limits", value_parser = values::duration)]
    pub(crate) timeout: Option<Duration>,

    /// Command and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NetworkArg {
    /// Only its own loopback.
    Off,
    /// Separate network with internet access; not available for machines on this host.
    Open,
    /// All networks of the host.
    Host,
}

/// Access of a sandbox to repositories. It is accepted on the command line only, not from a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GitArg {
    /// Read-only, including the repository of a worktree that lies elsewhere.
    Ro,
    /// Writable, including hooks and configuration.
    Rw,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// Separate namespaces and file tree, no capabilities, seccomp and Landlock.
    Full,
    /// Landlock and seccomp on the file tree of the host, if namespaces are not available.
    Landlock,
    /// No isolation: the command is an ordinary process of yours.
    None,
}

impl From<Level> for sandbar::machine::Demand {
    fn from(level: Level) -> Self {
        match level {
            Level::Full => Self::Full,
            Level::Landlock => Self::Landlock,
            Level::None => Self::None,
        }
    }
}
