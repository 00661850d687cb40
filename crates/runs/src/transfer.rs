//! Copies of files and directories between a session and the host, and of a run's workspace to a machine and back.
//!
//! Files from a session are hostile. The whole tree is checked first, and then written by the guest of a machine that sees
//! only the destination of the host. In both directions, files are written to a staging directory and renamed.

mod host_side;
mod merge;
mod reading;
mod stage;
mod workspace;

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    num::NonZeroU64,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
};

use futures::StreamExt;
use sandbar::{
    Access, Machine, MachineError, SandboxError, SandboxSession, Target,
    machine::{ByteStream, Demand, DirEntry, EntryKind, ScanOptions},
    sandbox::{
        ArchiveLimits, Intent,
        archive::{self, Format, Links, Modes, Names, Policy},
    },
};
use tokio_util::sync::CancellationToken;

pub use self::{
    host_side::{HostSide, OpenDir},
    workspace::open_to_owner,
};
use self::{reading::Reading, stage::Stage};
use crate::{Error, ErrorKind, Result, git::GitAccess};

/// Advice for a copy that is refused for its size.
const RAISE: &str = "raise the limit, or copy it in parts";

/// Resource that a copy larger than its limit exhausts.
const SIZE: &str = "the size of a copy";

/// How to copy between a session and the host.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TransferOptions {
    /// How links that lead out of a copied directory are handled, for copies out of a session.
    pub links: Links,
    /// Maximum size of a copy out of a session, in bytes.
    pub max_bytes: u64,
    /// What a copy to the host may do with git repositories there.
    pub git: GitAccess,
    /// Stops a copy: nothing half-written remains.
    pub cancel: CancellationToken,
}

impl Default for TransferOptions {
    fn default() -> Self {
        Self {
            links: Links::KeepInside,
            max_bytes: 64 << 30,
            git: GitAccess::Protected,
            cancel: CancellationToken::new(),
        }
    }
}

impl TransferOptions {
    /// Sets how links that lead out of a copied directory are handled.
    #[must_use]
    pub fn links(mut self, links: Links) -> Self {
        self.links = links;
        self
    }

    /// Sets the maximum size of a copy out of a session, in bytes.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Sets what a copy to the host may do with git repositories there.
    #[must_use]
    pub fn git(mut self, git: GitAccess) -> Self {
        self.git = git;
        self
    }

    /// Sets the token that stops a copy.
    #[must_use]
    pub fn cancel(mut self, token: CancellationToken) -> Self {
        self.cancel = token;
        self
    }

    fn archive_limits(&self) -> ArchiveLimits {
        ArchiveLimits {
            max_input_bytes: NonZeroU64::new(self.max_bytes),
            max_extracted_bytes: NonZeroU64::new(self.max_bytes),
            max_members: NonZeroU64::new(2_000_000),
            max_depth: NonZeroU64::new(256),
        }
    }
}

/// What a copy left out, and what it found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TransferReport {
    /// Paths of pipes, sockets and devices, which are not copied.
    pub left_out: Vec<String>,
    /// Paths of leftovers of interrupted sandbar commands, which are not copied.
    pub leftovers: Vec<String>,
    /// Findings about git repositories that were copied out of the session.
    pub repositories: Vec<String>,
}

impl TransferReport {
    /// Finds the entries of a tree that are not copied, and returns those that packing must skip. If the tree cannot be
    /// scanned, everything is copied.
    async fn scan(&mut self, machine: &dyn Machine, tree: &Target) -> Vec<OsString> {
        let index = match machine.scan(tree, &ScanOptions::default()).await {
            Ok(index) => index,
            Err(error) => {
                tracing::info!(%error, "cannot tell what will be left out");
                return Vec::new();
            }
        };
        let mut skip = Vec::new();
        for found in index.entries {
            let mut above = Path::new(&found.path).ancestors().skip(1);
            if above.any(is_leftover) {
                continue;
            }
            let name = found.path.to_string_lossy().into_owned();
            if is_leftover(Path::new(&found.path)) {
                self.leftovers.push(name);
                skip.push(found.path);
            } else if found.entry.kind == EntryKind::Other {
                self.left_out.push(name);
            }
        }
        skip
    }
}

