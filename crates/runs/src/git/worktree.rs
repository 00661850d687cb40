//! A git worktree whose repository is in another directory, which a machine can be shown read-only.

use std::{
    fmt,
    fs::{self, File},
    io::Read as _,
    path::{Component, Path, PathBuf},
};

use sandbar::{Access, HostMount, MachinePath, MachineSpec};

use super::{
    GitAccess,
    search::{is_repository, pointer_target},
};

/// Maximum size of a pointer file.
const MAX_POINTER: u64 = 1 << 16;

/// A directory with a `.git` file that points to its repository elsewhere.
#[derive(Debug)]
pub struct Worktree {
    repository: PathBuf,
    /// Directories that git needs: path on the host, and path in the machine.
    directories: Vec<(PathBuf, PathBuf)>,
    /// Whether the repository lists this worktree. The pointer alone could have been written by a sandbox.
    is_known: bool,
}

/// A repository that a machine is not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenRepository {
    /// Path of the repository.
    pub path: PathBuf,
    /// Why the repository is not shown.
    pub cause: HiddenCause,
}

/// Why a machine is not shown the repository of a worktree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HiddenCause {
    /// The repository does not name the directory as its worktree.
    Unknown,
    /// [`GitAccess::Readable`] was not given.
    NotAsked,
    /// The machine cannot have a directory of that path.
    Path,
}

impl fmt::Display for HiddenRepository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its repository {} is not shown", self.path.display())?;
        match self.cause {
            HiddenCause::Unknown => f.write_str(", for it does not name this directory as its worktree"),
            HiddenCause::NotAsked | HiddenCause::Path => Ok(()),
        }
    }
}

impl Worktree {
    /// The worktree in a directory; `None` if its repository is not elsewhere.
    pub fn of(dir: &Path) -> Option<Self> {
        let dir = dir.canonicalize().ok()?;
        let pointer = dir.join(".git");
        let text = read(&pointer);
        let gitdir = pointer_target(&text, "gitdir:", &dir)?;
        // In the machine, a relative path starts at another directory.
        let inside = normalize(&pointer_target(&text, "gitdir:", Path::new("/workspace"))?);
        let real = gitdir.canonicalize().ok().filter(|gitdir| !gitdir.starts_with(&dir) && is_repository(gitdir))?;
        let common = read(&real.join("commondir"));
        let (repository, common) =
            match pointer_target(&common, "", &real).and_then(|common| common.canonicalize().ok()) {
                Some(repository) => (repository, normalize(&pointer_target(&common, "", &inside)?)),
                None => (real.clone(), inside.clone()),
            };
        let is_known = real.starts_with(repository.join("worktrees")) && is_known(&real, &dir);
        let mut directories = vec![(repository.clone(), common.clone())];
        if !inside.starts_with(&common) {
            directories.push((real, inside));
        }
        Some(Self { repository, directories, is_known })
    }

    /// Mounts the repository read-only if `git` allows that. Otherwise returns why it is not shown.
    pub fn show(&self, spec: &mut MachineSpec, git: GitAccess) -> Option<HiddenRepository> {
        let hidden = |cause| HiddenRepository { path: self.repository.clone(), cause };
        if !self.is_known {
            return Some(hidden(HiddenCause::Unknown));
        }
        if git != GitAccess::Readable {
            return Some(hidden(HiddenCause::NotAsked));
        }
        let mount = |(host, inside): &(PathBuf, PathBuf)| {
            let inside = MachinePath::new(inside).ok()?;
            Some(HostMount { host: host.clone(), inside, access: Access::ReadOnly, identity: None })
        };
        let Some(mounts) = self.directories.iter().map(mount).collect::<Option<Vec<_>>>() else {
            return Some(hidden(HiddenCause::Path));
        };
        let is_shown = |mount: &HostMount| spec.mounts.iter().any(|shown| shown.inside == mount.inside);
        let new: Vec<HostMount> = mounts.into_iter().filter(|mount| !is_shown(mount)).collect();
        spec.mounts.extend(new);
        None
    }
}

/// Whether a repository lists a directory as its worktree.
fn is_known(gitdir: &Path, dir: &Path) -> bool {
    let back = pointer_target(&read(&gitdir.join("gitdir")), "", gitdir).and_then(|back| back.canonicalize().ok());
    back.is_some_and(|back| back == dir.join(".git"))
}

/// Content of a small regular file; empty if there is none.
fn read(path: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) {
        let _partial_content_is_fine = File::open(path).and_then(|file| file.take(MAX_POINTER).read_to_end(&mut text));
    }
    text
}

/// Removes `.` and `..` from a path without looking at the file system: the path in the machine contains no links.
fn normalize(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::Normal(name) => plain.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain
}
