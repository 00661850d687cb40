//! The arguments of `exec`, checked, as the machine to make and the command to run on it.

use std::{
    env, fs,
    path::{self, Component, Path, PathBuf},
};

use sandbar::{Access, Command, HostMount, Isolation, Limits, MachinePath, MachineSpec, Network, Workspace};

use crate::{
    args::{ExecArgs, Level, NetworkArg},
    failure::Failure,
    terminal,
    values::{Shown, Variable},
};

/// Where the command's standard input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// Nowhere: it ends at once.
    Empty,
    /// Our own, byte by byte.
    Copied,
    /// Somebody typing at our terminal, which is made raw.
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

/// The machine that the arguments ask for.
pub(crate) fn spec(args: &ExecArgs) -> Result<MachineSpec, Failure> {
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
    Ok(MachineSpec {
        workspace: workspace(args)?,
        mounts,
        network: match args.network {
            None | Some(NetworkArg::Off) => Network::Off,
            Some(NetworkArg::Host) => Network::Host,
        },
        ports: args.ports.clone(),
        isolation: match args.isolation {
            Level::Full => Isolation::Full,
            Level::Landlock => Isolation::Landlock,
            Level::None => Isolation::None,
        },
        rootfs: args.rootfs.clone(),
        limits: limits(args),
        ..MachineSpec::default()
    })
}

/// What was asked for by name must hold: a weaker level that cannot keep it is refused, not taken for good enough.
fn can_be_kept(args: &ExecArgs) -> Result<(), Failure> {
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
pub(crate) fn command(args: &ExecArgs, input: Input) -> Result<Command, Failure> {
    let mut command = Command::new(args.command.clone());
    if args.tty {
        let own = env::var("TERM").ok();
        command = command.tty(terminal::size()).env("TERM", terminal::kind(own.as_deref()));
    }
    for Variable { name, value } in &args.env {
        let value = value.clone().or_else(|| env::var_os(name)).ok_or_else(|| {
            let name = name.display();
            Failure::new(format!("cannot copy the variable {name}; it is not set here"))
                .next(format!("set it, or give its value: --env {name}=VALUE"))
        })?;
        command = command.env(name, value);
    }
    if input == Input::Copied {
        command = command.stdin();
    }
    if let Some(timeout) = args.timeout {
        command = command.deadline(timeout);
    }
    Ok(command)
}

fn limits(args: &ExecArgs) -> Limits {
    let usual = Limits::default();
    Limits {
        pids: args.pids.unwrap_or(usual.pids),
        open_files: args.open_files.unwrap_or(usual.open_files),
        tmp_bytes: args.tmp_size.unwrap_or(usual.tmp_bytes),
        ..usual
    }
}

fn workspace(args: &ExecArgs) -> Result<Workspace, Failure> {
    let Some(given) = &args.workspace else { return Ok(Workspace::Temporary) };
    directory("--workspace", &given.path)?;
    Ok(Workspace::Host { path: given.path.clone(), access: given.access })
}

fn directory(option: &str, path: &Path) -> Result<(), Failure> {
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
    Ok(HostMount { host: host.clone(), inside, access })
}

/// The path as it was given, made absolute; only `..` needs the links on the way resolved.
fn same_place(host: &Path) -> std::io::Result<PathBuf> {
    let absolute = path::absolute(host)?;
    if absolute.components().any(|part| part == Component::ParentDir) { fs::canonicalize(host) } else { Ok(absolute) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Task};

    fn exec(words: &[&str]) -> Box<ExecArgs> {
        let words = ["sandbar", "exec"].iter().chain(words).chain(&["--", "true"]);
        match Args::try_parse_from(words).expect("parsed").task {
            Task::Exec(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_options_the_machine_is_the_safe_one() {
        assert_eq!(spec(&exec(&[])).expect("spec"), MachineSpec::default());
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
        let place = |words: &[&str]| spec(&exec(words)).expect("spec").mounts[0].inside.to_string();
        assert_eq!(place(&["--ro", "/etc/passwd"]), "/etc/passwd");
        assert_eq!(place(&["--rw", "/usr/../etc/passwd"]), "/etc/passwd");
        assert_eq!(place(&["--ro", "/etc/passwd:/data/users"]), "/data/users");
    }

    #[test]
    fn a_wrong_path_is_named_with_its_option() {
        let refused = |words: &[&str]| spec(&exec(words)).expect_err("refused").to_string();
        assert!(refused(&["--workspace", "/no/such"]).starts_with("cannot use --workspace /no/such; No such file"));
        assert!(refused(&["--workspace", "/etc/passwd"]).contains("/etc/passwd; not a directory; give a directory"));
        assert!(refused(&["--rootfs", "/no/such"]).starts_with("cannot use --rootfs /no/such; "));
        assert!(refused(&["--ro", "/no/such"]).starts_with("cannot use --ro /no/such; No such file"));
        assert!(refused(&["--rw", "/etc:/a/../b"]).starts_with("cannot use --rw /etc; "));
    }

    #[test]
    fn a_variable_that_is_not_set_cannot_be_copied() {
        let refused = command(&exec(&["--env", "SANDBAR_TEST_NOT_SET"]), Input::Empty).expect_err("refused");
        assert!(refused.to_string().contains("SANDBAR_TEST_NOT_SET; it is not set here; set it"), "{refused}");
    }
}
