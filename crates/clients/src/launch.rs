//! Checks a specification before anything is created, and turns it into the guest's launch message.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::{ffi::OsStringExt, fs::FileTypeExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};
use sandbar_guest::protocol::{
    AccountGroup as LaunchGroup, Accounts as LaunchAccounts, HostPath, Launch, LaunchMount, Level, VERSION,
};
use sandbar_machine::{
    Access, AccountGroup, Accounts, Cpus, FileIdentity, HostMount, MachineError, MachinePath, MachineSpec, Network,
    Result, Workspace,
};

use crate::{guest::check_variable, sockets};

/// Directories that the kernel fills; no host directory may be mounted there.
const KERNEL_DIRS: [&str; 3] = ["/proc", "/dev", "/sys"];

/// The launch message without the location of the machine's state.
pub(crate) fn launch(spec: &MachineSpec, level: Level) -> Result<Launch> {
    if spec.ports.contains(&0) {
        return Err(MachineError::invalid("port 0", "is not a port; use 1 to 65535"));
    }
    for (name, value) in &spec.env {
        check_variable(name.as_ref(), value.as_ref())?;
    }
    Ok(Launch {
        version: VERSION,
        level,
        workspace: workspace(&spec.workspace)?,
        mounts: mounts(&spec.mounts, level)?,
        rootfs: spec.rootfs.as_deref().map(|path| rootfs(path, level)).transpose()?,
        host_network: spec.network == Network::Host,
        tmp_bytes: spec.limits.tmp_room(),
        pids: spec.limits.pids,
        open_files: spec.limits.open_files,
        memory: spec.limits.memory,
        cpus: spec.limits.cpus.map(Cpus::as_thousandths),
        disk: spec.limits.disk,
        accounts: accounts(&spec.accounts)?,
        ..Launch::default()
    })
}

/// The supervisor finds out whether the host can separate the users.
fn accounts(accounts: &Accounts) -> Result<LaunchAccounts> {
    accounts.check()?;
    let group = |group: &AccountGroup| LaunchGroup { name: group.name.clone(), members: group.members.clone() };
    Ok(LaunchAccounts { users: accounts.users.clone(), groups: accounts.groups.iter().map(group).collect() })
}

fn workspace(workspace: &Workspace) -> Result<Option<(HostPath, bool)>> {
    let Workspace::Host { path, access } = workspace else { return Ok(None) };
    let real = directory("workspace", path)?;
    no_kernel_below("workspace", &real.path)?;
    sockets::refuse(&real.path, [])?;
    Ok(Some((real.shown(), *access == Access::ReadWrite)))
}

fn rootfs(path: &Path, level: Level) -> Result<HostPath> {
    if level != Level::Full {
        return Err(MachineError::invalid(format!("rootfs {}", path.display()), "needs full isolation"));
    }
    let real = directory("rootfs", path)?;
    sockets::refuse(&real.path, [])?;
    Ok(real.shown())
}

/// Parents before children, so that one mount does not hide another.
fn mounts(mounts: &[HostMount], level: Level) -> Result<Vec<LaunchMount>> {
    let mut seen = BTreeSet::new();
    let mut checked = Vec::with_capacity(mounts.len());
    for mount in mounts {
        let HostMount { host, inside, access, identity } = mount;
        let bad = |reason: &str| Err(MachineError::invalid(format!("mount at {inside}"), reason));
        let real = resolve("mount", host)?;
        if identity.is_some_and(|judged| judged != real.identity) {
            return Err(changed("mount", host));
        }
        no_kernel_below("mount", &real.path)?;
        sockets::refuse(&real.path, [])?;
        if *access == Access::ReadOnly && real.place.metadata().is_ok_and(|found| found.file_type().is_socket()) {
            return bad("is a socket, and a socket cannot be read-only: connecting to it is using it; use --rw");
        }
        if *inside == MachinePath::root() || *inside == MachinePath::workspace() {
            return bad("would hide the machine itself; choose a path below");
        }
        for dir in KERNEL_DIRS {
            if inside.is_within(&MachinePath::new(dir)?) {
                return bad("belongs to the kernel; choose a path outside of /proc, /dev and /sys");
            }
        }
        if level != Level::Full && inside.as_os_str() != real.path.as_os_str() {
            return bad("is not where it is on the host, which needs full isolation");
        }
        if !seen.insert(inside) {
            return bad("is declared twice");
        }
        checked.push(LaunchMount {
            host: real.shown(),
            inside: inside.as_bytes().to_vec(),
            writable: *access == Access::ReadWrite,
        });
    }
    checked.sort_by(|a, b| a.inside.cmp(&b.inside));
    Ok(checked)
}

