//! The files a patch touches, found and read before anything is decided.

use std::{
    collections::{HashMap, VecDeque},
    ffi::{OsStr, OsString},
    future::Future,
    os::unix::ffi::OsStrExt,
    sync::atomic::{AtomicU64, Ordering},
};

use futures::{StreamExt, TryStreamExt, stream};
use sandbar_machine::{DirEntry, EntryKind, Machine, MachineError, MachinePath, Stamp, Target, collect};

use super::{Content, Operation, Patch, PatchLimits, PatchOptions};
use crate::{Intent, Op, PathFault, Paths, Result, SandboxError};

/// Requests to the machine that are under way at once.
pub(super) const AT_ONCE: usize = 64;
/// How many links one path may lead through.
const LINKS: usize = 40;
/// What a file may grow by while it is read.
const GROWTH: u64 = 64 << 10;

/// A file of the patch.
#[derive(Debug)]
pub(super) struct Site {
    /// As first written.
    pub(super) written: String,
    /// Where it is, no link on the way.
    pub(super) target: Target,
    /// The directories that must be made for it, parents first.
    pub(super) missing: Vec<MachinePath>,
    /// Whether something that is no directory stands in its way.
    pub(super) blocked: bool,
    /// What is there.
    pub(super) content: Option<Content>,
    /// How it looked just before it was read.
    pub(super) seen: Option<Stamp>,
}

/// All files of a patch, and which of them each written path means.
#[derive(Debug, Default)]
pub(super) struct Sites {
    pub(super) all: Vec<Site>,
    pub(super) by_name: HashMap<String, usize>,
}

/// A directory as it really is.
#[derive(Clone, Debug)]
struct Folder {
    real: MachinePath,
    missing: Vec<MachinePath>,
    blocked: bool,
}

/// Asks the machine, but not for ever.
pub(super) async fn within<T>(
    limits: &PatchLimits,
    action: &'static str,
    asked: impl Future<Output = sandbar_machine::Result<T>>,
) -> sandbar_machine::Result<T> {
    match tokio::time::timeout(limits.patience, asked).await {
        Ok(answer) => answer,
        Err(_late) => Err(MachineError::transport(action, "the machine did not answer in time")),
    }
}

impl Sites {
    /// How many bytes the operations look at, all together: each hunk may look at its whole file.
    pub(super) fn weight(&self, patch: &Patch) -> usize {
        let size = |path: &str| {
            let site = self.by_name.get(path).and_then(|at| self.all.get(*at));
            site.and_then(|site| site.content.as_ref()).map_or(0, |content| content.bytes.len())
        };
        let weight = |operation: &Operation| match operation {
            Operation::Create { lines, .. } => lines.iter().map(|line| line.len() + 1).sum(),
            Operation::Update { path, hunks, .. } => {
                let lines = hunks.iter().flat_map(|hunk| &hunk.lines).map(|line| line.text().len() + 1);
                size(path).saturating_mul(hunks.len()).saturating_add(lines.sum())
            }
            Operation::Delete { .. } => 0,
        };
        patch.operations.iter().map(weight).fold(0, usize::saturating_add)
    }

    /// Finds every path of the patch and reads what is there.
    pub(super) async fn read(
        machine: &dyn Machine,
        paths: &Paths,
        patch: &Patch,
        options: &PatchOptions,
    ) -> Result<Self> {
        let mut targets = Vec::new();
        let mut folders: HashMap<MachinePath, (Target, String)> = HashMap::new();
        for written in patch.paths() {
            let target = target(paths, written, options)?;
            let Some(parent) = target.path.parent().filter(|_| target.beneath.as_ref() != Some(&target.path)) else {
                return Err(wrong_kind(written, EntryKind::Dir));
            };
            let folder = Target { path: parent.clone(), ..target.clone() };
            folders.entry(parent).or_insert_with(|| (folder, written.to_owned()));
            targets.push((written, target));
        }
        let looks = folders.into_iter().map(|(path, (target, written))| async move {
            Ok::<_, SandboxError>((path, folder(machine, target, &written, &options.limits).await?))
        });
        let folders: HashMap<_, _> =
            stream::iter(looks.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).try_collect().await?;
        let mut sites = Self::default();
        let mut by_path = HashMap::new();
        for (written, target) in targets {
            let site = site(written, target, &folders)?;
            let next = sites.all.len();
            let at = *by_path.entry(site.target.path.clone()).or_insert(next);
            sites.by_name.insert(written.to_owned(), at);
            if at == next {
                sites.all.push(site);
            }
        }
        sites.fill(machine, &options.limits).await?;
        Ok(sites)
    }

