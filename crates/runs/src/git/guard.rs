//! The git repositories in directories that a sandbox can write to: mounted read-only, and compared after the work.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{DirBuilderExt as _, OpenOptionsExt as _},
    },
    path::Path,
};

use sandbar::{Access, FileIdentity, HostMount, MachinePath, MachineSpec, Manifest, machine::Demand};
use sandbar_host_files::{ConfinedDir, as_path, at_and_above};
use serde::{Deserialize, Serialize};

use super::{
    GitAccess, is_git,
    search::{Bounds, Fingerprint, Repositories, at, is_repository},
};
use crate::{Error, ErrorKind, PathBytes, Result, error::other, host_paths};

/// Maximum number of protected paths in one directory; each is a mount.
const MAX_MOUNTS: usize = 256;

/// Maximum number of findings that are listed by path.
const MAX_FINDINGS: usize = 8;

/// The repositories that a sandbox must not change, with their state at the start.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Guard {
    roots: Vec<Root>,
    /// Findings that were reported already.
    #[serde(default, rename = "told")]
    reported: BTreeSet<String>,
}

/// A directory of the host that a sandbox can write to, and the repositories in it.
#[derive(Debug, Serialize, Deserialize)]
struct Root {
    host: PathBytes,
    /// Path below the directory where the search begins.
    #[serde(default)]
    start: PathBytes,
    known: BTreeMap<PathBytes, Fingerprint>,
}

impl Guard {
    /// Adds a read-only mount to the specification for everything that belongs to a repository in the writable directories.
    /// Also returns notes about directories that were not searched completely.
    pub fn set_up(spec: &mut MachineSpec, manifest: &Manifest, git: GitAccess) -> Result<(Self, Vec<String>)> {
        let (mut guard, mut notes) = (Self::default(), Vec::new());
        if git == GitAccess::Writable {
            return Ok((guard, notes));
        }
        let shown = host_paths::shown(spec, manifest);
        for (host, inside) in host_paths::writable(spec, manifest) {
            // A missing path, and the root of the host, are refused later with a better error.
            let Some(host) = host.canonicalize().ok().filter(|host| host.parent().is_some()) else { continue };
            refuse_repository(&host)?;
            let Ok(root) = ConfinedDir::open(&host) else { continue };
            let found = Repositories::search(&root, (&host, b""), Bounds::default());
            notes.extend(found.search_note(&host));
            let is_hidden = |path: &MachinePath| {
                shown.iter().any(|mount| {
                    mount.inside.is_within(&inside) && mount.inside != inside && path.is_within(&mount.inside)
                })
            };
            let mounts = mounts((&host, &inside), &found, is_hidden)?;
            check_isolation(&host, &mounts, spec.isolation)?;
            spec.mounts.extend(mounts);
            let host = PathBytes(host.into_os_string().into_vec());
            guard.roots.push(Root { host, start: PathBytes::default(), known: found.own });
        }
        Ok((guard, notes))
    }

    /// Protects the repositories in a directory that files are copied to: all of the directory, or one `name` in it. Also
    /// returns the mounts for a machine that sees the directory at `inside`.
    pub fn for_copy_to((dir, inside): (&Path, &MachinePath), name: Option<&OsStr>) -> Result<(Self, Vec<HostMount>)> {
        let failed = |error: io::Error| Error::io(format!("cannot copy to {}", dir.display()), error);
        let host = dir.canonicalize().map_err(failed)?;
        let start = name.unwrap_or_default().as_bytes();
        refuse_repository(&host.join(as_path(start)))?;
        let found = Repositories::search(&ConfinedDir::open(&host).map_err(failed)?, (&host, start), Bounds::default());
        let mounts = mounts((&host, inside), &found, |_| false)?;
        check_isolation(&host, &mounts, Demand::Full)?;
        let start = PathBytes(start.to_vec());
        let host = PathBytes(host.into_os_string().into_vec());
        Ok((Self { roots: vec![Root { host, start, known: found.own }], reported: BTreeSet::new() }, mounts))
    }

