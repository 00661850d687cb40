//! Converts checked arguments to a machine specification, a manifest and a command.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{self, Component, Path, PathBuf},
};

use rustix::process::geteuid;
use sandbar::{
    Access, Command, EnvValue, HostMount, Limits, MachinePath, MachineSpec, Manifest, Network, PathGrant, SecretStore,
    Workspace, machine::takes_an_account, sandbox::fetch::Proxies,
};
use sandbar_runs::git::{GitAccess, Guard, HiddenCause, Worktree};

use crate::{
    args::{
        CommandArgs, FillArgs, GitArg, Level, MachineArgs, NetworkArg, UsageArgs,
        values::{GrantArg, Shown, Variable, WorkspaceDir},
    },
    failure::Failure,
    machine::client,
    manifest,
    render::Render,
    streams::terminal,
};

/// The source of the command's standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// Empty.
    Empty,
    /// Standard input of this process.
    Copied,
    /// The terminal of this process, in raw mode.
    Typed,
}

impl Input {
    pub(crate) fn choose(wants_terminal: bool, has_terminal: bool) -> Self {
        match (wants_terminal, has_terminal) {
            (true, true) => Self::Typed,
            (false, true) => Self::Empty,
            (_, false) => Self::Copied,
        }
    }
}

/// The specification of the machine.
pub(crate) fn spec(args: &MachineArgs) -> Result<MachineSpec, Failure> {
    can_be_kept(args)?;
    let mut mounts = Vec::with_capacity(args.ro.len() + args.rw.len());
    for shown in &args.ro {
        mounts.push(mount("--ro", shown, Access::ReadOnly)?);
    }
    for shown in &args.rw {
        mounts.push(mount("--rw", shown, Access::ReadWrite)?);
    }
    if let Some(rootfs) = &args.rootfs {
        directory("--rootfs", rootfs)?;
    }
    let mut spec = MachineSpec::default()
        .workspace(workspace(args)?)
        .mounts(mounts)
        .network(network(args.network))
        .ports(args.ports.clone())
        .isolation(args.isolation.into())
        .limits(limits(args));
    spec.rootfs = args.rootfs.clone();
    client::refuse_unenforced(&args.sandbox, &spec)?;
    Ok(spec)
}

/// The network of a machine; without an option, none.
pub(crate) fn network(network: Option<NetworkArg>) -> Network {
    match network {
        None | Some(NetworkArg::Off) => Network::Off,
        Some(NetworkArg::Open) => Network::Open,
        Some(NetworkArg::Host) => Network::Host,
    }
}

/// What `--git` allows.
pub(crate) fn git_access(git: Option<GitArg>) -> GitAccess {
    match git {
        None => GitAccess::Protected,
        Some(GitArg::Ro) => GitAccess::Readable,
        Some(GitArg::Rw) => GitAccess::Writable,
    }
}

/// Shows the machine the repository of a worktree if the caller asked for that. Otherwise says why it is not shown.
pub(crate) fn hidden(worktree: &Worktree, spec: &mut MachineSpec, git: Option<GitArg>) -> Option<String> {
    let hidden = worktree.show(spec, git_access(git))?;
    Some(match hidden.cause {
        HiddenCause::NotAsked => format!("{hidden}; --git ro shows it for reading"),
        HiddenCause::Unknown | HiddenCause::Path => hidden.to_string(),
    })
}

/// Protects the git repositories in the directories that the machine can write to.
pub(crate) fn guard(
    spec: &mut MachineSpec,
    manifest: &Manifest,
    args: &MachineArgs,
    render: &Render,
) -> Result<Guard, Failure> {
    if let Workspace::Host { path, .. } = spec.workspace.clone()
        && let Some(hidden) = Worktree::of(&path).and_then(|worktree| hidden(&worktree, spec, args.git))
    {
        render.note(&format!("{}: {hidden}", path.display()));
    }
    let (guard, notes) = Guard::set_up(spec, manifest, git_access(args.git))?;
    notes.iter().for_each(|note| render.note(note));
    Ok(guard)
}

