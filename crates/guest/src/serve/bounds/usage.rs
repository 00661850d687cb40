//! Counts disk usage below some directories, a little at a time, despite closed permissions and deep trees.

use std::{
    collections::HashSet,
    ffi::{CString, OsStr},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    time::Instant,
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, RawDir},
    io::Errno,
};

use crate::{
    handles,
    sys::{
        files::{BENEATH, NO_SYMLINKS, NO_XDEV, open_how, set_fs_identity},
        process::die_with_parent,
        security::Token,
    },
};

/// Least number of bytes that a file counts for: even an empty one takes an inode.
pub(crate) const LEAST: u64 = 1024;
/// Most pending directories, bytes of their paths, and nested closed directories; above that, a tree counts as endless.
const MOST_PENDING: usize = 1 << 20;
const MOST_PATHS: usize = 64 << 20;
const MOST_CLOSED: usize = 64;

const RESOLVE: u64 = BENEATH | NO_SYMLINKS | NO_XDEV;
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Whose permissions apply while counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Looker {
    /// The guest's own: it is the only user.
    #[default]
    Own,
    /// Those of each file's owner, which the guest may switch to.
    Owners,
}

impl Looker {
    pub(crate) fn become_owner(self, (uid, gid): (u32, u32)) {
        if self == Self::Owners {
            set_fs_identity(uid, gid);
        }
    }

    pub(crate) fn be_oneself(self) {
        self.become_owner((0, 0));
        if self == Self::Owners {
            // The kernel clears the parent-death signal on every change of identity.
            let _bound_again = die_with_parent();
        }
    }
}

/// Directories to count.
pub(crate) struct Places {
    pub(crate) roots: Vec<OwnedFd>,
    pub(crate) token: Token,
    pub(crate) looker: Looker,
}

impl Places {
    /// Their device numbers.
    pub(crate) fn devices(&self) -> Vec<u64> {
        self.roots.iter().filter_map(|root| rustix::fs::fstat(root).ok()).map(|stat| stat.st_dev).collect()
    }

    /// Their paths, as the kernel shows them.
    pub(crate) fn names(&self) -> Vec<Vec<u8>> {
        let name =
            |root: &OwnedFd| rustix::fs::readlink(handles::path_of(root), Vec::new()).ok().map(CString::into_bytes);
        self.roots.iter().filter_map(name).collect()
    }
}

/// A directory to read: the index of its root, its path below that root, and the owner of its parent.
struct Dir {
    root: usize,
    path: Vec<u8>,
    parent: (u32, u32),
}

/// Remaining work of a count.
enum Ahead {
    Dir(Dir),
    /// A closed directory that was opened for counting: restore its mode.
    Close(Closed),
}

struct Closed {
    held: OwnedFd,
    owner: (u32, u32),
    mode: u32,
}

impl Closed {
    const OPEN: u32 = 0o500;

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(handles::set_mode(&self.held, Mode::from_raw_mode(mode))?)
    }

    fn close(&self) {
        let unchanged = rustix::fs::fstat(&self.held).is_ok_and(|stat| stat.st_mode & 0o777 == self.mode | Self::OPEN);
        if unchanged {
            let _gone_meanwhile = self.set_mode(self.mode);
        }
    }
}

/// A directory that is being read.
struct Reading {
    dir: Dir,
    fd: OwnedFd,
    owner: (u32, u32),
}

/// A count in progress.
pub(crate) struct Count {
    /// Bytes counted so far.
    pub(crate) sum: u64,
    looker: Looker,
    /// Popped from the end.
    ahead: Vec<Ahead>,
    path_bytes: usize,
    closed: usize,
    open: Option<Reading>,
    /// Files with several links that were counted.
    shared: HashSet<(u64, u64)>,
}

impl Count {
    pub(crate) fn new(places: &Places) -> Self {
        let dir = |root| Ahead::Dir(Dir { root, path: Vec::new(), parent: (0, 0) });
        Self {
            sum: 0,
            looker: places.looker,
            ahead: (0..places.roots.len()).map(dir).collect(),
            path_bytes: 0,
            closed: 0,
            open: None,
            shared: HashSet::new(),
        }
    }

    /// Continues until everything is counted or the time is over; `true` when everything is counted.
    pub(crate) fn go_on(&mut self, places: &Places, until: Instant) -> bool {
        let mut buffer = Vec::with_capacity(32 * 1024);
        let done = loop {
            let Some(reading) = self.open.take().or_else(|| self.next(places)) else { break true };
            if self.read_some(&reading, &mut buffer) {
                self.open = Some(reading);
            }
            if Instant::now() >= until {
                break self.open.is_none() && self.ahead.is_empty();
            }
        };
        self.looker.be_oneself();
        done
    }

