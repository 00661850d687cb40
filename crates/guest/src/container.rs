//! PID 1 of a container: the engine puts up the outer walls, the guest its own inside them.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read},
    os::{
        fd::OwnedFd,
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::MetadataExt,
        },
    },
    path::Path,
    process::ExitCode,
};

use rustix::fs::{Mode, OFlags};
use sandbar_guest::protocol::{Hello, HostPath, Launch, Level, VERSION};

use crate::{
    confine::{
        self, Walls, claim,
        landlock::{Grant, Rules},
        proc,
    },
    failure::{Setup, Step},
    identity::Users,
    serve::{self, Scope, Settings},
    sys::{
        exec::Proof,
        process,
        security::{self, Caps, Token},
    },
};

/// The longest description of a machine that is read.
const MAX_LAUNCH: u64 = 1 << 20;
const WORKSPACE: &str = "/workspace";
const HOME: &str = "/home/agent";
/// What commands may at most read, whoever they run as: the kernel's own places, and the guest's.
const NOT_WRITABLE: [&str; 4] = ["proc", "sys", "dev", ".sandbar"];

/// Serves on standard input and output, as the description in this file says; says why not on standard error.
pub(crate) fn main(launch: Option<OsString>) -> ExitCode {
    match start(launch) {
        Ok((input, output, settings)) => serve::run_split(input, output, settings),
        Err(failure) => {
            let _host_gone = rustix::io::write(rustix::stdio::stderr(), &failure.encode());
            ExitCode::from(125)
        }
    }
}

fn start(launch: Option<OsString>) -> Setup<(OwnedFd, OwnedFd, Settings)> {
    let step = "take over standard input and output";
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).step(step)?;
    let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3).step(step)?;
    // An empty image has no /dev/null of its own, but every engine mounts one.
    let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()).step(step)?;
    rustix::stdio::dup2_stdin(&null).step(step)?;
    rustix::stdio::dup2_stdout(&null).step(step)?;
    let launch = read(launch).step("read the machine's description")?;
    same_as_judged(&launch)?;
    if let Some((user, group)) = launch.owner {
        settle(&launch, user, group).step("give the machine's places to its user")?;
    }
    process::adopt_orphans().step("adopt orphans")?;
    let token = Token::random().step("draw random numbers")?;
    let proc = proc::open().step("open /proc")?;
    let mut layers = vec!["container".to_owned()];
    let proof = match launch.level {
        Level::None => {
            security::no_new_privs().step("set no_new_privs")?;
            layers.push("no_new_privs".to_owned());
            Proof::NotAsked
        }
        Level::Landlock | Level::Full => {
            let rules = rules().step("look at the file tree")?;
            layers.extend(confine::drop_powers(Caps::NONE, &rules, Walls::Namespaces, token)?);
            security::close_memory().step("close the guest's memory")?;
            Proof::Confined
        }
    };
    let hello = Hello { version: VERSION, layers, workspace: WORKSPACE.into(), home: HOME.into(), users: false };
    let settings = Settings {
        users: Users::One,
        token,
        proof,
        limits: limits(&launch),
        hello,
        proc,
        scope: Scope::Namespace,
        tmp: None,
        rules: None,
    };
    Ok((input, output, settings))
}

/// Not the number of processes: that would be counted together with the host's user of the same number.
fn limits(launch: &Launch) -> Vec<(u32, u64)> {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let files = launch.open_files.min(most.unwrap_or(u64::MAX));
    vec![(libc::RLIMIT_NOFILE, files), (libc::RLIMIT_CORE, 0), crate::boot::PENDING_SIGNALS]
}

fn read(launch: Option<OsString>) -> io::Result<Launch> {
    let path = launch.ok_or(io::ErrorKind::InvalidInput)?;
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_LAUNCH).read_to_end(&mut bytes)?;
    let launch = Launch::decode(&bytes).map_err(|_| io::Error::from_raw_os_error(libc::EBADMSG))?;
    if launch.version == VERSION { Ok(launch) } else { Err(io::Error::from_raw_os_error(libc::EPROTO)) }
}

/// The engine opened what the host showed a moment after it was judged: look whether it still is the same.
fn same_as_judged(launch: &Launch) -> Setup<()> {
    let workspace = launch.workspace.iter().map(|(host, _)| (host, WORKSPACE.into()));
    let mounts = launch.mounts.iter().map(|mount| (&mount.host, mount.inside.clone()));
    for (host, inside) in workspace.chain(mounts) {
        same(host, inside).map_err(|error| claim::unusable(&host.path, &error))?;
    }
    Ok(())
}

fn same(host: &HostPath, inside: Vec<u8>) -> io::Result<()> {
    // An engine in another kernel has numbers of its own; its client asks for nothing then.
    if (host.device, host.inode) == (0, 0) {
        return Ok(());
    }
    let found = fs::symlink_metadata(Path::new(&OsString::from_vec(inside)))?;
    match (found.dev(), found.ino()) == (host.device, host.inode) {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::ESTALE)),
    }
}

/// Gives the volumes an engine made, which are root's, to the user whose they are, and becomes that user: the powers this
/// takes end here.
fn settle(launch: &Launch, user: u32, group: u32) -> io::Result<()> {
    let places = [HOME, WORKSPACE].into_iter().take(if launch.workspace.is_none() { 2 } else { 1 });
    for place in places {
        std::os::unix::fs::lchown(place, Some(user), Some(group))?;
    }
    process::become_user(user, group, &[])
}

/// Everything may be read. The image's own tree may be written as far as its permissions and the engine's mounts let a
/// user: it ends with the machine.
fn rules() -> io::Result<Rules> {
    let mut rules = Rules::new(1);
    rules.allow(b"/", Grant::Read);
    for entry in fs::read_dir("/")? {
        let entry = entry?;
        let name = entry.file_name();
        let closed = NOT_WRITABLE.iter().any(|place| name == *place);
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