/// Refuses a tree that contains a kernel file system of the host: its processes, devices or settings.
fn no_kernel_below(what: &str, real: &Path) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    match kernel_mount_below(&mounts, real) {
        None => Ok(()),
        Some(found) => Err(MachineError::invalid(
            format!("{what} {}", real.display()),
            format!("would show the host's own {}; show the directories below it that are needed", found.display()),
        )),
    }
}

/// The first kernel file system that is mounted at, below or above this path.
fn kernel_mount_below(mounts: &str, real: &Path) -> Option<PathBuf> {
    const KINDS: [&str; 9] =
        ["proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "bpf", "configfs"];
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let place = Path::new(place.split(' ').nth(4)?);
        let kernels = KINDS.contains(&kind.split(' ').next()?);
        (kernels && (place.starts_with(real) || real.starts_with(place))).then(|| place.to_owned())
    })
}

/// A path without symbolic links, its identity, and an open descriptor.
pub(crate) struct Real {
    pub(crate) path: PathBuf,
    identity: FileIdentity,
    place: fs::File,
}

impl Real {
    fn shown(self) -> HostPath {
        let FileIdentity { device, inode } = self.identity;
        HostPath { path: self.path.into_os_string().into_vec(), device, inode }
    }
}

fn directory(what: &str, path: &Path) -> Result<Real> {
    let real = resolve(what, path)?;
    let bad = |reason: &str| Err(MachineError::invalid(format!("{what} {}", path.display()), reason));
    if !real.place.metadata().is_ok_and(|found| found.is_dir()) {
        return bad("is not a directory");
    }
    let may = rustix::fs::Access::READ_OK | rustix::fs::Access::EXEC_OK;
    if rustix::fs::accessat(&real.place, ".", may, AtFlags::empty()).is_err() {
        return bad("cannot be opened by this user");
    }
    Ok(real)
}

/// Resolves a path once. The process that opens it later must find the same file there, and no symbolic link on the
/// way.
pub(crate) fn resolve(what: &str, path: &Path) -> Result<Real> {
    let bad = |error: io::Error| MachineError::invalid(format!("{what} {}", path.display()), error.to_string());
    let real = fs::canonicalize(path).map_err(bad)?;
    let root = fs::File::open("/").map_err(bad)?;
    let resolved = openat2(
        root,
        &real,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    );
    let place = match resolved {
        Ok(place) => fs::File::from(place),
        Err(Errno::LOOP) => return Err(changed(what, path)),
        // The kernel refuses `openat2` for every path: it cannot be known which file was opened.
        Err(error @ (Errno::NOSYS | Errno::PERM)) => {
            let stage = format!("open {} without following links", path.display());
            return Err(MachineError::Start { stage, source: io::Error::from(error).into() });
        }
        Err(error) => return Err(bad(error.into())),
    };
    let identity = FileIdentity::from(&place.metadata().map_err(bad)?);
    Ok(Real { path: real, identity, place })
}