/// Adds a user to the machine.
pub(crate) fn inhabited(mut spec: MachineSpec, user: Option<&String>) -> MachineSpec {
    if let Some(name) = user.filter(|name| takes_an_account(name)) {
        spec.accounts = spec.accounts.user(name);
    }
    spec
}

/// Adds a user to the manifest, if it is missing: no user can be added to an existing machine. The user comes last, so that
/// the others keep their uids.
pub(crate) fn with_user(mut manifest: Manifest, user: Option<&String>) -> Result<Manifest, Failure> {
    let is_missing = |name: &&String| takes_an_account(name) && !manifest.all_users().contains(name.as_str());
    let Some(name) = user.filter(is_missing) else { return Ok(manifest) };
    if manifest.all_groups().iter().any(|group| group.name == *name) {
        let what =
            format!("cannot make a user {name}; the manifest has a group of this name that is not the group of a user");
        return Err(Failure::new(what).next("name one of its users, or add this one to the manifest"));
    }
    manifest.add_user(name);
    Ok(manifest)
}

/// Warns that another user of the machine can create files in the caller's directory that the caller cannot remove.
pub(crate) fn warn_of_foreign_files(workspace: Option<&WorkspaceDir>, user: Option<&String>, render: &Render) {
    let is_changed = workspace.is_some_and(|dir| dir.access == Access::ReadWrite);
    if let Some(name) = user.filter(|name| is_changed && takes_an_account(name) && !geteuid().is_root()) {
        render.note(&format!(
            "what {name} makes in your directory will not belong to you, and may be yours to read only"
        ));
    }
}

/// What was asked for by name must hold: a weaker level that cannot keep it is refused, not taken for good enough.
fn can_be_kept(args: &MachineArgs) -> Result<(), Failure> {
    let lost = match args.isolation {
        Level::Full => None,
        _ if args.pids.is_some() => Some("--pids"),
        _ if args.tmp_size.is_some() => Some("--tmp-size"),
        Level::None if args.network == Some(NetworkArg::Off) => Some("--network off"),
        Level::Landlock | Level::None => None,
    };
    let Some(option) = lost else { return Ok(()) };
    Err(Failure::new(format!("{option} needs full isolation")).next(format!("leave {option} out, or --isolation")))
}

/// The command that the arguments ask for.
pub(crate) fn command(args: &CommandArgs, input: Input) -> Result<Command, Failure> {
    let mut command = Command::new(args.command.clone());
    if args.tty {
        let own = env::var("TERM").ok();
        command = command.tty(terminal::size()).env("TERM", terminal::kind(own.as_deref()));
    }
    for variable in &args.env {
        command = command.env(&variable.name, value("--env", variable)?);
    }
    if input == Input::Copied {
        command = command.stdin();
    }
    if let Some(timeout) = args.timeout {
        command = command.deadline(timeout);
    }
    command.user.clone_from(&args.user);
    Ok(command)
}

/// A workspace is filled where its manifest says it is, and only a file tree of its own has that place to itself.
pub(crate) fn can_be_filled(args: &MachineArgs) -> Result<(), Failure> {
    if args.isolation == Level::Full {
        return Ok(());
    }
    let what = "a workspace that is filled or that stays needs full isolation";
    Err(Failure::new(what).next("leave --isolation out; `sandbar doctor` shows what this host can enforce"))
}

/// What fills the workspace: the manifest, with the variables and places that were given beside it. The variables are
/// ephemeral, so that they are never saved.
pub(crate) fn manifest(fill: &FillArgs, env: &[Variable]) -> Result<Manifest, Failure> {
    let manifest = match &fill.manifest {
        Some(path) if fill.allow_mounts => manifest::load(path)?.trust_mounts(),
        Some(path) => manifest::load(path)?,
        None => Manifest::new(),
    };
    let manifest = with_addresses(manifest, fill);
    granting(with_env(manifest, env)?, &fill.grants)
}

/// The same manifest, with the addresses that were allowed.
pub(crate) fn with_addresses(manifest: Manifest, fill: &FillArgs) -> Manifest {
    if fill.allow_private_addresses { manifest.allow_private_addresses() } else { manifest }
}

