//! A worktree whose repository lies elsewhere: named, or shown for reading so that git works inside.

use std::{
    fs::{self, File},
    io::Read as _,
    path::{Component, Path, PathBuf},
};

use sandbar::{Access, HostMount, MachinePath, MachineSpec};

use super::search::{is_repository, leads_to};
use crate::args::GitArg;

/// No pointer is longer.
const LIMIT: u64 = 1 << 16;

/// A directory's repository, of which nothing is in the directory but a pointer.
#[derive(Debug)]
pub(crate) struct Worktree {
    repository: PathBuf,
    /// What git must find inside, and where.
    places: Vec<(PathBuf, PathBuf)>,
    /// Whether the repository says that this is its worktree. The pointer alone may have come out of a sandbox.
    is_known: bool,
}

impl Worktree {
    /// Of a directory, if its repository is elsewhere.
    pub(crate) fn of(dir: &Path) -> Option<Self> {
        let dir = dir.canonicalize().ok()?;
        let pointer = dir.join(".git");
        let text = read(&pointer);
        let gitdir = leads_to(&text, "gitdir:", &dir)?;
        // From inside, a relative one begins at another place.
        let seen = plain(&leads_to(&text, "gitdir:", Path::new("/workspace"))?);
        let real = gitdir.canonicalize().ok().filter(|gitdir| !gitdir.starts_with(&dir) && is_repository(gitdir))?;
        let common = read(&real.join("commondir"));
        let (repository, common) = match leads_to(&common, "", &real).and_then(|common| common.canonicalize().ok()) {
            Some(repository) => (repository, plain(&leads_to(&common, "", &seen)?)),
            None => (real.clone(), seen.clone()),
        };
        let is_known = real.starts_with(repository.join("worktrees")) && is_known(&real, &dir);
        let mut places = vec![(repository.clone(), common.clone())];
        if !seen.starts_with(&common) {
            places.push((real, seen));
        }
        Some(Self { repository, places, is_known })
    }

    /// Shows the repository if that was asked for and may be. What to say if it is not shown.
    pub(crate) fn show(&self, spec: &mut MachineSpec, git: Option<GitArg>) -> Option<String> {
        let hidden = format!("its repository {} is not shown", self.repository.display());
        if !self.is_known {
            return Some(format!("{hidden}, for it does not name this directory as its worktree"));
        }
        if git != Some(GitArg::Ro) {
            return Some(format!("{hidden}; --git ro shows it for reading"));
        }
        let mount = |(host, inside): &(PathBuf, PathBuf)| {
            let inside = MachinePath::new(inside).ok()?;
            Some(HostMount { host: host.clone(), inside, access: Access::ReadOnly, identity: None })
        };
        let Some(mounts) = self.places.iter().map(mount).collect::<Option<Vec<_>>>() else { return Some(hidden) };
        let is_shown = |mount: &HostMount| spec.mounts.iter().any(|shown| shown.inside == mount.inside);
        let new: Vec<HostMount> = mounts.into_iter().filter(|mount| !is_shown(mount)).collect();
        spec.mounts.extend(new);
        None
    }
}

/// Whether a repository's directory names a working tree as its own.
fn is_known(gitdir: &Path, dir: &Path) -> bool {
    let back = leads_to(&read(&gitdir.join("gitdir")), "", gitdir).and_then(|back| back.canonicalize().ok());
    back.is_some_and(|back| back == dir.join(".git"))
}

/// A small file, if it is one.
fn read(path: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) {
        let _what_there_was = File::open(path).and_then(|file| file.take(LIMIT).read_to_end(&mut text));
    }
    text
}

/// A path without `.` and `..`, by its letters: inside there are no links on the way.
fn plain(path: &Path) -> PathBuf {
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