fn is_leftover(path: &Path) -> bool {
    path.file_name().is_some_and(|name| sandbar::sandbox::is_leftover(name.as_bytes()))
}

/// Does work until the token is cancelled.
async fn unless_cancelled<T, E: Into<Error>>(
    work: impl Future<Output = Result<T, E>>,
    cancel: &CancellationToken,
) -> Result<T> {
    let cancelled = || Error::new(ErrorKind::Cancelled, "the copy was cancelled");
    cancel.run_until_cancelled(work).await.ok_or_else(cancelled)?.map_err(E::into)
}

/// Copies a file or directory of the host to a path of the session. If the path is a directory, the copy is made in it.
pub async fn copy_in(
    session: &SandboxSession,
    from: &Path,
    to: &OsStr,
    options: &TransferOptions,
) -> Result<TransferReport> {
    let cancel = &options.cancel;
    let unreadable = |error| cannot_copy(from, error);
    let source = fs::metadata(from).map_err(unreadable)?;
    if !source.is_dir() && !source.is_file() {
        return Err(unreadable(io::Error::other("not a file or a directory")));
    }
    let name = name_of(from.as_os_str(), || fs::canonicalize(from)).map_err(unreadable)?;
    let (machine, shown) = (session.machine().as_ref(), to.to_string_lossy());
    let shown = if shown.is_empty() { session.paths().root().to_string() } else { shown.into_owned() };
    let target = landing(session, to, name.as_deref()).await?;
    let reading = Reading::default();
    let blame = |written: Result<(), MachineError>| match (reading.failed(), written) {
        (Some(error @ MachineError::Denied { .. }), _) => Err(match reading::first_unreadable(from) {
            Some((path, error)) => cannot_copy(&path, error),
            None => reading::host_error(format!("cannot copy {}", from.display()), error),
        }),
        (Some(error), _) => Err(reading::host_error(format!("cannot copy {}", from.display()), error)),
        (None, Err(cause)) => Err(SandboxError::writing(shown, cause).into()),
        (None, Ok(())) => Ok(()),
    };
    let mut report = TransferReport::default();
    if source.is_file() {
        let content = reading.watch(reading::content(File::open(from).map_err(unreadable)?));
        let target = target.mode(source.permissions().mode() & 0o777);
        unless_cancelled(async { blame(machine.write(&target, content).await) }, cancel).await?;
        return Ok(report);
    }
    // The source may be unreadable; the error of its machine would name another path.
    fs::read_dir(from).map_err(unreadable)?;
    let host =
        HostSide::open(from.to_owned(), Access::ReadOnly, Demand::met_by(session.machine().features().isolation))
            .await?;
    let (root, side, stage) = (host.target(None)?, host.machine(), Stage::new(machine));
    let unpack = async {
        let skip = report.scan(side.as_ref(), &root).await;
        let tree = side.pack(&root, &skip).await?;
        blame(stage.tree(&target, reading.watch(tree)).await)
    };
    let done = host.during(unpack, cancel).await;
    if done.is_err() {
        stage.discard().await;
    }
    host.close().await;
    done.map(|()| report)
}

fn cannot_copy(path: &Path, error: io::Error) -> Error {
    Error::io(format!("cannot copy {}", path.display()), error)
}

/// Destination in the session: below the path if the path is a directory, otherwise the path itself.
async fn landing(session: &SandboxSession, path: &OsStr, name: Option<&OsStr>) -> Result<Target> {
    let mut target = session.paths().target(whole(path), Intent::Write)?;
    let found = session.stat(whole(path)).await?;
    let is_dir = path.as_bytes().ends_with(b"/") || found.is_some_and(|found| found.kind == EntryKind::Dir);
    if let Some(name) = name.filter(|_| is_dir) {
        target.path = target.path.join(name)?;
    }
    Ok(target)
}