/// The proxies that the manifest's downloads go through.
pub(crate) fn proxies(fill: &FillArgs) -> Result<Proxies, Failure> {
    if !fill.fetch_via_proxy {
        return Ok(Proxies::none());
    }
    Proxies::from_env().map_err(|error| Failure::new("cannot use --fetch-via-proxy").because(error))
}

/// The same manifest with these variables.
pub(crate) fn with_env(mut manifest: Manifest, env: &[Variable]) -> Result<Manifest, Failure> {
    for variable in env {
        let (name, value) = text("--env", variable)?;
        manifest = manifest.env(name, EnvValue::new(value).ephemeral());
    }
    Ok(manifest)
}

/// The same manifest with these places of the host.
pub(crate) fn granting(mut manifest: Manifest, grants: &[GrantArg]) -> Result<Manifest, Failure> {
    for GrantArg { shown, access } in grants {
        let HostMount { inside, .. } = mount("--grant", shown, *access)?;
        let refuse = |error| Failure::new(format!("cannot use --grant {}", shown.host.display())).because(error);
        let grant = PathGrant::new(inside).host_path(same_place(&shown.host).map_err(refuse)?);
        manifest = manifest.grant(if *access == Access::ReadOnly { grant.read_only() } else { grant });
    }
    Ok(manifest)
}

/// The secrets that were given.
pub(crate) fn secrets(fill: &FillArgs) -> Result<SecretStore, Failure> {
    fill.secrets.iter().try_fold(SecretStore::new(), |store, variable| {
        let (name, value) = text("--secret", variable)?;
        Ok(store.with(name, value))
    })
}

/// The secrets for a session with tools; those in `shown` are not masked in the tools' results.
pub(crate) fn secrets_of_tools(fill: &FillArgs, shown: &[String]) -> Result<SecretStore, Failure> {
    shown.iter().try_fold(secrets(fill)?, |store, name| {
        if !store.contains(name) {
            let next = format!("give it: --secret {name}");
            return Err(Failure::new(format!("cannot show the secret {name}; there is none of that name")).next(next));
        }
        Ok(store.shown(name))
    })
}

/// Warns about secrets that are too short to be masked.
pub(crate) fn warn_of_short_secrets(secrets: &SecretStore, render: &Render) {
    for name in secrets.too_short() {
        render.note(&format!("the secret {name} has fewer than 8 bytes, and is not hidden in what tools answer"));
    }
}

/// The given value of a variable, or its value in this process.
fn value(option: &str, variable: &Variable) -> Result<OsString, Failure> {
    let Variable { name, value } = variable;
    value.clone().or_else(|| env::var_os(name)).ok_or_else(|| {
        let name = name.display();
        Failure::new(format!("cannot copy the variable {name}; it is not set here"))
            .next(format!("set it, or give its value: {option} {name}=VALUE"))
    })
}

/// The name and the value, which must be UTF-8.
fn text(option: &str, variable: &Variable) -> Result<(String, String), Failure> {
    let value = value(option, variable)?;
    let pair = variable.name.clone().into_string().ok().zip(value.into_string().ok());
    let name = variable.name.display();
    pair.ok_or_else(|| Failure::new(format!("cannot use {option} {name}; it is not UTF-8")))
}

fn limits(args: &MachineArgs) -> Limits {
    let usual = Limits::default();
    using(&args.usage)
        .pids(args.pids.unwrap_or(usual.pids))
        .open_files(args.open_files.unwrap_or(usual.open_files))
        .tmp_bytes(args.tmp_size.unwrap_or(usual.tmp_bytes))
}

/// The default limits with these of the options.
pub(crate) fn using(usage: &UsageArgs) -> Limits {
    Limits::default().memory(usage.memory).cpus(usage.cpus).disk(usage.disk)
}

fn workspace(args: &MachineArgs) -> Result<Workspace, Failure> {
    let Some(given) = &args.workspace else { return Ok(Workspace::Temporary) };
    directory("--workspace", &given.path)?;
    Ok(Workspace::Host { path: given.path.clone(), access: given.access })
}

