//! Builds the machine's file tree: an allow-list of the host's programs, read-only, and a few private writable
//! directories.

use std::{
    ffi::{CString, OsStr},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
        fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_change, move_mount, open_tree, unmount,
    },
};
use sandbar_guest::protocol::{BootFailure, HostPath, Launch};

use super::{
    claim::{Claims, claim, unusable},
    etc,
    landlock::{Grant, Role, Rules},
    proc,
    sockets::Search,
};
use crate::{
    handles::{NEW_FILE, names},
    identity::AGENT,
    machine::failure::{Setup, Step, refuse},
    sys::{
        files::{self, BENEATH, Depth, NO_SYMLINKS, attr, set_mount_attr},
        security::Token,
    },
};

/// Directories of programs and libraries in all distributions.
pub(crate) const PROGRAMS: &[&str] =
    &["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix/store", "gnu/store"];
/// Devices without state of the host.
pub(crate) const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];
/// Directories that are the machine's own even with `--rootfs`.
const OWN: &[&str] = &["dev", "proc", "sys", "tmp", "run", "workspace", "home"];

/// Opens a file or directory without read or write access.
const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// A cloned part of the host's tree that is not mounted yet.
pub(crate) struct Source {
    mount: OwnedFd,
    is_dir: bool,
}

impl Source {
    /// Clones a file or directory with everything mounted below it, without set-id programs or devices.
    pub(crate) fn open(place: BorrowedFd<'_>) -> io::Result<Self> {
        Self::open_mapped(place, None)
    }

    /// The same for a path of the system.
    pub(crate) fn named(path: &str) -> io::Result<Self> {
        Self::open(rustix::fs::open(path, PLACE, Mode::empty())?.as_fd())
    }

    /// The same; `idmap` maps the owner.
    pub(crate) fn open_mapped(place: BorrowedFd<'_>, idmap: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        let source = Self::clone_of(place, OpenTreeFlags::AT_RECURSIVE)?;
        set_mount_attr(source.mount.as_fd(), attr::NOSUID | attr::NODEV, idmap, Depth::Recursive)?;
        Ok(source)
    }

    fn device(name: &str) -> io::Result<Self> {
        let device = rustix::fs::open(format!("/dev/{name}"), PLACE, Mode::empty())?;
        let source = Self::clone_of(device.as_fd(), OpenTreeFlags::empty())?;
        set_mount_attr(source.mount.as_fd(), attr::NOSUID | attr::NOEXEC, None, Depth::This)?;
        Ok(source)
    }

    /// By descriptor, never by path: the checked file is the one that is cloned.
    fn clone_of(place: BorrowedFd<'_>, flags: OpenTreeFlags) -> io::Result<Self> {
        let flags = flags | OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let mount = open_tree(place, "", flags | OpenTreeFlags::AT_EMPTY_PATH)?;
        let is_dir = FileType::from_raw_mode(rustix::fs::fstat(&mount)?.st_mode) == FileType::Directory;
        Ok(Self { mount, is_dir })
    }

    /// Makes it read-only.
    pub(crate) fn read_only(self) -> io::Result<Self> {
        set_mount_attr(self.mount.as_fd(), attr::RDONLY, None, Depth::Recursive)?;
        Ok(self)
    }

    /// Mounts it in the new tree; missing mount points are created.
    pub(crate) fn show(self, new_root: BorrowedFd<'_>, inside: &[u8]) -> Setup<()> {
        let place = if self.is_dir { directory(new_root, inside, 0o755)? } else { file(new_root, inside)? };
        Mountable(self.mount).onto(place.as_fd()).step(&format!("mount {}", shown(inside)))
    }
}

/// The mounts of a machine that come from host paths: its own directories and those that its user named.
pub(crate) struct Given {
    pub(crate) workspace: Source,
    pub(crate) home: Source,
    /// Directory of the other users' homes, if there are other users.
    pub(crate) homes: Option<Source>,
    pub(crate) mounts: Vec<Source>,
}

