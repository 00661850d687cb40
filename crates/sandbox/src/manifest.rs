//! The manifest: how a fresh workspace begins. Files, variables, accounts and granted places, declared and checked before
//! anything is made.
//!
//! ```
//! use sandbar_sandbox::{Entry, LocalDir, Manifest};
//!
//! let manifest = Manifest::new().file("brief.md", "# Northwind").local_dir("repo", LocalDir::new("./src")).env("LANG", "C");
//! manifest.check()?;
//! assert_eq!(manifest, Manifest::from_json(&manifest.to_json()?)?);
//! # Ok::<(), sandbar_sandbox::SandboxError>(())
//! ```

mod account;
mod check;
mod describe;
mod entries;
mod environment;
mod fault;
mod grant;
mod load;
mod origin;
mod outlook;
mod permissions;
mod read;
mod save;
mod spelling;
#[cfg(test)]
mod tests;
mod tree;

use std::path::{Path, PathBuf};

use sandbar_machine::MachinePath;

pub(crate) use self::{
    account::wanted,
    fault::{At, Fault},
    origin::check_sources,
    outlook::roots,
    read::Reader,
};
pub use self::{
    account::{EntryGroup, Group, User},
    entries::Entries,
    environment::{EnvSource, EnvValue, Environment},
    grant::PathGrant,
    load::Format,
    outlook::{Outlook, Unchecked},
    permissions::Permissions,
    save::SavedManifest,
};
use self::{fault::Faults, origin::Origin, save::Unrestored};
use crate::{
    Content, Dir, Entry, File, GitRepo, LocalDir, LocalFile, Mount, RemoteDir, RemoteFile, Result, WorkspacePath,
};

/// What a model is told it may run on mounted storage, unless the manifest says otherwise.
const ALLOWLIST: &[&str] = &[
    "ls", "find", "stat", "cat", "less", "head", "tail", "du", "grep", "rg", "wc", "sort", "cut", "cp", "tee", "echo",
    "mkdir", "rm",
];

/// How a fresh workspace begins.
///
/// A builder method never fails: what is wrong with a path is kept and told by [`check`](Self::check).
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Where in the machine the workspace is.
    pub root: MachinePath,
    /// What is in it.
    pub entries: Entries,
    /// What commands find in their environment.
    pub environment: Environment,
    /// The users that the machine shall know.
    pub users: Vec<User>,
    /// The groups that the machine shall know.
    pub groups: Vec<Group>,
    /// The places outside the workspace that may be used.
    pub extra_path_grants: Vec<PathGrant>,
    /// What a model is told it may run on mounted storage.
    pub remote_mount_command_allowlist: Vec<String>,
    /// The directory of the file this was read from.
    base_dir: Option<PathBuf>,
    origin: Origin,
    /// Whether the caller answers for the addresses it names.
    private_addresses: bool,
    unrestored: Unrestored,
    /// What builder methods and the reader had to leave out.
    faults: Faults,
}

impl Default for Manifest {
    fn default() -> Self {
        Self::new()
    }
}

impl Manifest {
    /// The version of the format, the only one there is.
    pub const VERSION: u64 = 1;

    /// An empty workspace in `/workspace`.
    #[must_use]
    pub fn new() -> Self {
        Self {
            root: MachinePath::workspace(),
            entries: Entries::new(),
            environment: Environment::new(),
            users: Vec::new(),
            groups: Vec::new(),
            extra_path_grants: Vec::new(),
            remote_mount_command_allowlist: ALLOWLIST.iter().map(|&name| name.to_owned()).collect(),
            base_dir: None,
            origin: Origin::Built,
            private_addresses: false,
            unrestored: Unrestored::default(),
            faults: Faults::default(),
        }
    }

    /// The same with its root somewhere else.
    #[must_use]
    pub fn root(mut self, path: impl AsRef<str>) -> Self {
        match MachinePath::new(path.as_ref()) {
            Ok(root) => self.root = root,
            Err(error) => self.faults.push(Fault::invalid(&At::top("root"), error.to_string())),
        }
        self
    }

    /// The same with one more entry.
    #[must_use]
    pub fn entry(mut self, path: impl AsRef<str>, entry: impl Into<Entry>) -> Self {
        self.entries.insert(path, entry);
        self
    }

    /// The same with one more file, text or bytes.
    #[must_use]
    pub fn file(self, path: impl AsRef<str>, content: impl Into<Content>) -> Self {
        self.entry(path, File::new(content))
    }

    /// The same with one more directory.
    #[must_use]
    pub fn dir(self, path: impl AsRef<str>, dir: Dir) -> Self {
        self.entry(path, dir)
    }

    /// The same with one more file of the host.
    #[must_use]
    pub fn local_file(self, path: impl AsRef<str>, file: LocalFile) -> Self {
        self.entry(path, file)
    }

    /// The same with one more directory of the host.
    #[must_use]
    pub fn local_dir(self, path: impl AsRef<str>, dir: LocalDir) -> Self {
        self.entry(path, dir)
    }