pub(crate) fn directory(option: &str, path: &Path) -> Result<(), Failure> {
    let refuse = || Failure::new(format!("cannot use {option} {}", path.display()));
    match fs::metadata(path) {
        Err(error) => Err(refuse().because(error).next("give a directory that exists and that you can enter")),
        Ok(found) if !found.is_dir() => {
            Err(refuse().because(std::io::Error::from(std::io::ErrorKind::NotADirectory)).next("give a directory"))
        }
        Ok(_) => Ok(()),
    }
}

fn mount(option: &str, shown: &Shown, access: Access) -> Result<HostMount, Failure> {
    let Shown { host, inside } = shown;
    let refuse = || Failure::new(format!("cannot use {option} {}", host.display()));
    let missing =
        |error| refuse().because(error).next("give HOST or HOST:INSIDE, where HOST exists and INSIDE begins with /");
    fs::metadata(host).map_err(missing)?;
    let place = match inside {
        Some(inside) => inside.clone(),
        None => same_place(host).map_err(missing)?,
    };
    let inside = MachinePath::new(place).map_err(|error| refuse().because(error))?;
    Ok(HostMount { host: host.clone(), inside, access, identity: None })
}

/// The given path, made absolute. Links are resolved only if the path contains `..`.
fn same_place(host: &Path) -> std::io::Result<PathBuf> {
    let absolute = path::absolute(host)?;
    if absolute.components().any(|part| part == Component::ParentDir) { fs::canonicalize(host) } else { Ok(absolute) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, ExecArgs, Task};

    fn exec(words: &[&str]) -> Box<ExecArgs> {
        let words = ["sandbar", "exec"].iter().chain(words).chain(&["--", "true"]);
        match Args::try_parse_from(words).expect("parsed").task {
            Task::Exec(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_options_the_machine_is_the_safe_one() {
        assert_eq!(spec(&exec(&[]).machine).expect("spec"), MachineSpec::default());
    }

    #[test]
    fn a_terminal_is_typed_at_and_everything_else_is_copied() {
        assert_eq!(Input::choose(false, true), Input::Empty);
        assert_eq!(Input::choose(false, false), Input::Copied);
        assert_eq!(Input::choose(true, true), Input::Typed);
        assert_eq!(Input::choose(true, false), Input::Copied);
    }

    #[test]
    fn what_is_shown_keeps_its_path_unless_it_is_given_another() {
        let place = |words: &[&str]| spec(&exec(words).machine).expect("spec").mounts[0].inside.to_string();
        assert_eq!(place(&["--ro", "/etc/passwd"]), "/etc/passwd");
        assert_eq!(place(&["--rw", "/usr/../etc/passwd"]), "/etc/passwd");
        assert_eq!(place(&["--ro", "/etc/passwd:/data/users"]), "/data/users");
    }

    #[test]
    fn a_wrong_path_is_named_with_its_option() {
        let refused = |words: &[&str]| spec(&exec(words).machine).expect_err("refused").to_string();
        assert!(refused(&["--workspace", "/no/such"]).starts_with("cannot use --workspace /no/such; No such file"));
        assert!(refused(&["--workspace", "/etc/passwd"]).contains("/etc/passwd; not a directory; give a directory"));
        assert!(refused(&["--rootfs", "/no/such"]).starts_with("cannot use --rootfs /no/such; "));
        assert!(refused(&["--ro", "/no/such"]).starts_with("cannot use --ro /no/such; No such file"));
        assert!(refused(&["--rw", "/etc:/a/../b"]).starts_with("cannot use --rw /etc; "));
    }

    #[test]
    fn a_variable_that_is_not_set_cannot_be_copied() {
        let refused = command(&exec(&["--env", "SANDBAR_TEST_NOT_SET"]).command, Input::Empty).expect_err("refused");
        assert!(refused.to_string().contains("SANDBAR_TEST_NOT_SET; it is not set here; set it"), "{refused}");
    }
}
