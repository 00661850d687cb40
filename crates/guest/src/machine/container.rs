//! PID 1 of a container: the engine provides the outer isolation, the guest adds its own layers inside.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::MetadataExt,
        },
    },
    path::Path,
    process::ExitCode,
    time::Duration,
};

use rustix::fs::{Access, Mode, OFlags, StatVfsMountFlags};
use sandbar_guest::protocol::{Hello, HostPath, LET_GO, Launch, Level, VERSION};

use crate::{
    confine::{
        self, Walls, claim,
        landlock::{Grant, Role, Rules},
        proc,
    },
    door::{hub::Hub, own::OwnDoor},
    identity::{AGENT, Agent, Users},
    limits,
    machine::{
        boot::first_count,
        failure::{Setup, Step},
        group::Hard,
        supervisor,
    },
    serve::{self, Bounds, Looker, Scope, Settings},
    sys::{
        exec::Proof,
        process,
        security::{self, Caps, Token},
    },
};

const WORKSPACE: &str = "/workspace";
const HOME: &str = "/home/agent";
/// Directories that no command may write to, whatever its user: the kernel's and the guest's.
const NOT_WRITABLE: [&str; 4] = ["proc", "sys", "dev", ".sandbar"];

/// Serves on standard input and output as the launch message says; writes a setup failure to standard error.
pub(crate) fn main() -> ExitCode {
    match start() {
        Ok(Ready { input, output, door: None, settings }) => serve::run_split(input, output, settings),
        Ok(Ready { input, output, door: Some((door, lease)), settings }) => match is_let_go(&input, &output) {
            Ok(true) => serve::run_hub(Hub::Door(Box::new(door)), Some((input, output)), lease, settings),
            Ok(false) | Err(_) => ExitCode::FAILURE,
        },
        Err(failure) => {
            let _host_gone = rustix::io::write(rustix::stdio::stderr(), &failure.encode());
            ExitCode::from(125)
        }
    }
}

/// A machine that is set up.
struct Ready {
    input: OwnedFd,
    output: OwnedFd,
    /// The door of a machine that outlives its maker, and its lease.
    door: Option<(OwnDoor, Option<Duration>)>,
    settings: Settings,
}

/// Signals readiness, and waits until the maker lets the machine outlive it (`true`) or is gone.
fn is_let_go(input: &OwnedFd, output: &OwnedFd) -> io::Result<bool> {
    File::from(output.try_clone()?).write_all(&[LET_GO])?;
    let mut word = [0];
    File::from(input.try_clone()?).read_exact(&mut word)?;
    Ok(word == [LET_GO])
}

fn start() -> Setup<Ready> {
    let step = "take over standard input and output";
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).step(step)?;
    let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3).step(step)?;
    // An empty image has no `/dev/null`, but every engine mounts one.
    let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()).step(step)?;
    rustix::stdio::dup2_stdin(&null).step(step)?;
    rustix::stdio::dup2_stdout(&null).step(step)?;
    let launch = supervisor::receive(&mut File::from(input.try_clone().step(step)?))?;
    same_as_judged(&launch)?;
    let are_many = launch.accounts.need_many();
    if let Some((user, group)) = launch.owner {
        settle(&launch, user, group).step("give the machine's places to its user")?;
        if !are_many {
            security::drop_bounding_set().step("empty the capability bounding set")?;
            process::become_user(user, group, &[]).step("become the machine's user")?;
        }
    }
    let door = launch
        .detached
        .as_ref()
        .map(|detached| OwnDoor::open(&launch.id, detached).map(|door| (door, detached.lease())));
    let door = door.transpose().step("open the machine's door")?;
    let settings = confined(&launch)?;
    Ok(Ready { input, output, door, settings })
}

/// Confines this process.
fn confined(launch: &Launch) -> Setup<Settings> {
    process::adopt_orphans().step("adopt orphans")?;
    let token = Token::random().step("draw random numbers")?;
    let proc = proc::open().step("open /proc")?;
    let mut layers = vec!["container".to_owned()];
    let are_many = launch.accounts.need_many();
    let places: [&[u8]; 3] = [HOME.as_bytes(), b"/home", WORKSPACE.as_bytes()];
    let bounds = match are_many {
        true => Bounds::in_container(launch, token, Looker::Owners, &places),
        false => Bounds::in_container(launch, token, Looker::Own, &[HOME.as_bytes(), WORKSPACE.as_bytes()]),
    };
    let (uid, gid) = launch.owner.unwrap_or((AGENT, AGENT));
    let users = if are_many { Users::many(Agent(uid, gid)) } else { Users::One };
    let keep = if are_many { Caps::SWITCH_USERS_INSIDE } else { Caps::NONE };
    let proof = match launch.level {
        Level::None => {
            security::no_new_privs().step("set no_new_privs")?;
            layers.push("no_new_privs".to_owned());
            Proof::NotAsked
        }
        Level::Landlock | Level::Full => {
            let rules = rules().step("look at the file tree")?;
            layers.extend(confine::drop_powers(keep, &rules, Walls::Namespaces, token)?);
            security::close_memory().step("close the guest's memory")?;
            Proof::Confined
        }
    };
    let held = bounds.held(Hard::default());
    let hello =
        Hello { version: VERSION, layers, workspace: WORKSPACE.into(), home: HOME.into(), users: are_many, held };
    let settings = Settings {
        users,
        token,
        proof,
        // Without RLIMIT_NPROC: it would also count the processes of the host's user with the same uid.
        limits: limits::of_commands(launch, None),
        hello,
        proc,
        scope: Scope::Namespace,
        tmp: None,
        rules: None,
        bounds,
    };
    first_count(launch, settings)
}

