//! The repositories of what a sandbox can write to: read-only while it works, and compared when it is done.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::{self, DirBuilder, OpenOptions},
    io::Write as _,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{DirBuilderExt as _, OpenOptionsExt as _},
    },
    path::Path,
};

use sandbar::{Access, Demand, FileIdentity, HostMount, MachinePath, MachineSpec, Manifest};
use serde::{Deserialize, Serialize};

use super::{
    is_git,
    search::{Bounds, Repositories, Seen, at, is_repository},
};
use crate::{
    args::GitArg,
    failure::Failure,
    place,
    runs::{
        Name,
        beneath::{Beneath, as_path, at_and_above},
    },
};

/// So many places are protected in one directory; each is a mount.
const PLACES: usize = 256;

/// So many findings are told by name.
const TOLD: usize = 8;

/// What a sandbox must not have changed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Guard {
    roots: Vec<Root>,
    /// What was said already.
    #[serde(default)]
    told: BTreeSet<String>,
}

/// A directory of the host that is shown writable, and what was repositories' own in it.
#[derive(Debug, Serialize, Deserialize)]
struct Root {
    host: Name,
    /// Where in it the search begins.
    #[serde(default)]
    start: Name,
    known: BTreeMap<Name, Seen>,
}

impl Guard {
    /// Shows read-only whatever is a repository's own in what a machine may write to; and what could not be looked at.
    pub(crate) fn set_up(
        spec: &mut MachineSpec,
        manifest: &Manifest,
        git: Option<GitArg>,
    ) -> Result<(Self, Vec<String>), Failure> {
        let (mut guard, mut notes) = (Self::default(), Vec::new());
        if git == Some(GitArg::Rw) {
            return Ok((guard, notes));
        }
        let shown = place::shown(spec, manifest);
        for (host, inside) in place::writable(spec, manifest) {
            // What cannot be found is refused later, by name, and so is all of the host.
            let Some(host) = host.canonicalize().ok().filter(|host| host.parent().is_some()) else { continue };
            is_free(&host)?;
            let Ok(root) = Beneath::open(&host) else { continue };
            let found = Repositories::search(&root, (&host, b""), Bounds::default());
            notes.extend(found.blind_spot(&host));
            let hidden = |path: &MachinePath| {
                shown.iter().any(|mount| {
                    mount.inside.is_within(&inside) && mount.inside != inside && path.is_within(&mount.inside)
                })
            };
            let mounts = mounts((&host, &inside), &found, hidden)?;
            can_be_protected(&host, &mounts, spec.isolation)?;
            spec.mounts.extend(mounts);
            let host = Name(host.into_os_string().into_vec());
            guard.roots.push(Root { host, start: Name::default(), known: found.own });
        }
        Ok((guard, notes))
    }

    /// The same for what is to be copied to a name in a directory, or to all of it; a machine sees the directory there.
    pub(crate) fn of_copy(
        (dir, inside): (&Path, &MachinePath),
        name: Option<&OsStr>,
    ) -> Result<(Self, Vec<HostMount>), Failure> {
        let failed = |error| Failure::new(format!("cannot copy to {}", dir.display())).because(error);
        let host = dir.canonicalize().map_err(failed)?;
        let start = name.unwrap_or_default().as_bytes();
        is_free(&host.join(as_path(start)))?;
        let found = Repositories::search(&Beneath::open(&host).map_err(failed)?, (&host, start), Bounds::default());
        let mounts = mounts((&host, inside), &found, |_| false)?;
        can_be_protected(&host, &mounts, Demand::Full)?;
        let start = Name(start.to_vec());
        let host = Name(host.into_os_string().into_vec());
        Ok((Self { roots: vec![Root { host, start, known: found.own }], told: BTreeSet::new() }, mounts))
    }