    /// The same with one more repository: a [`GitRepo`], or only `owner/name@ref`.
    #[must_use]
    pub fn git_repo(self, path: impl AsRef<str>, repo: impl Into<GitRepo>) -> Self {
        self.entry(path, repo.into())
    }

    /// The same with one more file that is fetched.
    #[must_use]
    pub fn remote_file(self, path: impl AsRef<str>, file: RemoteFile) -> Self {
        self.entry(path, file)
    }

    /// The same with one more archive that is fetched and unpacked.
    #[must_use]
    pub fn remote_dir(self, path: impl AsRef<str>, dir: RemoteDir) -> Self {
        self.entry(path, dir)
    }

    /// The same with one more directory of the host shown in place.
    #[must_use]
    pub fn mount(self, path: impl AsRef<str>, mount: Mount) -> Self {
        self.entry(path, mount)
    }

    /// The same with one more variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<EnvValue>) -> Self {
        self.environment.set(name, value);
        self
    }

    /// The same with one more user.
    #[must_use]
    pub fn user(mut self, user: User) -> Self {
        self.users.push(user);
        self
    }

    /// The same with one more group.
    #[must_use]
    pub fn group(mut self, group: Group) -> Self {
        self.groups.push(group);
        self
    }

    /// The same with one more place outside the workspace.
    #[must_use]
    pub fn grant(mut self, grant: PathGrant) -> Self {
        self.extra_path_grants.push(grant);
        self
    }

    /// The same, its relative sources beginning at this directory of the host.
    #[must_use]
    pub fn base_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.base_dir = Some(directory.into());
        self
    }

    /// Adds an entry, unless the very same is there already. Another one at its path is a fault.
    pub fn ensure(&mut self, path: impl AsRef<str>, entry: impl Into<Entry>) {
        let (path, entry) = (path.as_ref(), entry.into());
        let known = WorkspacePath::new(path).ok().and_then(|path| self.entries.get(&path));
        if known != Some(&entry) {
            self.entries.insert(path, entry);
        }
    }

    /// Makes a user known, if the manifest does not know it yet.
    pub fn add_user(&mut self, name: &str) {
        if !self.all_users().contains(name) {
            self.users.push(User::new(name));
        }
    }

    /// The directory of the host that relative sources begin at, if it is known.
    #[must_use]
    pub fn source_dir(&self) -> Option<&Path> {
        self.base_dir.as_deref()
    }

    /// The same with everything of another manifest added. Its root is not taken over; of two variables with one name the
    /// other's counts; an entry that both have is a fault. The whole is trusted no more than the less trusted of the two.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.private_addresses = self.may_use_private_addresses() && other.may_use_private_addresses();
        self.entries.extend(other.entries);
        for (name, value) in other.environment.iter() {
            self.environment.set(name, value.clone());
        }
        for user in other.users {
            self.add_user(&user.name);
        }
        for group in other.groups {
            match self.groups.iter_mut().find(|known| known.name == group.name) {
                Some(known) => known.users.extend(group.users),
                None => self.groups.push(group),
            }
        }
        self.extra_path_grants.extend(other.extra_path_grants);
        self.faults.extend(other.faults);
        self.origin = self.origin.max(other.origin);
        self
    }

    /// Every entry with its whole path, directories before what is in them, in the order they were given.
    #[must_use]
    pub fn flatten(&self) -> Vec<(WorkspacePath, &Entry)> {
        let mut flat = Vec::with_capacity(self.entries.len());
        self.entries.flatten_into(None, &mut flat);
        flat
    }

    /// Every mount with its entry's path and where it shows up in the machine, those nearest to the root first.
    ///
    /// # Errors
    /// `mount_config_invalid` for the first that shows up where it may not.
    pub fn mounts(&self) -> Result<Vec<(WorkspacePath, MachinePath, &Entry)>> {
        let mut mounts = Vec::new();
        for (path, entry) in self.flatten() {
            if let Some(point) = entry.mount_point() {
                let target = point.target(&self.root, &path)?;
                mounts.push((path, target, entry));
            }
        }
        mounts.sort_by_key(|(_, target, _)| target.as_bytes().iter().filter(|byte| **byte == b'/').count());
        Ok(mounts)
    }

    /// The paths below the root that are left out of what is saved: ephemeral entries, and where ephemeral mounts show up.
    #[must_use]
    pub fn ephemeral_paths(&self) -> Vec<WorkspacePath> {
        let mut paths = Vec::new();
        for (path, entry) in self.flatten().into_iter().filter(|(_, entry)| entry.attributes().ephemeral) {
            let target = entry.mount_point().and_then(|point| point.target(&self.root, &path).ok());
            let shown = target.and_then(|target| {
                let inside = target.as_bytes().strip_prefix(self.root.as_bytes())?.strip_prefix(b"/")?;
                WorkspacePath::new(std::str::from_utf8(inside).ok()?).ok()
            });
            paths.extend(shown.filter(|shown| *shown != path));
            paths.push(path);
        }
        paths.sort();
        paths.dedup();
        paths
    }
}