/// The engine opened the host paths a moment after they were checked: verify that they still lead to the same files.
fn same_as_judged(launch: &Launch) -> Setup<()> {
    let workspace = launch.workspace.iter().map(|(host, _)| (host, WORKSPACE.into()));
    let mounts = launch.mounts.iter().map(|mount| (&mount.host, mount.inside.clone()));
    for (host, inside) in workspace.chain(mounts) {
        same(host, inside).map_err(|error| claim::unusable(&host.path, &error))?;
    }
    Ok(())
}

fn same(host: &HostPath, inside: Vec<u8>) -> io::Result<()> {
    // An engine in another kernel has other inode numbers; its client then sends zeros.
    if (host.device, host.inode) == (0, 0) {
        return Ok(());
    }
    let found = fs::symlink_metadata(Path::new(&OsString::from_vec(inside)))?;
    match (found.dev(), found.ino()) == (host.device, host.inode) {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::ESTALE)),
    }
}

/// Gives the volumes that an engine created as root to the machine's user. Directories that could be prepared belong to
/// that user already.
fn settle(launch: &Launch, user: u32, group: u32) -> io::Result<()> {
    let places = [HOME, WORKSPACE].into_iter().take(if launch.workspace.is_none() { 2 } else { 1 });
    for place in places {
        let found = fs::symlink_metadata(place)?;
        if (found.uid(), found.gid()) != (user, group) {
            std::os::unix::fs::lchown(place, Some(user), Some(group))?;
        }
    }
    Ok(())
}

/// Everything is readable. The image's own tree is writable as far as file permissions and the engine's mounts allow:
/// it is deleted with the machine.
fn rules() -> io::Result<Rules> {
    let mut rules = Rules::new(role()?);
    rules.allow(b"/", Grant::Read);
    // If the tree is read-only, `/etc` is a volume, so that accounts could be added.
    let is_fixed = rustix::fs::statvfs("/")?.f_flag.contains(StatVfsMountFlags::RDONLY);
    for entry in fs::read_dir("/")? {
        let entry = entry?;
        let name = entry.file_name();
        let closed = NOT_WRITABLE.iter().any(|place| name == *place) || is_fixed && name == "etc";
        if !closed && !entry.file_type()?.is_symlink() {
            rules.allow(&[b"/", name.as_bytes()].concat(), Grant::Write);
        }
    }
    rules.allow(b"/dev", Grant::Device);
    for shared in [b"/dev/shm".as_slice(), b"/dev/mqueue"] {
        rules.allow(shared, Grant::Write);
    }
    Ok(rules)
}

/// If commands own the guest's files or can replace them, only Landlock protects these files, and what root may write
/// about PID 1 below `/proc`. PID 1 already runs as the commands' user, or as root if commands may be root.
fn role() -> io::Result<Role> {
    let user = rustix::process::getuid().as_raw();
    for place in ["/", "/.sandbar", "/.sandbar/guest"] {
        let is_owned = fs::symlink_metadata(place)?.uid() == user;
        if is_owned || rustix::fs::access(place, Access::WRITE_OK).is_ok() {
            return Ok(Role::KeepsGuestFiles);
        }
    }
    Ok(Role::SecondWall)
}

#[cfg(test)]
mod tests {
    use sandbar_guest::protocol::LaunchMount;

    use super::*;

    #[test]
    fn what_is_shown_must_be_what_was_judged() {
        let found = fs::metadata("/etc").unwrap();
        let host = |inode: u64| HostPath { path: b"/etc".to_vec(), device: found.dev(), inode };
        let shown = |host: HostPath| {
            let mount = LaunchMount { host, inside: b"/etc".to_vec(), writable: false };
            same_as_judged(&Launch { mounts: vec![mount], ..Launch::default() })
        };
        shown(host(found.ino())).unwrap();
        shown(HostPath { path: b"/etc".to_vec(), device: 0, inode: 0 }).unwrap();
        assert_eq!(shown(host(found.ino() + 1)).unwrap_err().errno, libc::ESTALE);
    }
}