/// Copies a file or directory of the session to a path of the host. If the path is a directory, the copy is made in it.
pub async fn copy_out(
    session: &SandboxSession,
    from: &OsStr,
    to: &Path,
    options: &TransferOptions,
) -> Result<TransferReport> {
    let path = whole(from);
    let source = session.paths().target(path, Intent::Read)?;
    let Some(found) = session.stat(path).await? else {
        return Err(SandboxError::workspace_read_not_found(path.to_string_lossy()).into());
    };
    // The path is the caller's own; its last part names what is made on the host.
    let name = name_of(path, || Ok(PathBuf::from(source.path.as_os_str())));
    let name = name.map_err(|error| Error::io("cannot name the copy", error))?;
    let (dir, name) = destination(to, name)?;
    let mut report = TransferReport::default();
    let content = if is_directory(session.machine().as_ref(), &source, &found).await {
        let skip = report.scan(session.machine().as_ref(), &source).await;
        Content::Tree(unless_cancelled(tree_of(session, &source, &skip, options), &options.cancel).await?)
    } else {
        let mode = if found.kind == EntryKind::File { found.mode & 0o777 } else { 0o644 };
        if found.kind == EntryKind::File && found.size > options.max_bytes {
            return Err(too_large(&path.to_string_lossy(), options.max_bytes));
        }
        Content::File(file_of(session, &source, options.max_bytes).await?, mode)
    };
    let isolation = Demand::met_by(session.machine().features().isolation);
    let (host, guard) = HostSide::writing(&dir, name.as_deref(), isolation, options.git).await?;
    let (machine, target) = (host.machine(), host.target(name.as_deref())?);
    let (reading, stage) = (Reading::default(), Stage::new(machine.as_ref()));
    let write = async {
        let written = match content {
            Content::Tree(tree) => stage.tree(&target, reading.watch(tree)).await,
            Content::File(bytes, mode) => stage.file(&target.mode(mode), reading.watch(bytes)).await,
        };
        let shown = path.to_string_lossy();
        match (reading.failed(), written) {
            (Some(MachineError::Exhausted { what, .. }), _) if what == SIZE => {
                Err(too_large(&shown, options.max_bytes))
            }
            (Some(cause), _) => Err(SandboxError::reading(shown, cause).into()),
            (None, Err(cause)) => Err(not_written(to, cause, options.git)),
            (None, Ok(())) => Ok(()),
        }
    };
    let done = host.during(write, &options.cancel).await;
    if done.is_err() {
        stage.discard().await;
    }
    host.close().await;
    done?;
    report.repositories = guard.findings();
    Ok(report)
}

/// Contents of a copy to the host.
enum Content {
    /// A checked archive.
    Tree(ByteStream),
    /// A file's bytes and its permission bits.
    File(ByteStream, u32),
}

fn too_large(shown: &str, max_bytes: u64) -> Error {
    Error::new(ErrorKind::LimitExceeded, format!("{shown} is larger than {max_bytes} bytes")).with_advice(RAISE)
}

fn not_written(to: &Path, cause: MachineError, git: GitAccess) -> Error {
    let is_protected = cause.to_string().contains("ead-only") && git != GitAccess::Writable;
    let error = reading::host_error(format!("cannot write {}", to.display()), cause).of_kind(ErrorKind::NotWritten);
    match is_protected {
        true => error.with_advice("files that belong to git (.git) are not written; copy the other files"),
        false => error,
    }
}

/// Reads a file, which may be larger than its size says.
async fn file_of(session: &SandboxSession, source: &Target, max_bytes: u64) -> Result<ByteStream> {
    let shown = source.path.to_string();
    let bytes = session.machine().read(source).await.map_err(|cause| SandboxError::reading(&shown, cause))?;
    let mut left = max_bytes;
    Ok(Box::pin(bytes.map(move |piece| {
        let piece = piece?;
        left = left.checked_sub(piece.len() as u64).ok_or_else(|| MachineError::Exhausted {
            what: SIZE.to_owned(),
            reason: format!("{shown} is larger than {max_bytes} bytes"),
        })?;
        Ok(piece)
    })))
}