impl Given {
    /// Opens them all; `open` is told who owns each.
    pub(crate) fn open(
        launch: &Launch,
        dir: &[u8],
        mut open: impl FnMut(BorrowedFd<'_>, Ownership) -> io::Result<Source>,
    ) -> Setup<Self> {
        let claims = Claims::open(launch)?;
        let mut named = |place: &OwnedFd, host: &HostPath, writable: bool| {
            let opened = open(place.as_fd(), Ownership::Hosts);
            opened
                .and_then(|source| if writable { Ok(source) } else { source.read_only() })
                .map_err(|error| unusable(&host.path, &error))
        };
        let workspace = match (&claims.workspace, &launch.workspace) {
            (Some(place), Some((host, writable))) => Some(named(place, host, *writable)?),
            _ => None,
        };
        let claimed = claims.mounts.iter().zip(&launch.mounts);
        let mounts = claimed.map(|(place, mount)| named(place, &mount.host, mount.writable)).collect::<Setup<_>>()?;
        let mut own = |name: &str| {
            let path = below(dir, name.as_bytes());
            let place = rustix::fs::open(OsStr::from_bytes(&path), PLACE | OFlags::NOFOLLOW, Mode::empty());
            let opened = place.map_err(io::Error::from).and_then(|place| open(place.as_fd(), Ownership::Machines));
            opened.step(&format!("open {name}"))
        };
        let workspace = workspace.map_or_else(|| own("workspace"), Ok)?;
        let home = own("home")?;
        let homes = if launch.accounts.need_many() { Some(own("homes")?) } else { None };
        Ok(Self { workspace, home, homes, mounts })
    }

    /// Their descriptors.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        [&self.workspace, &self.home]
            .into_iter()
            .chain(&self.homes)
            .chain(&self.mounts)
            .map(|source| source.mount.as_raw_fd())
    }
}

/// Who owns the files of a tree.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// Made for the machine, which already owns them.
    Machines,
    /// The host's, with any owner.
    Hosts,
}

/// Builds the tree and makes it the root of this mount namespace. Returns the Landlock rules for it, and the name of
/// the layer that covers sockets.
pub(crate) fn build(launch: &Launch, given: Given) -> Setup<(Rules, Option<&'static str>)> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).step("detach from host mounts")?;
    let base = base(launch)?;
    let devices: Vec<_> = DEVICES.iter().map(|name| Source::device(name).map(|source| (*name, source))).collect();
    let new_root = attach_root().step("make the new root")?;
    let new_root = new_root.as_fd();
    let mut rules = Rules::new(Role::SecondWall);
    rules.allow(b"/", Grant::Read);

    for part in base {
        part.put(new_root)?;
    }
    let others = match &launch.rootfs {
        None => etc::build(new_root, launch.host_network, &launch.accounts)?,
        Some(_) if launch.accounts.need_many() => etc::cover(new_root, &launch.accounts)?,
        Some(_) => Vec::new(),
    };
    device_tree(new_root, devices, launch, &mut rules)?;
    proc::mount(new_root)?;
    private(new_root, "tmp", "tmpfs", &temporary(launch))?;
    rules.allow(b"/tmp", Grant::Write);
    small_places(new_root, launch)?;
    if let Some(homes) = given.homes {
        homes.show(new_root, b"home")?;
        make_homes(new_root, &others)?;
        rules.allow(b"/home", Grant::Write);
    }
    given.home.show(new_root, b"home/agent")?;
    rules.allow(b"/home/agent", Grant::Write);
    given.workspace.show(new_root, b"workspace")?;
    let mut sockets = Search::default();
    if launch.workspace.as_ref().is_none_or(|(_, writable)| *writable) {
        rules.allow(b"/workspace", Grant::Write);
    } else {
        sockets.cover(new_root, b"workspace")?;
    }
    for (mount, source) in launch.mounts.iter().zip(given.mounts) {
        source.show(new_root, &mount.inside)?;
        if mount.writable {
            rules.allow(&mount.inside, Grant::Write);
        } else {
            sockets.cover(new_root, &mount.inside)?;
        }
    }
    enter(new_root)?;
    Ok((rules, sockets.layer()))
}

/// A part of the base: a tree of the host or a link to one.
enum Part {
    Tree(Vec<u8>, Source),
    Link(Vec<u8>, Vec<u8>),
}

impl Part {
    /// Finds an entry of a host directory, which has the same name inside.
    fn find(dir: BorrowedFd<'_>, name: &[u8]) -> Setup<Option<Self>> {
        let opened = rustix::fs::openat(dir, OsStr::from_bytes(name), PLACE | OFlags::NOFOLLOW, Mode::empty());
        let Ok(place) = opened else { return Ok(None) };
        let step = format!("show {} inside", shown(name));
        match FileType::from_raw_mode(rustix::fs::fstat(&place).step(&step)?.st_mode) {
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&place, "", Vec::new()).step(&step)?;
                Ok(Some(Self::Link(name.to_vec(), target.into_bytes())))
            }
            FileType::Directory | FileType::RegularFile => {
                let source = Source::open(place.as_fd()).and_then(Source::read_only).step(&step)?;
                Ok(Some(Self::Tree(name.to_vec(), source)))
            }
            _ => Ok(None),
        }
    }

    fn put(self, new_root: BorrowedFd<'_>) -> Setup<()> {
        match self {
            Self::Tree(inside, source) => source.show(new_root, &inside),
            Self::Link(inside, target) => {
                rustix::fs::symlinkat(OsStr::from_bytes(&target), new_root, OsStr::from_bytes(&inside))
                    .step(&format!("link {}", shown(&inside)))
            }
        }
    }
}

