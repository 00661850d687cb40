//! `sandbar session cp`: files and directories between a session and the host.
//!
//! Files from a session are hostile. The whole tree is checked first, and then written by the guest of a machine that sees
//! only the destination of the host. In both directions, files are written to a staging directory and renamed (`stage.rs`).

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
    Access, ArchiveLimits, ByteStream, Demand, DirEntry, EntryKind, Intent, Machine, MachineError, SandboxError,
    SandboxSession, ScanOptions, Target,
    archive::{self, Format, Links, Modes, Names, Policy},
};
use serde_json::json;

use super::{
    Sessions, files,
    side::{self, Reading},
    stage::Stage,
};
use crate::{
    args::{CopyArgs, GitArg},
    failure::Failure,
    host_side::{HostSide, OpenDir},
    provision::{Halt, unless_signalled},
    render::Render,
    signals::{self, Signals},
    values::{CopyPath, SessionPath},
};

/// Advice for a copy that is refused for its size.
const RAISE: &str = "raise --max-bytes, or copy it in parts";

/// Options of a copy out of a session.
#[derive(Clone, Copy)]
struct CopyOptions {
    links: Links,
    max_bytes: u64,
    git: Option<GitArg>,
}

impl CopyOptions {
    fn limits(self) -> ArchiveLimits {
        ArchiveLimits {
            max_input_bytes: NonZeroU64::new(self.max_bytes),
            max_extracted_bytes: NonZeroU64::new(self.max_bytes),
            max_members: NonZeroU64::new(2_000_000),
            max_depth: NonZeroU64::new(256),
        }
    }
}

pub(super) async fn run(args: CopyArgs, sessions: &Sessions, render: &Render) -> Result<u8, Failure> {
    let links = if args.keep_links { Links::KeepAll } else { Links::KeepInside };
    let terms = CopyOptions { links, max_bytes: args.max_bytes, git: args.git };
    let mut signals = Signals::listen()?;
    let copied = match (args.from, args.to) {
        (CopyPath::Host(from), CopyPath::Session(to)) => copy_in(&from, &to, sessions, &mut signals).await,
        (CopyPath::Session(from), CopyPath::Host(to)) => copy_out(&from, &to, terms, sessions, &mut signals).await,
        // Refused by `Args::read`.
        (CopyPath::Host(_), CopyPath::Host(_)) | (CopyPath::Session(_), CopyPath::Session(_)) => return Ok(2),
    };
    match copied {
        Ok(copied) => copied.tell(args.json, render),
        Err(Halt::Signal(signal)) => Ok(signals::code(signal)),
        Err(Halt::Failed(failure)) => Err(*failure),
    }
}

/// Report of a copy. Pipes, sockets and devices are not copied.
struct CopyReport {
    session: String,
    left_out: Vec<String>,
    /// Leftovers of interrupted sandbar commands in the tree, which are not copied.
    leftovers: Vec<String>,
    /// Findings about git repositories that were copied out of the session.
    repositories: Vec<String>,
}

/// Maximum number of names in a message.
const NAMED: usize = 3;

impl CopyReport {
    fn of(session: &SandboxSession) -> Self {
        let session = session.id().to_owned();
        Self { session, left_out: Vec::new(), leftovers: Vec::new(), repositories: Vec::new() }
    }