fn changed(what: &str, path: &Path) -> MachineError {
    MachineError::invalid(format!("{what} {}", path.display()), "changed since it was judged")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut MachineSpec)) -> String {
        let mut spec = MachineSpec::default();
        change(&mut spec);
        let error = launch(&spec, Level::Full).expect_err("refused");
        assert_eq!(error.code(), "invalid");
        error.to_string()
    }

    fn mount(host: &str, inside: &str) -> HostMount {
        let inside = MachinePath::new(inside).expect("path");
        HostMount { host: host.into(), inside, access: Access::ReadOnly, identity: None }
    }

    #[test]
    fn kernel_file_systems_are_not_mounted() {
        let mounts = "22 1 0:20 / /proc rw - proc proc rw\n23 1 8:1 / / rw - ext4 /dev/sda rw\n\
                      24 1 0:21 / /srv/jail/sys rw - sysfs sysfs rw\n";
        let found = |path: &str| kernel_mount_below(mounts, Path::new(path));
        assert_eq!(found("/"), Some("/proc".into()));
        assert_eq!(found("/proc/sys"), Some("/proc".into()));
        assert_eq!(found("/srv"), Some("/srv/jail/sys".into()));
        assert_eq!(found("/home/me"), None);
        let whole = Workspace::Host { path: "/".into(), access: Access::ReadOnly };
        assert!(refused(|spec| spec.workspace = whole).contains("/proc"));
    }

    #[test]
    fn the_faulty_value_is_named() {
        let host = |path: &str| Workspace::Host { path: path.into(), access: Access::ReadOnly };
        assert!(refused(|spec| spec.workspace = host("/no/such/place")).contains("/no/such/place"));
        assert!(refused(|spec| spec.workspace = host("/etc/passwd")).contains("/etc/passwd: is not a directory"));
        assert!(refused(|spec| spec.rootfs = Some("/no/such/tree".into())).contains("rootfs /no/such/tree"));
        assert!(refused(|spec| spec.ports = vec![80, 0]).contains("port 0"));
        assert!(refused(|spec| spec.env = [("A=B".to_owned(), String::new())].into()).contains("A=B"));
        for inside in ["/", "/workspace", "/proc/self", "/dev", "/sys/fs"] {
            assert!(refused(|spec| spec.mounts = vec![mount("/etc", inside)]).contains(inside), "{inside}");
        }
        assert!(refused(|spec| spec.mounts = vec![mount("/etc", "/a"), mount("/usr", "/a")]).contains("twice"));
        assert!(refused(|spec| spec.mounts = vec![mount("/no/such", "/a")]).contains("/no/such"));
    }

    #[test]
    fn sockets_of_engines_and_agents_are_refused_and_others_must_be_writable() {
        let place = tempfile::tempdir().expect("tempdir");
        let socket = place.path().join("socket");
        let _service = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        let shown = |access| HostMount { access, ..mount(socket.to_str().expect("text"), "/socket") };
        assert!(refused(|spec| spec.mounts = vec![shown(Access::ReadOnly)]).contains("is a socket"));
        let spec = MachineSpec::default().mounts([shown(Access::ReadWrite)]);
        assert!(launch(&spec, Level::Full).is_ok());
        assert!(refused(|spec| spec.mounts = vec![mount("/run", "/host-run")]).contains("would show the socket"));
        let whole = Workspace::Host { path: "/run".into(), access: Access::ReadOnly };
        assert!(refused(|spec| spec.workspace = whole).contains("would show"));
    }

    #[test]
    fn mounts_go_parents_first_and_only_full_isolation_moves_them() {
        let mut spec = MachineSpec::default().mounts([mount("/usr", "/data/b"), mount("/etc", "/data")]);
        let order: Vec<_> =
            launch(&spec, Level::Full).expect("launch").mounts.into_iter().map(|mount| mount.inside).collect();
        assert_eq!(order, [b"/data".to_vec(), b"/data/b".to_vec()]);
        assert!(launch(&spec, Level::Landlock).is_err());
        spec.mounts = vec![mount("/etc", "/etc")];
        assert!(launch(&spec, Level::Landlock).is_ok());
    }

    #[test]
    fn a_mount_must_have_the_checked_identity() {
        let place = tempfile::tempdir().expect("tempdir");
        let [judged, other] = ["judged", "other"].map(|name| place.path().join(name));
        for dir in [&judged, &other] {
            fs::create_dir(dir).expect("a directory");
        }
        let identity = |path: &Path| FileIdentity::from(&fs::metadata(path).expect("metadata"));
        let with = |host: &Path| {
            let shown = mount(host.to_str().expect("text"), "/data");
            MachineSpec::default()
                .mounts([HostMount { identity: Some(identity(&judged)), ..shown }])
                .workspace(Workspace::Host { path: host.to_owned(), access: Access::ReadOnly })
                .rootfs(host.to_owned())
        };
        let launched = launch(&with(&judged), Level::Full).expect("launch");
        let FileIdentity { device, inode } = identity(&judged);
        let path = fs::canonicalize(&judged).expect("path").into_os_string().into_vec();
        let shown = HostPath { path, device, inode };
        assert_eq!(launched.mounts.first().map(|mount| &mount.host), Some(&shown));
        assert_eq!((launched.workspace, launched.rootfs), (Some((shown.clone(), false)), Some(shown)));
        let error = launch(&with(&other), Level::Full).expect_err("another directory").to_string();
        assert!(error.contains("other") && error.contains("changed since it was judged"), "{error}");
        // A link to the checked directory is accepted; a link to another one is refused.
        for (target, held) in [(&judged, true), (&other, false)] {
            let link = place.path().join("link");
            std::os::unix::fs::symlink(target, &link).expect("a link");
            assert_eq!(launch(&with(&link), Level::Full).is_ok(), held);
            fs::remove_file(link).expect("it goes");
        }
    }
}