fn base(launch: &Launch) -> Setup<Vec<Part>> {
    let mut parts = Vec::new();
    let Some(rootfs) = &launch.rootfs else {
        let host = rustix::fs::open("/", PLACE | OFlags::DIRECTORY, Mode::empty()).step("read /")?;
        for name in PROGRAMS {
            parts.extend(Part::find(host.as_fd(), name.as_bytes())?);
        }
        return Ok(parts);
    };
    let tree = claim(rootfs)?;
    let step = format!("read {}", shown(&rootfs.path));
    let listed = rustix::fs::openat(&tree, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    for name in names(listed.step(&step)?.as_fd()).step(&step)? {
        if !OWN.iter().any(|own| name == own.as_bytes()) {
            parts.extend(Part::find(tree.as_fd(), &name)?);
        }
    }
    Ok(parts)
}

/// Makes a new empty root, attached to a directory that every host has; everything needed from that directory has been
/// opened before.
fn attach_root() -> io::Result<OwnedFd> {
    let options = [("size", "4m".to_owned()), ("mode", "0755".to_owned())];
    let mount = file_system("tmpfs", &options, attr::NOSUID | attr::NODEV)?;
    for place in ["/tmp", "/mnt", "/usr"] {
        match move_mount(&mount.0, "", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH) {
            Err(Errno::NOENT) => {}
            other => {
                other?;
                return Ok(mount.0);
            }
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

fn device_tree(
    new_root: BorrowedFd<'_>,
    devices: Vec<io::Result<(&str, Source)>>,
    launch: &Launch,
    rules: &mut Rules,
) -> Setup<()> {
    directory(new_root, b"dev", 0o755)?;
    for device in devices {
        let (name, source) = device.step("open a device")?;
        source.show(new_root, format!("dev/{name}").as_bytes())?;
    }
    // Limited, because all machines of a host share the kernel's terminals.
    let terminals =
        [("newinstance", String::new()), ("ptmxmode", "0666".into()), ("mode", "0620".into()), ("max", "256".into())];
    private(new_root, "dev/pts", "devpts", &terminals)?;
    private(new_root, "dev/shm", "tmpfs", &temporary(launch))?;
    let links = [
        ("pts/ptmx", "ptmx"),
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
    ];
    for (target, name) in links {
        rustix::fs::symlinkat(target, new_root, format!("dev/{name}")).step("link a device")?;
    }
    rules.allow(b"/dev", Grant::Device);
    rules.allow(b"/dev/shm", Grant::Write);
    Ok(())
}

/// Mount options: the machine's size limit, and a proportional number of files, because even an empty file takes
/// memory.
fn temporary(launch: &Launch) -> [(&'static str, String); 3] {
    let files = (launch.tmp_bytes / (16 * 1024)).clamp(1024, 1 << 20);
    [("size", launch.tmp_bytes.to_string()), ("nr_inodes", files.to_string()), ("mode", "1777".to_owned())]
}

fn small_places(new_root: BorrowedFd<'_>, launch: &Launch) -> Setup<()> {
    directory(new_root, b"run", 0o755)?;
    directory(new_root, b"home", 0o755)?;
    if launch.rootfs.is_some() {
        return Ok(());
    }
    directory(new_root, b"var", 0o755)?;
    for (target, name) in [("../tmp", "var/tmp"), ("../run", "var/run")] {
        rustix::fs::symlinkat(target, new_root, name).step(&format!("link /{name}"))?;
    }
    Ok(())
}

/// Creates a private home for each new user.
fn make_homes(new_root: BorrowedFd<'_>, users: &[(String, u32, u32)]) -> Setup<()> {
    let home = directory(new_root, b"home", 0o755)?;
    // On the host an ordinary user could not have chowned it.
    rustix::fs::chownat(&home, "", Some(Uid::ROOT), Some(Gid::ROOT), AtFlags::EMPTY_PATH).step("make /home")?;
    for (name, uid, gid) in users {
        let step = format!("make /home/{name}");
        rustix::fs::mkdirat(&home, name.as_str(), Mode::RWXU).step(&step)?;
        let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
        rustix::fs::chownat(&home, name.as_str(), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).step(&step)?;
    }
    Ok(())
}

/// Enters the tree and detaches the host's.
fn enter(new_root: BorrowedFd<'_>) -> Setup<()> {
    rustix::process::fchdir(new_root).step("enter the new root")?;
    files::pivot_here().step("make it the root")?;
    unmount(".", UnmountFlags::DETACH).step("let go of the host's root")?;
    rustix::process::chdir("/").step("enter the new root")?;
    set_mount_attr(new_root, attr::RDONLY, None, Depth::This).step("make the root read-only")
}

/// A mount that is not attached yet.
pub(crate) struct Mountable(OwnedFd);

impl Mountable {
    pub(crate) fn onto(self, place: BorrowedFd<'_>) -> io::Result<()> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        Ok(move_mount(&self.0, "", place, "", flags)?)
    }
}

/// Creates a new file system instance.
pub(crate) fn file_system(kind: &str, options: &[(&str, String)], attributes: u64) -> io::Result<Mountable> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        if value.is_empty() {
            rustix::mount::fsconfig_set_flag(&context, *key)?;
        } else {
            fsconfig_set_string(&context, *key, value.as_str())?;
        }
    }
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::from_bits_retain(attributes as u32);
    Ok(Mountable(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?))
}

fn private(new_root: BorrowedFd<'_>, inside: &str, kind: &str, options: &[(&str, String)]) -> Setup<()> {
    let place = directory(new_root, inside.as_bytes(), 0o755)?;
    let no_exec = if kind == "devpts" { attr::NOEXEC } else { attr::NODEV };
    file_system(kind, options, attr::NOSUID | no_exec)
        .and_then(|mount| mount.onto(place.as_fd()))
        .step(&format!("mount /{inside}"))
}

/// Opens a directory of the new tree and creates missing parts. No link is followed, so that a planted link cannot
/// redirect the mount.
pub(crate) fn directory(new_root: BorrowedFd<'_>, inside: &[u8], mode: u32) -> Setup<OwnedFd> {
    let step = format!("make the place {}", shown(inside));
    let mut here = open_beneath(new_root, b".").step(&step)?;
    for part in inside.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        let make = || rustix::fs::mkdirat(&here, OsStr::from_bytes(part), Mode::from_raw_mode(mode));
        match as_owner(&here, make) {
            // Opening it shows whether it exists and is a directory.
            Ok(()) | Err(Errno::EXIST | Errno::ROFS | Errno::ACCESS | Errno::PERM) => {}
            Err(error) => return Err(error).step(&step),
        }
        here = open_beneath(here.as_fd(), part).step(&step)?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&here).step(&step)?.st_mode);
        if kind != FileType::Directory {
            return Err(refuse(step, "", "")).map_err(|failure| BootFailure { errno: libc::ENOTDIR, ..failure });
        }
    }
    Ok(here)
}