    /// Finds the entries of a tree that are not copied, and returns those that packing must skip. If the tree cannot be
    /// scanned, everything is copied.
    async fn look(&mut self, machine: &dyn Machine, tree: &Target) -> Vec<OsString> {
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

    fn tell(&self, json: bool, render: &Render) -> Result<u8, Failure> {
        self.repositories.iter().for_each(|finding| render.note(finding));
        if json {
            let left_out: Vec<_> = self.left_out.iter().chain(&self.leftovers).collect();
            return render.result(format!("{}\n", json!({"id": self.session, "left_out": left_out})).as_bytes());
        }
        if let Some(names) = named(&self.left_out) {
            let count = self.left_out.len();
            render
                .note(&format!("left out {count} of the entries, which are not files, directories or links: {names}"));
        }
        if let Some(names) = named(&self.leftovers) {
            render.note(&format!("left out {names}: leftovers of an interrupted sandbar command"));
        }
        Ok(0)
    }
}

fn named(names: &[String]) -> Option<String> {
    let first = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    (!names.is_empty()).then(|| format!("{first}{more}"))
}

fn is_leftover(path: &Path) -> bool {
    path.file_name().is_some_and(|name| sandbar::is_leftover(name.as_bytes()))
}

async fn copy_in(
    from: &Path,
    to: &SessionPath,
    sessions: &Sessions,
    signals: &mut Signals,
) -> Result<CopyReport, Halt> {
    let unreadable = |error| Failure::new(format!("cannot copy {}", from.display())).because(error);
    let source = fs::metadata(from).map_err(unreadable)?;
    if !source.is_dir() && !source.is_file() {
        return Err(unreadable(io::Error::other("not a file or a directory")).into());
    }
    let name = name_of(from.as_os_str(), || fs::canonicalize(from)).map_err(unreadable)?;
    let session = unless_signalled(sessions.attach(&to.session), signals).await?;
    let (machine, shown) = (session.machine().as_ref(), to.path.to_string_lossy());
    let shown = if shown.is_empty() { session.paths().root().to_string() } else { shown.into_owned() };
    let target = landing(&session, &to.path, name.as_deref()).await?;
    let reading = Reading::default();
    let blame = |written: Result<(), MachineError>| match (reading.failed(), written) {
        (Some(error @ MachineError::Denied { .. }), _) => Err(match side::first_unreadable(from) {
            Some((path, error)) => Failure::new(format!("cannot copy {}", path.display())).because(error),
            None => side::host(format!("cannot copy {}", from.display()), error),
        }),
        (Some(error), _) => Err(side::host(format!("cannot copy {}", from.display()), error)),
        (None, Err(cause)) => Err(SandboxError::writing(shown, cause).into()),
        (None, Ok(())) => Ok(()),
    };
    let mut copied = CopyReport::of(&session);
    if source.is_file() {
        let content = reading.watch(files::input(File::open(from).map_err(unreadable)?)?);
        let target = target.mode(source.permissions().mode() & 0o777);
        let write = async { blame(machine.write(&target, content).await) };
        unless_signalled(write, signals).await?;
        return Ok(copied);
    }
    // The source may be unreadable; the error of its machine would name another path.
    fs::read_dir(from).map_err(unreadable)?;
    let host =
        HostSide::open(from.to_owned(), Access::ReadOnly, Demand::met_by(session.machine().features().isolation))
            .await?;
    let (root, side, stage) = (host.target(None)?, host.machine(), Stage::new(machine));
    let unpack = async {
        let skip = copied.look(side.as_ref(), &root).await;
        let tree = side.pack(&root, &skip).await.map_err(Failure::from)?;
        blame(stage.tree(&target, reading.watch(tree)).await)
    };
    let done = host.during(unpack, signals).await;
    if done.is_err() {
        stage.discard().await;
    }
    host.close().await;
    done.map(|()| copied)
}

/// Destination in the session: below the path if the path is a directory, otherwise the path itself.
async fn landing(session: &SandboxSession, path: &OsStr, name: Option<&OsStr>) -> Result<Target, Failure> {
    let mut target = session.paths().target(whole(path), Intent::Write)?;
    let found = session.stat(whole(path)).await?;
    let is_dir = path.as_bytes().ends_with(b"/") || found.is_some_and(|found| found.kind == EntryKind::Dir);
    if let Some(name) = name.filter(|_| is_dir) {
        target.path = target.path.join(name)?;
    }
    Ok(target)
}

async fn copy_out(
    from: &SessionPath,
    to: &Path,
    terms: CopyOptions,
    sessions: &Sessions,
    signals: &mut Signals,
) -> Result<CopyReport, Halt> {
    let session = unless_signalled(sessions.attach(&from.session), signals).await?;
    let path = whole(&from.path);
    let source = session.paths().target(path, Intent::Read)?;
    let Some(found) = session.stat(path).await? else {
        return Err(SandboxError::workspace_read_not_found(path.to_string_lossy()).into());
    };
    // The path is the caller's own; its last part names what is made on the host.
    let name = name_of(path, || Ok(PathBuf::from(source.path.as_os_str())));
    let name = name.map_err(|error| Failure::new("cannot name the copy").because(error))?;
    let (dir, name) = destination(to, name)?;
    let mut copied = CopyReport::of(&session);
    let content = if is_directory(session.machine().as_ref(), &source, &found).await {
        let skip = copied.look(session.machine().as_ref(), &source).await;
        Content::Tree(unless_signalled(tree_of(&session, &source, &skip, terms), signals).await?)
    } else {
        let mode = if found.kind == EntryKind::File { found.mode & 0o777 } else { 0o644 };
        if found.kind == EntryKind::File && found.size > terms.max_bytes {
            return Err(too_large(&path.to_string_lossy(), terms.max_bytes).into());
        }
        Content::File(file_of(&session, &source, terms.max_bytes).await?, mode)
    };
    let isolation = Demand::met_by(session.machine().features().isolation);
    let (host, guard) = HostSide::writing(&dir, name.as_deref(), isolation, terms.git).await?;
    let (machine, target) = (host.machine(), host.target(name.as_deref())?);
    let (reading, stage) = (Reading::default(), Stage::new(machine.as_ref()));
    let (shown, to) = (path.to_string_lossy(), to.display().to_string());
    let write = async {
        let written = match content {
            Content::Tree(tree) => stage.tree(&target, reading.watch(tree)).await,
            Content::File(bytes, mode) => stage.file(&target.mode(mode), reading.watch(bytes)).await,
        };
        match (reading.failed(), written) {
            (Some(cause), _) => Err(Failure::from(SandboxError::reading(shown, cause))),
            (None, Err(cause)) => {
                let is_protected = cause.to_string().contains("ead-only") && terms.git != Some(GitArg::Rw);
                let failure = side::host(format!("cannot write {to}"), cause).code("workspace_archive_write_error");
                let next = "files that belong to git (.git) are not written; copy the other files, or add --git rw";
                Err(if is_protected { failure.next(next) } else { failure })
            }
            (None, Ok(())) => Ok(()),
        }
    };
    let done = host.during(write, signals).await;
    if done.is_err() {
        stage.discard().await;
    }
    host.close().await;
    done?;
    copied.repositories = guard.findings();
    Ok(copied)
}

/// Contents of a copy to the host.
enum Content {
    /// A checked archive.
    Tree(ByteStream),
    /// A file's bytes and its permission bits.
    File(ByteStream, u32),
}

fn too_large(shown: &str, max_bytes: u64) -> Failure {
    Failure::new(format!("{shown} is larger than {max_bytes} bytes")).code("limit_exceeded").next(RAISE)
}

/// Reads a file, which may be larger than its size says.
async fn file_of(session: &SandboxSession, source: &Target, max_bytes: u64) -> Result<ByteStream, Failure> {
    let shown = source.path.to_string();
    let bytes = session.machine().read(source).await.map_err(|cause| SandboxError::reading(&shown, cause))?;
    let mut left = max_bytes;
    Ok(Box::pin(bytes.map(move |piece| {
        let piece = piece?;
        left = left.checked_sub(piece.len() as u64).ok_or_else(|| MachineError::Exhausted {
            what: "the size of a copy".to_owned(),
            reason: format!("{shown} is larger than {max_bytes} bytes; {RAISE}"),
        })?;
        Ok(piece)
    })))
}

/// Reads a directory as a checked archive.
async fn tree_of(
    session: &SandboxSession,
    source: &Target,
    skip: &[OsString],
    terms: CopyOptions,
) -> Result<ByteStream, Failure> {
    let shown = source.path.to_string();
    let policy = Policy { links: terms.links, modes: Modes::Usable, names: Names::Any, ..Policy::default() };
    let packed = session.machine().pack(source, skip).await.map_err(|cause| SandboxError::reading(&shown, cause))?;
    let checked = archive::check(packed, Format::Tar, &terms.limits(), &policy, &shown).await.map_err(|error| {
        let next = match error.code() {
            "archive_refused" => "copy its files one by one, or copy its links with --keep-links",
            "limit_exceeded" => RAISE,
            _ => "make its files readable, for example with chmod, or copy it in parts",
        };
        Failure::from(error).next(next)
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
fn destination(to: &Path, name: Option<OsString>) -> Result<(OpenDir, Option<OsString>), Failure> {
    let refuse = || Failure::new(format!("cannot copy to {}", to.display()));
    // The link may have been copied out of a session.
    if fs::symlink_metadata(to).is_ok_and(|found| found.is_symlink()) {
        let next = "name the target of the link, or add a slash to follow the link";
        return Err(refuse().because(io::Error::other("it is a symbolic link")).next(next));
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
        let missing = io::Error::other("there is no such directory");
        return Err(refuse().because(missing).next("create it first"));
    }
    // Joining the empty name adds the slash, which makes the kernel follow the link.
    let dir = OpenDir::open(&parent.join(""));
    let dir = dir.map_err(|error| refuse().because(error).next("create the directory first"))?;
    let name = to.file_name().ok_or_else(|| refuse().next("add a file name"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_name_of_its_source_unless_only_the_contents_are_copied() {
        let name = |path: &str| name_of(OsStr::new(path), || Ok(PathBuf::from("/real/dir"))).expect("a name");
        assert_eq!(name("a/b"), Some("b".into()));
        assert_eq!(name("a/b/"), Some("b".into()));
        assert_eq!(name(".."), Some("dir".into()));
        assert_eq!(name("."), None);
        assert_eq!(name("a/."), None);
    }
}