    /// Searches again. Returns one sentence for each repository that appeared or changed since the start.
    pub fn findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        for Root { host, start, known } in &self.roots {
            let host = as_path(&host.0);
            match ConfinedDir::open(host) {
                Ok(root) => {
                    let found = Repositories::search(&root, (host, &start.0), Bounds::default());
                    findings.extend(compare(host, known, &found));
                    findings.extend(found.search_note(host));
                }
                Err(error) => findings.push(format!("cannot search {} for repositories: {error}", host.display())),
            }
        }
        findings
    }

    /// The findings that were not returned before.
    pub fn new_findings(&mut self) -> Vec<String> {
        let findings = self.findings().into_iter();
        findings.filter(|finding| self.reported.insert(finding.clone())).collect()
    }

    /// Saves the guard for the next process that uses the machine.
    pub fn save(&self, file: &Path) -> Result<()> {
        if self.roots.is_empty() {
            return Ok(());
        }
        let write = || {
            if let Some(dir) = file.parent() {
                DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            }
            let new = file.with_extension(format!("{}.new", std::process::id()));
            let text = serde_json::to_vec(self)?;
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?.write_all(&text)?;
            fs::rename(&new, file)
        };
        write().map_err(|error: io::Error| Error::io(format!("cannot write {}", file.display()), error))
    }

    /// Loads a saved guard; `None` if the machine cannot write to any directory of the host.
    pub fn load(file: &Path) -> Result<Option<Self>> {
        let failed = |error: io::Error| Error::io(format!("cannot read {}", file.display()), error);
        match fs::read(file) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| failed(error.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Refuses a path that belongs to a repository.
fn refuse_repository(host: &Path) -> Result<()> {
    let Some(repository) = enclosing_repository(host) else { return Ok(()) };
    let cause = other(format!("{} belongs to a git repository", repository.display()));
    Err(Error::new(ErrorKind::Repository, format!("cannot let a sandbox change {}", host.display()))
        .because(cause)
        .with_advice("show it read-only, or allow changes of repositories"))
}

/// The repository that a path of the host belongs to, judged by the names of its parents and by the files in them.
pub fn enclosing_repository(path: &Path) -> Option<&Path> {
    let is_named = |dir: &&Path| dir.file_name().is_some_and(|name| is_git(name.as_bytes()));
    // A worktree can lie in the directory of its repository and does not belong to the repository.
    let below = path.ancestors().take_while(|dir| dir.join(".git").symlink_metadata().is_err());
    path.ancestors().find(is_named).or_else(|| below.into_iter().find(|dir| is_repository(dir)))
}

/// Read-only mounts for everything that was found and that no other mount hides.
fn mounts(
    (host, inside): (&Path, &MachinePath),
    found: &Repositories,
    is_hidden: impl Fn(&MachinePath) -> bool,
) -> Result<Vec<HostMount>> {
    let mut mounts = Vec::new();
    for link in &found.links {
        if !is_hidden(&inside.join(as_path(&link.0))?) {
            let message = format!("cannot protect {}, which is a link", host.join(as_path(&link.0)).display());
            let advice = "work on a copy, show it read-only, or allow changes of repositories";
            return Err(Error::new(ErrorKind::RepositoryLink, message).with_advice(advice));
        }
    }
    for (path, fingerprint) in &found.own {
        let is_covered = at_and_above(&path.0).skip(1).any(|above| found.own.contains_key(&PathBytes(above.to_vec())));
        let target = inside.join(as_path(&path.0))?;
        if !is_covered && !is_hidden(&target) {
            let identity = Some(FileIdentity { device: fingerprint.device, inode: fingerprint.inode });
            let host = host.join(as_path(&path.0));
            mounts.push(HostMount { host, inside: target, access: Access::ReadOnly, identity });
        }
    }
    Ok(mounts)
}

fn check_isolation(host: &Path, mounts: &[HostMount], isolation: Demand) -> Result<()> {
    let Some(first) = mounts.first() else { return Ok(()) };
    if isolation != Demand::Full {
        let message = format!("cannot protect {} without full isolation", first.host.display());
        let advice = "demand full isolation, show the directory read-only, or allow changes of repositories";
        return Err(Error::new(ErrorKind::RepositoryIsolation, message).with_advice(advice));
    }
    if mounts.len() > MAX_MOUNTS {
        let message = format!("cannot protect the {} places of repositories in {}", mounts.len(), host.display());
        let advice = "show a directory with fewer repositories, or allow changes of repositories";
        return Err(Error::new(ErrorKind::TooManyRepositories, message).with_advice(advice));
    }
    Ok(())
}

/// One sentence for each difference.
fn compare(host: &Path, known: &BTreeMap<PathBytes, Fingerprint>, found: &Repositories) -> Vec<String> {
    let is_moved = |fingerprint: &Fingerprint| known.values().any(|known| known == fingerprint);
    let mut differences = Vec::new();
    for (path, fingerprint) in &found.own {
        let verb = match known.get(path) {
            Some(known) if known == fingerprint => continue,
            Some(known) if (known.device, known.inode) == (fingerprint.device, fingerprint.inode) => "was changed",
            Some(_) => "was moved away and replaced",
            // The same files at another path: they were protected at the old path, so they are unchanged.
            None if is_moved(fingerprint) => continue,
            None => "appeared",
        };
        differences.push((path, verb));
    }
    differences.extend(found.links.iter().map(|link| (link, "appeared as a link")));
    // Paths that the host trusted before come first.
    differences.sort_by_key(|(path, _)| !known.contains_key(*path));
    let more = differences.len().saturating_sub(MAX_FINDINGS);
    let sentence = |(path, verb): (&PathBytes, &str)| {
        let (path, advice) = (at(host, &path.0), "look at its configuration and hooks before you use git there");
        format!("{} {verb} during the work, and git obeys it: {advice}", path.display())
    };
    let mut sentences: Vec<String> = differences.into_iter().take(MAX_FINDINGS).map(sentence).collect();
    if more > 0 {
        sentences.push(format!("{more} more repositories in {} appeared or changed during the work", host.display()));
    }
    sentences
}