/// Creates a file or directory as the agent if the agent owns the parent, so that the agent can use it. A host tree
/// with mapped owners also needs the agent: the machine's root is not mapped there.
fn as_owner<T>(parent: &OwnedFd, make: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    let as_agent = || {
        files::set_fs_identity(AGENT, AGENT);
        let made = make();
        files::set_fs_identity(0, 0);
        made
    };
    if rustix::fs::fstat(parent)?.st_uid == AGENT {
        return as_agent();
    }
    match make() {
        Err(Errno::OVERFLOW) => as_agent(),
        other => other,
    }
}

fn file(new_root: BorrowedFd<'_>, inside: &[u8]) -> Setup<OwnedFd> {
    let step = format!("make the place {}", shown(inside));
    let split = inside.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (parent, name) = inside.split_at(split);
    let parent = directory(new_root, parent, 0o755)?;
    let make = || rustix::fs::openat(&parent, OsStr::from_bytes(name), NEW_FILE, Mode::from_raw_mode(0o644));
    match as_owner(&parent, make) {
        Ok(_) | Err(Errno::EXIST | Errno::ROFS | Errno::ACCESS) => {}
        Err(error) => return Err(error).step(&step),
    }
    open_beneath(parent.as_fd(), name).step(&step)
}

fn open_beneath(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    files::open_how(dir, &name, libc::O_PATH, BENEATH | NO_SYMLINKS, Token([0; 2]))
}

/// Joins two paths.
pub(crate) fn below(dir: &[u8], name: &[u8]) -> Vec<u8> {
    [dir, b"/", name].concat()
}

pub(crate) fn shown(path: &[u8]) -> String {
    let path = String::from_utf8_lossy(path);
    if path.starts_with('/') { path.into_owned() } else { format!("/{path}") }
}