    /// Opens the next directory; those that are gone are skipped.
    fn next(&mut self, places: &Places) -> Option<Reading> {
        while let Some(ahead) = self.ahead.pop() {
            let dir = match ahead {
                Ahead::Dir(dir) => dir,
                Ahead::Close(closed) => {
                    self.closed -= 1;
                    self.looker.become_owner(closed.owner);
                    closed.close();
                    continue;
                }
            };
            self.path_bytes -= dir.path.len();
            match self.open(places, &dir) {
                Ok((fd, owner)) => return Some(Reading { dir, fd, owner }),
                // Legitimate trees are not this deep; what is down there must not go uncounted.
                Err(error) if error.raw_os_error() == Some(libc::ENAMETOOLONG) => self.sum = u64::MAX,
                Err(_) => {}
            }
        }
        None
    }

    /// Opens a directory for reading, also one that its owner closed. Other mounts below are not entered: they are not
    /// the machine's own.
    fn open(&mut self, places: &Places, dir: &Dir) -> io::Result<(OwnedFd, (u32, u32))> {
        let root = places.roots.get(dir.root).ok_or(io::ErrorKind::NotFound)?;
        let name = CString::new(if dir.path.is_empty() { b".".as_slice() } else { &dir.path })?;
        let resolved = |flags: i32| open_how(root.as_fd(), &name, flags | libc::O_DIRECTORY, RESOLVE, places.token);
        if self.looker == Looker::Own {
            match resolved(libc::O_RDONLY) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                opened => return Ok((opened?, (0, 0))),
            }
        }
        self.looker.become_owner(dir.parent);
        let held = resolved(libc::O_PATH)?;
        let stat = rustix::fs::fstat(&held)?;
        let owner = (stat.st_uid, stat.st_gid);
        self.looker.become_owner(owner);
        let reopen = |held: &OwnedFd| rustix::fs::open(handles::path_of(held), DIRECTORY, Mode::empty());
        match reopen(&held) {
            Err(Errno::ACCESS) => {}
            opened => return Ok((opened?, owner)),
        }
        if self.closed >= MOST_CLOSED {
            self.sum = u64::MAX;
            return Err(Errno::ACCESS.into());
        }
        let closed = Closed { held, owner, mode: stat.st_mode & 0o777 };
        closed.set_mode(closed.mode | Closed::OPEN)?;
        let opened = reopen(&closed.held);
        // Pushed before its entries, so that it is popped after them.
        self.ahead.push(Ahead::Close(closed));
        self.closed += 1;
        Ok((opened?, owner))
    }

    /// Reads one piece of a directory; `false` at its end.
    fn read_some(&mut self, reading: &Reading, buffer: &mut Vec<u8>) -> bool {
        self.looker.become_owner(reading.owner);
        let mut entries = RawDir::new(&reading.fd, buffer.spare_capacity_mut());
        let mut any = false;
        while let Some(Ok(entry)) = entries.next() {
            any = true;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                self.add(reading, name);
            }
            if entries.is_buffer_empty() {
                break;
            }
        }
        any
    }

    fn add(&mut self, reading: &Reading, name: &[u8]) {
        let found = rustix::fs::statat(&reading.fd, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW);
        let Ok(stat) = found else { return };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let (root, path) = (reading.dir.root, &reading.dir.path);
            let path = if path.is_empty() { name.to_vec() } else { [path.as_slice(), b"/", name].concat() };
            self.path_bytes += path.len();
            self.ahead.push(Ahead::Dir(Dir { root, path, parent: reading.owner }));
            if self.ahead.len() > MOST_PENDING || self.path_bytes > MOST_PATHS {
                self.sum = u64::MAX;
            }
        } else if stat.st_nlink > 1 && !self.shared.insert((stat.st_dev, stat.st_ino)) {
            return;
        }
        let bytes = u64::try_from(stat.st_blocks).unwrap_or_default().saturating_mul(512);
        self.sum = self.sum.saturating_add(bytes.max(LEAST));
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        let left = self.ahead.iter().rev().filter_map(|ahead| match ahead {
            Ahead::Close(closed) => Some(closed),
            Ahead::Dir(_) => None,
        });
        for closed in left {
            self.looker.become_owner(closed.owner);
            closed.close();
        }
        if self.closed > 0 {
            self.looker.be_oneself();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::PermissionsExt,
        path::{Path, PathBuf},
        time::Duration,
    };

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("sandbar-usage-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn places(dir: &Path) -> Places {
        let root = rustix::fs::open(dir, DIRECTORY, Mode::empty()).unwrap();
        Places { roots: vec![root], token: Token([0; 2]), looker: Looker::Own }
    }

    fn whole(dir: &Path) -> u64 {
        let (places, until) = (places(dir), Instant::now() + Duration::from_secs(60));
        let mut count = Count::new(&places);
        assert!(count.go_on(&places, until));
        count.sum
    }

    #[test]
    fn what_is_on_disk_counts_once_and_holes_and_links_do_not() {
        let dir = scratch("once");
        assert_eq!(whole(&dir), 0);
        fs::write(dir.join("a"), vec![1; 1 << 20]).unwrap();
        let one = whole(&dir);
        assert!((1 << 20..1 << 21).contains(&one), "{one}");
        fs::hard_link(dir.join("a"), dir.join("b")).unwrap();
        // A file system may allocate a few more blocks when it writes the file out.
        assert!(whole(&dir) < one + (64 << 10));
        fs::File::create(dir.join("hole")).unwrap().set_len(1 << 30).unwrap();
        std::os::unix::fs::symlink("/usr", dir.join("link")).unwrap();
        assert!(whole(&dir) < one + (64 << 10));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_count_in_pieces_is_the_whole_count() {
        let dir = scratch("pieces");
        for index in 0..50 {
            let below = dir.join(format!("{}/{index}", index % 7));
            fs::create_dir_all(&below).unwrap();
            fs::write(below.join("file"), [0; 100]).unwrap();
        }
        let places = places(&dir);
        let (mut count, mut turns) = (Count::new(&places), 0);
        while !count.go_on(&places, Instant::now()) {
            turns += 1;
        }
        assert!(turns > 50, "{turns}");
        assert_eq!(count.sum, whole(&dir));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_closed_directory_is_counted_and_closed_again() {
        let dir = scratch("closed");
        let (outer, inner) = (dir.join("outer"), dir.join("outer/inner"));
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("file"), vec![1; 1 << 20]).unwrap();
        let close = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
        close(&inner);
        close(&outer);
        assert!(whole(&dir) > 1 << 20);
        let places = places(&dir);
        assert!(!Count::new(&places).go_on(&places, Instant::now()), "given up half-way");
        assert_eq!(fs::metadata(&outer).unwrap().permissions().mode() & 0o777, 0);
        fs::set_permissions(&outer, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(fs::metadata(&inner).unwrap().permissions().mode() & 0o777, 0);
        fs::set_permissions(&inner, fs::Permissions::from_mode(0o700)).unwrap();
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn directories_that_vanish_during_a_count_are_skipped() {
        let dir = scratch("vanish");
        for index in 0..20 {
            fs::create_dir_all(dir.join(index.to_string())).unwrap();
            fs::write(dir.join(format!("{index}/file")), vec![1; 1 << 20]).unwrap();
        }
        let places = places(&dir);
        let mut count = Count::new(&places);
        assert!(!count.go_on(&places, Instant::now()), "only the root is read so far");
        (0..20).for_each(|index| fs::remove_dir_all(dir.join(index.to_string())).unwrap());
        assert!(count.go_on(&places, Instant::now() + Duration::from_secs(60)));
        assert!(count.sum < 1 << 20, "{}", count.sum);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_file_with_names_below_several_roots_counts_once() {
        let (one, other) = (scratch("root-one"), scratch("root-other"));
        fs::write(one.join("a"), vec![1; 1 << 20]).unwrap();
        fs::hard_link(one.join("a"), other.join("b")).unwrap();
        fs::write(other.join("c"), vec![1; 2 << 20]).unwrap();
        let (mut both, until) = (places(&one), Instant::now() + Duration::from_secs(60));
        both.roots.extend(places(&other).roots);
        let mut count = Count::new(&both);
        assert!(count.go_on(&both, until));
        assert!((3 << 20..4 << 20).contains(&count.sum), "{}", count.sum);
        let device = rustix::fs::stat(&one).unwrap().st_dev;
        assert_eq!(both.devices(), [device, device]);
        assert_eq!(both.names(), [&one, &other].map(|root| root.as_os_str().as_encoded_bytes().to_vec()));
        fs::remove_dir_all(one).unwrap();
        fs::remove_dir_all(other).unwrap();
    }

    #[test]
    fn a_tree_too_deep_for_a_path_counts_as_endless() {
        let dir = scratch("deep");
        let mut handle = rustix::fs::open(&dir, DIRECTORY, Mode::empty()).unwrap();
        let name = "d".repeat(250);
        for _ in 0..17 {
            rustix::fs::mkdirat(&handle, &name, Mode::from_raw_mode(0o700)).unwrap();
            handle = rustix::fs::openat(&handle, &name, DIRECTORY, Mode::empty()).unwrap();
        }
        assert_eq!(whole(&dir), u64::MAX);
        crate::remove::remove_tree(rustix::fs::CWD, dir.as_os_str().as_encoded_bytes()).unwrap();
    }
}