    async fn fill(&mut self, machine: &dyn Machine, limits: &PatchLimits) -> Result<()> {
        let total = &AtomicU64::new(0);
        let open = self.all.iter_mut().filter(|site| !site.blocked && site.missing.is_empty());
        let mut looks = Vec::new();
        for site in open {
            looks.push(async move {
                let refused = |error| SandboxError::machine(Op::ApplyPatch, &*site.written, error);
                let Some(entry) = look(machine, &site.target, limits).await.map_err(refused)? else { return Ok(()) };
                let entry = regular(entry, &site.written, limits)?;
                let sum = total.fetch_add(entry.size, Ordering::Relaxed).saturating_add(entry.size);
                if sum > limits.total {
                    return Err(SandboxError::limit_exceeded("the files of the patch in bytes", limits.total, sum));
                }
                site.content = content(machine, &site.target, &entry, limits).await.map_err(refused)?;
                site.seen = site.content.as_ref().map(|_| entry.stamp());
                Ok(())
            });
        }
        stream::iter(looks).buffer_unordered(AT_ONCE).try_collect().await
    }
}

/// What a written path means, by its letters.
fn target(paths: &Paths, written: &str, options: &PatchOptions) -> Result<Target> {
    let path = written.replace('\\', "/");
    let path = match &options.cwd {
        Some(cwd) if !path.starts_with('/') && !path.is_empty() => format!("{cwd}/{path}"),
        _ => path,
    };
    if path.split('/').any(|part| part.len() > 255) {
        return Err(SandboxError::apply_patch_invalid_path(written, PathFault::Malformed));
    }
    let target = paths.target(path, Intent::Write).map_err(|error| match error {
        SandboxError::InvalidPath { reason, .. } => SandboxError::apply_patch_invalid_path(written, reason),
        other => other,
    })?;
    Ok(Target { user: options.user.clone(), ..target })
}

fn site(written: &str, target: Target, folders: &HashMap<MachinePath, Folder>) -> Result<Site> {
    let malformed = || SandboxError::apply_patch_invalid_path(written, PathFault::Malformed);
    let folder = target.path.parent().and_then(|parent| folders.get(&parent)).ok_or_else(malformed)?;
    let path = folder.real.join(target.path.name().ok_or_else(malformed)?).map_err(|_| malformed())?;
    Ok(Site {
        written: written.to_owned(),
        target: Target { path, ..target },
        missing: folder.missing.clone(),
        blocked: folder.blocked,
        content: None,
        seen: None,
    })
}

/// Walks to a directory step by step. A link is followed here, by its letters, so that one file never has two names in a
/// patch; the machine itself refuses whatever leads out.
async fn folder(machine: &dyn Machine, target: Target, written: &str, limits: &PatchLimits) -> Result<Folder> {
    let place = target.beneath.clone().unwrap_or_else(MachinePath::root);
    let escapes = || SandboxError::apply_patch_invalid_path(written, PathFault::EscapeRoot);
    let mut found = Folder { real: place.clone(), missing: Vec::new(), blocked: false };
    let below = target.path.as_bytes().get(place.as_bytes().len()..).unwrap_or_default();
    let mut ahead = parts(below);
    let mut links = 0;
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            if found.real == place || !found.missing.is_empty() {
                return Err(escapes());
            }
            found.real = found.real.parent().ok_or_else(escapes)?;
            continue;
        }
        let next = found.real.join(&name).map_err(|_| escapes())?;
        if found.missing.is_empty() && !found.blocked {
            let step = Target { path: next.clone(), ..target.clone() };
            let entry = look(machine, &step, limits).await;
            match entry.map_err(|error| SandboxError::machine(Op::ApplyPatch, written, error))? {
                None => found.missing.push(next.clone()),
                Some(DirEntry { kind: EntryKind::Dir, .. }) => {}
                Some(DirEntry { kind: EntryKind::Symlink, link: Some(link), .. }) => {
                    links += 1;
                    if links > LINKS || link.as_bytes().starts_with(b"/") {
                        return Err(escapes());
                    }
                    parts(link.as_bytes()).into_iter().rev().for_each(|part| ahead.push_front(part));
                    continue;
                }
                Some(_) => found.blocked = true,
            }
        } else {
            found.missing.push(next.clone());
        }
        found.real = next;
    }
    Ok(found)
}