    /// Looks again, and says what appeared or changed since.
    pub(crate) fn findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        for Root { host, start, known } in &self.roots {
            let host = as_path(&host.0);
            match Beneath::open(host) {
                Ok(root) => {
                    let found = Repositories::search(&root, (host, &start.0), Bounds::default());
                    findings.extend(compare(host, known, &found));
                    findings.extend(found.blind_spot(host));
                }
                Err(error) => findings.push(format!("cannot search {} for repositories: {error}", host.display())),
            }
        }
        findings
    }

    /// What was not said before, which from now on counts as said.
    pub(crate) fn news(&mut self) -> Vec<String> {
        let findings = self.findings().into_iter();
        findings.filter(|finding| self.told.insert(finding.clone())).collect()
    }

    /// Keeps it for those who come back to a machine that stays.
    pub(crate) fn save(&self, file: &Path) -> Result<(), Failure> {
        if self.roots.is_empty() {
            return Ok(());
        }
        let written = || {
            if let Some(dir) = file.parent() {
                DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            }
            let new = file.with_extension(format!("{}.new", std::process::id()));
            let text = serde_json::to_vec(self)?;
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?.write_all(&text)?;
            fs::rename(&new, file)
        };
        written().map_err(|error| Failure::new(format!("cannot write {}", file.display())).because(error))
    }

    /// The one that was kept; none if the machine can write to nothing of the host.
    pub(crate) fn load(file: &Path) -> Result<Option<Self>, Failure> {
        let failed = |error| Failure::new(format!("cannot read {}", file.display())).because(error);
        match fs::read(file) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| failed(error.into())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Refuses what is a repository's own.
fn is_free(host: &Path) -> Result<(), Failure> {
    let Some(repository) = around(host) else { return Ok(()) };
    let own = std::io::Error::other(format!("{} is a repository's own", repository.display()));
    let failure = Failure::new(format!("cannot let a sandbox change {}", host.display())).because(own);
    Err(failure.code("repository").next("show it :ro, or add --git rw"))
}

/// The repository that something of the host is part of, by the names above it and by what is in the directories there.
pub(crate) fn around(path: &Path) -> Option<&Path> {
    let is_named = |dir: &&Path| dir.file_name().is_some_and(|name| is_git(name.as_bytes()));
    // A worktree may lie in the directory of its repository, and is not its own.
    let below = path.ancestors().take_while(|dir| dir.join(".git").symlink_metadata().is_err());
    path.ancestors().find(is_named).or_else(|| below.into_iter().find(|dir| is_repository(dir)))
}

/// What protects everything that was found, but for what something else that is shown hides.
fn mounts(
    (host, inside): (&Path, &MachinePath),
    found: &Repositories,
    hidden: impl Fn(&MachinePath) -> bool,
) -> Result<Vec<HostMount>, Failure> {
    let mut mounts = Vec::new();
    let links = found.links.iter().map(|link| (link, inside.join(as_path(&link.0))));
    for (link, place) in links {
        if !hidden(&place?) {
            let what = format!("cannot protect {}, which is a link", host.join(as_path(&link.0)).display());
            return Err(Failure::new(what).code("repository").next("work on a copy, show it :ro, or add --git rw"));
        }
    }
    for (path, seen) in &found.own {
        let is_covered = at_and_above(&path.0).skip(1).any(|above| found.own.contains_key(&Name(above.to_vec())));
        let place = inside.join(as_path(&path.0))?;
        if !is_covered && !hidden(&place) {
            let identity = Some(FileIdentity { device: seen.device, inode: seen.inode });
            let host = host.join(as_path(&path.0));
            mounts.push(HostMount { host, inside: place, access: Access::ReadOnly, identity });
        }
    }
    Ok(mounts)
}

fn can_be_protected(host: &Path, mounts: &[HostMount], isolation: Demand) -> Result<(), Failure> {
    let Some(first) = mounts.first() else { return Ok(()) };
    let refuse = |what: String, next: &str| Err(Failure::new(what).code("repository").next(next));
    if isolation != Demand::Full {
        let what = format!("cannot protect {} without full isolation", first.host.display());
        return refuse(what, "leave --isolation out, show the directory :ro, or add --git rw");
    }
    if mounts.len() > PLACES {
        let what = format!("cannot protect the {} places of repositories in {}", mounts.len(), host.display());
        return refuse(what, "show a directory with fewer repositories, or add --git rw");
    }
    Ok(())
}

/// What is different from what was known, in words.
fn compare(host: &Path, known: &BTreeMap<Name, Seen>, found: &Repositories) -> Vec<String> {
    let moved = |seen: &Seen| known.values().any(|known| known == seen);
    let mut told = Vec::new();
    for (path, seen) in &found.own {
        let how = match known.get(path) {
            Some(known) if known == seen => continue,
            Some(known) if (known.device, known.inode) == (seen.device, seen.inode) => "was changed",
            Some(_) => "was moved away and replaced",
            // It was protected where it was, and is what it was.
            None if moved(seen) => continue,
            None => "appeared",
        };
        told.push((path, how));
    }
    told.extend(found.links.iter().map(|link| (link, "appeared as a link")));
    // What was trusted before comes first, however many others there are.
    told.sort_by_key(|(path, _)| !known.contains_key(*path));
    let more = told.len().saturating_sub(TOLD);
    let say = |(path, how): (&Name, &str)| {
        let (path, next) = (at(host, &path.0), "look at its configuration and hooks before you use git there");
        format!("{} {how} during the work, and git obeys it: {next}", path.display())
    };
    let mut words: Vec<String> = told.into_iter().take(TOLD).map(say).collect();
    if more > 0 {
        words.push(format!("{more} more repositories in {} appeared or changed during the work", host.display()));
    }
    words
}