/// Reads a directory as a checked archive.
async fn tree_of(
    session: &SandboxSession,
    source: &Target,
    skip: &[OsString],
    options: &TransferOptions,
) -> Result<ByteStream> {
    let shown = source.path.to_string();
    let policy = Policy { links: options.links, modes: Modes::Usable, names: Names::Any, ..Policy::default() };
    let packed = session.machine().pack(source, skip).await.map_err(|cause| SandboxError::reading(&shown, cause))?;
    let checked = archive::check(packed, Format::Tar, &options.archive_limits(), &policy, &shown).await;
    let checked = checked.map_err(|error| {
        let advice = match error.code() {
            "archive_refused" => "copy its files one by one, or keep its links as they are",
            "limit_exceeded" => RAISE,
            _ => "make its files readable, for example with chmod, or copy it in parts",
        };
        Error::from(error).with_advice(advice)
    })?;
    Ok(checked.into_tar())
}

async fn is_directory(machine: &dyn Machine, source: &Target, found: &DirEntry) -> bool {
    match found.kind {
        EntryKind::Dir => true,
        EntryKind::Symlink => machine.list(source).await.is_ok(),
        EntryKind::File | EntryKind::Other => false,
    }
}

/// Directory of the host to write to, and the name in it; without a name, the directory itself.
fn destination(to: &Path, name: Option<OsString>) -> Result<(OpenDir, Option<OsString>)> {
    let refuse = |error: io::Error| Error::io(format!("cannot copy to {}", to.display()), error);
    // The link may have been copied out of a session.
    if fs::symlink_metadata(to).is_ok_and(|found| found.is_symlink()) {
        let advice = "name the target of the link, or add a slash to follow the link";
        return Err(refuse(io::Error::other("it is a symbolic link")).with_advice(advice));
    }
    // A path that has become a link meanwhile is not opened.
    if let Ok(dir) = OpenDir::open(to) {
        return Ok((dir, name));
    }
    let parent = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if to.as_os_str().as_bytes().ends_with(b"/") {
        return Err(refuse(io::Error::other("there is no such directory")).with_advice("create it first"));
    }
    // Joining the empty name adds the slash, which makes the kernel follow the link.
    let dir = OpenDir::open(&parent.join(""));
    let dir = dir.map_err(|error| refuse(error).with_advice("create the directory first"))?;
    let nameless = || Error::new(ErrorKind::Io, format!("cannot copy to {}", to.display()));
    let name = to.file_name().ok_or_else(|| nameless().with_advice("add a file name"))?;
    Ok((dir, Some(name.to_owned())))
}

/// Name of the copy; `None` if only the contents of the source are copied, as with `dir/.`.
fn name_of(path: &OsStr, real: impl Fn() -> io::Result<PathBuf>) -> io::Result<Option<OsString>> {
    if path == "." || path.as_bytes().ends_with(b"/.") {
        return Ok(None);
    }
    let own = Path::new(path).file_name().map(OsStr::to_owned);
    match own {
        Some(own) => Ok(Some(own)),
        None => Ok(real()?.file_name().map(OsStr::to_owned)),
    }
}

/// A path in the workspace; the empty path is the whole workspace.
fn whole(path: &OsStr) -> &OsStr {
    if path.is_empty() { OsStr::new(".") } else { path }
}

/// Writes a stream to a file of the session. `source` names the stream, for the error if it cannot be read.
pub async fn write_stream(session: &SandboxSession, to: &OsStr, content: ByteStream, source: &str) -> Result<()> {
    let reading = Reading::default();
    let written = session.write_stream(to, reading.watch(content)).await;
    match reading.failed() {
        Some(error) => Err(reading::host_error(format!("cannot read {source}"), error)),
        None => Ok(written.map(drop)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_name_of_its_source_unless_only_the_contents_are_copied() {
        let name = |path: &str| name_of(OsStr::new(path), || Ok(PathBuf::from("/real/dir"))).unwrap();
        assert_eq!(name("a/b"), Some("b".into()));
        assert_eq!(name("a/b/"), Some("b".into()));
        assert_eq!(name(".."), Some("dir".into()));
        assert_eq!(name("."), None);
        assert_eq!(name("a/."), None);
    }
}