fn parts(path: &[u8]) -> VecDeque<OsString> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    parts.map(|part| OsStr::from_bytes(part).to_owned()).collect()
}

async fn look(
    machine: &dyn Machine,
    target: &Target,
    limits: &PatchLimits,
) -> sandbar_machine::Result<Option<DirEntry>> {
    within(limits, "look at a file", machine.stat(target)).await
}

/// Refuses everything that is not a file of a size that can be patched.
fn regular(entry: DirEntry, written: &str, limits: &PatchLimits) -> Result<DirEntry> {
    if entry.kind != EntryKind::File {
        return Err(wrong_kind(written, entry.kind));
    }
    if entry.size > limits.file {
        return Err(SandboxError::limit_exceeded(format!("{written} in bytes"), limits.file, entry.size));
    }
    Ok(entry)
}

fn wrong_kind(written: &str, kind: EntryKind) -> SandboxError {
    let what = match kind {
        EntryKind::Dir => "a directory",
        EntryKind::Symlink => "a symbolic link; a patch names the file itself",
        EntryKind::File | EntryKind::Other => "not a regular file",
    };
    SandboxError::apply_patch_invalid_diff(written, format!("apply_patch cannot change {written}: it is {what}"))
}

async fn content(
    machine: &dyn Machine,
    target: &Target,
    entry: &DirEntry,
    limits: &PatchLimits,
) -> sandbar_machine::Result<Option<Content>> {
    let most = usize::try_from(entry.size.saturating_add(GROWTH)).unwrap_or(usize::MAX);
    let read = async { collect(machine.read(target).await?, most).await };
    match within(limits, "read a file", read).await {
        Ok(bytes) => Ok(Some(Content { bytes, mode: entry.mode })),
        Err(MachineError::NotFound(_)) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Whether a place still looks as it did.
pub(super) async fn is_still(
    machine: &dyn Machine,
    target: &Target,
    seen: Option<Stamp>,
    limits: &PatchLimits,
) -> sandbar_machine::Result<bool> {
    Ok(match look(machine, target, limits).await? {
        None => seen.is_none(),
        Some(entry) => entry.kind == EntryKind::File && seen == Some(entry.stamp()),
    })
}

/// What is at a place now: a regular file's content, nothing, or an error for anything else.
pub(super) async fn now(machine: &dyn Machine, target: &Target, limits: &PatchLimits) -> sandbar_machine::Result<Now> {
    match look(machine, target, limits).await? {
        None => Ok(Now::Nothing),
        Some(entry) if entry.kind == EntryKind::File && entry.size <= limits.file.saturating_add(GROWTH) => {
            let seen = entry.stamp();
            Ok(content(machine, target, &entry, limits).await?.map_or(Now::Nothing, |content| Now::File(content, seen)))
        }
        Some(_) => Ok(Now::Other),
    }
}

/// What a second look found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Now {
    Nothing,
    File(Content, Stamp),
    Other,
}

impl Now {
    /// Whether the bytes are these.
    pub(super) fn is(&self, content: Option<&Content>) -> bool {
        match (self, content) {
            (Self::Nothing, None) => true,
            (Self::File(found, _), Some(content)) => found.bytes == content.bytes,
            (Self::Nothing | Self::File(..) | Self::Other, _) => false,
        }
    }

    /// How the file looked, if it is one.
    pub(super) fn seen(&self) -> Option<Stamp> {
        match self {
            Self::File(_, seen) => Some(*seen),
            Self::Nothing | Self::Other => None,
        }
    }
}
