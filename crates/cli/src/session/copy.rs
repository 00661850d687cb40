//! `sandbar session cp`: files and directories between a session and the host.
//!
//! Whatever comes out of a session is hostile. It is looked at as a whole first, and then written by the guest of a machine
//! that sees nothing of the host but the destination. In both directions it is written aside and renamed (`stage.rs`).

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
    Home,
    blame::{self, Reading},
    files,
    stage::Stage,
};
use crate::{
    args::{CopyArgs, GitArg},
    failure::Failure,
    host_side::{HostSide, OpenDir},
    making::{Halt, unless_signalled},
    render::Render,
    signals::{self, Signals},
    values::{Inside, Place},
};

/// What to do when a copy is refused for its size.
const RAISE: &str = "raise --max-bytes, or copy it in parts";

/// What is copied out.
#[derive(Clone, Copy)]
struct Terms {
    links: Links,
    max_bytes: u64,
    git: Option<GitArg>,
}

impl Terms {
    fn limits(self) -> ArchiveLimits {
        ArchiveLimits {
            max_input_bytes: NonZeroU64::new(self.max_bytes),
            max_extracted_bytes: NonZeroU64::new(self.max_bytes),
            max_members: NonZeroU64::new(2_000_000),
            max_depth: NonZeroU64::new(256),
        }
    }
}

pub(super) async fn run(args: CopyArgs, home: &Home, render: &Render) -> Result<u8, Failure> {
    let links = if args.keep_links { Links::KeepAll } else { Links::KeepInside };
    let terms = Terms { links, max_bytes: args.max_bytes, git: args.git };
    let mut signals = Signals::listen()?;
    let copied = match (args.from, args.to) {
        (Place::Host(from), Place::Inside(to)) => copy_in(&from, &to, home, &mut signals).await,
        (Place::Inside(from), Place::Host(to)) => copy_out(&from, &to, terms, home, &mut signals).await,
        // Refused before.
        (Place::Host(_), Place::Host(_)) | (Place::Inside(_), Place::Inside(_)) => return Ok(2),
    };
    match copied {
        Ok(copied) => copied.tell(args.json, render),
        Err(Halt::Signal(signal)) => Ok(signals::code(signal)),
        Err(Halt::Failed(failure)) => Err(*failure),
    }
}

/// What was copied, and what cannot be: pipes, sockets and devices mean nothing elsewhere.
struct Copied {
    session: String,
    left_out: Vec<String>,
    /// What interrupted commands of sandbar left in the tree, which is not copied either.
    leftovers: Vec<String>,
    /// What came out of the session and git obeys.
    repositories: Vec<String>,
}

/// How many of them are named to people.
const NAMED: usize = 3;

impl Copied {
    fn of(session: &SandboxSession) -> Self {
        let session = session.id().to_owned();
        Self { session, left_out: Vec::new(), leftovers: Vec::new(), repositories: Vec::new() }
    }

    /// Finds out what of a tree is not copied, and returns what packing it has to skip. Where that cannot be found out,
    /// everything is copied.
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
            render.note(&format!("left out {count} that cannot be copied: {names}: not a file, a directory or a link"));
        }
        if let Some(names) = named(&self.leftovers) {
            render.note(&format!("left out {names}: sandbar left it there when it was interrupted"));
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

async fn copy_in(from: &Path, to: &Inside, home: &Home, signals: &mut Signals) -> Result<Copied, Halt> {
    let unreadable = |error| Failure::new(format!("cannot copy {}", from.display())).because(error);
    let source = fs::metadata(from).map_err(unreadable)?;
    if !source.is_dir() && !source.is_file() {
        return Err(unreadable(io::Error::other("it is neither a file nor a directory")).into());
    }
    let name = name_of(from.as_os_str(), || fs::canonicalize(from)).map_err(unreadable)?;
    let session = unless_signalled(home.attach(&to.session), signals).await?;
    let (machine, shown) = (session.machine().as_ref(), to.path.to_string_lossy());
    let shown = if shown.is_empty() { session.paths().root().to_string() } else { shown.into_owned() };
    let target = landing(&session, &to.path, name.as_deref()).await?;
    let reading = Reading::default();
    let blame = |written: Result<(), MachineError>| match (reading.failed(), written) {
        (Some(error @ MachineError::Denied { .. }), _) => Err(match blame::first_unreadable(from) {
            Some((path, error)) => Failure::new(format!("cannot copy {}", path.display())).because(error),
            None => blame::host(format!("cannot copy {}", from.display()), error),
        }),
        (Some(error), _) => Err(blame::host(format!("cannot copy {}", from.display()), error)),
        (None, Err(cause)) => Err(SandboxError::writing(shown, cause).into()),
        (None, Ok(())) => Ok(()),
    };
    let mut copied = Copied::of(&session);
    if source.is_file() {
        let content = reading.watch(files::input(File::open(from).map_err(unreadable)?)?);
        let target = target.mode(source.permissions().mode() & 0o777);
        let write = async { blame(machine.write(&target, content).await) };
        unless_signalled(write, signals).await?;
        return Ok(copied);
    }
    // It may be unreadable, which its machine would tell in its own way.
    fs::read_dir(from).map_err(unreadable)?;
    let host = HostSide::open(from.to_owned(), Access::ReadOnly, Demand::met_by(session.features().isolation)).await?;
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

/// Where in the session something of this name goes: into a directory that is there, else to the path itself.
async fn landing(session: &SandboxSession, path: &OsStr, name: Option<&OsStr>) -> Result<Target, Failure> {
    let mut target = session.paths().target(whole(path), Intent::Write)?;
    let found = session.stat(whole(path)).await?;
    let is_dir = path.as_bytes().ends_with(b"/") || found.is_some_and(|found| found.kind == EntryKind::Dir);
    if let Some(name) = name.filter(|_| is_dir) {
        target.path = target.path.join(name)?;
    }
    Ok(target)
}

async fn copy_out(from: &Inside, to: &Path, terms: Terms, home: &Home, signals: &mut Signals) -> Result<Copied, Halt> {
    let session = unless_signalled(home.attach(&from.session), signals).await?;
    let path = whole(&from.path);
    let source = session.paths().target(path, Intent::Read)?;
    let Some(found) = session.stat(path).await? else {
        return Err(SandboxError::workspace_read_not_found(path.to_string_lossy()).into());
    };
    // The path is the caller's own; its last part names what is made on the host.
    let name = name_of(path, || Ok(PathBuf::from(source.path.as_os_str())));
    let name = name.map_err(|error| Failure::new("cannot name the copy").because(error))?;
    let (dir, name) = destination(to, name)?;
    let mut copied = Copied::of(&session);
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
    let isolation = Demand::met_by(session.features().isolation);
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
                let failure = blame::host(format!("cannot write {to}"), cause).code("workspace_archive_write_error");
                let next = "what belongs to a repository there is not written; copy the rest, or add --git rw";
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

/// What is on its way to the host.
enum Content {
    /// A clean archive.
    Tree(ByteStream),
    /// A file's bytes and its permission bits.
    File(ByteStream, u32),
}

fn too_large(shown: &str, max_bytes: u64) -> Failure {
    Failure::new(format!("{shown} is larger than {max_bytes} bytes")).code("limit_exceeded").next(RAISE)
}

/// A file, of which there may be more than anybody said.
async fn file_of(session: &SandboxSession, source: &Target, max_bytes: u64) -> Result<ByteStream, Failure> {
    let shown = source.path.to_string();
    let bytes = session.machine().read(source).await.map_err(|cause| SandboxError::reading(&shown, cause))?;
    let mut left = max_bytes;
    Ok(Box::pin(bytes.map(move |piece| {
        let piece = piece?;
        left = left.checked_sub(piece.len() as u64).ok_or_else(|| MachineError::Exhausted {
            what: "what is copied at once".to_owned(),
            reason: format!("{shown} is larger than {max_bytes} bytes; {RAISE}"),
        })?;
        Ok(piece)
    })))
}

/// A directory as an archive, of which everything was looked at.
async fn tree_of(
    session: &SandboxSession,
    source: &Target,
    skip: &[OsString],
    terms: Terms,
) -> Result<ByteStream, Failure> {
    let shown = source.path.to_string();
    let policy = Policy { links: terms.links, modes: Modes::Usable, names: Names::Any, ..Policy::default() };
    let packed = session.machine().pack(source, skip).await.map_err(|cause| SandboxError::reading(&shown, cause))?;
    let checked = archive::check(packed, Format::Tar, &terms.limits(), &policy, &shown).await.map_err(|error| {
        let next = match error.code() {
            "archive_refused" => "copy what is needed of it one by one, or keep its links with --keep-links",
            "limit_exceeded" => RAISE,
            _ => "make all of it readable, say with chmod, or copy it in parts",
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

/// The directory of the host that is written to, and the name in it; without a name, the directory itself.
fn destination(to: &Path, name: Option<OsString>) -> Result<(OpenDir, Option<OsString>), Failure> {
    let refuse = || Failure::new(format!("cannot copy to {}", to.display()));
    // It may have come out of a session itself.
    if fs::symlink_metadata(to).is_ok_and(|found| found.is_symlink()) {
        let next = "name what it leads to, or write a slash after it to follow it";
        return Err(refuse().because(io::Error::other("it is a symbolic link")).next(next));
    }
    // What is a link by now is not opened.
    if let Ok(dir) = OpenDir::open(to) {
        return Ok((dir, name));
    }
    let parent = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if to.as_os_str().as_bytes().ends_with(b"/") {
        let missing = io::Error::other("there is no such directory");
        return Err(refuse().because(missing).next("make it first"));
    }
    // The slash after it is there: with the empty name, it is here too.
    let dir = OpenDir::open(&parent.join(""));
    let dir = dir.map_err(|error| refuse().because(error).next("make the directory first"))?;
    let name = to.file_name().ok_or_else(|| refuse().next("give it a name"))?;
    Ok((dir, Some(name.to_owned())))
}

/// What a copy of this is called; `None` when its contents are meant, as with `dir/.`.
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

/// A path in the workspace; nothing means all of it.
fn whole(path: &OsStr) -> &OsStr {
    if path.is_empty() { OsStr::new(".") } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_called_like_its_source_unless_contents_are_meant() {
        let name = |path: &str| name_of(OsStr::new(path), || Ok(PathBuf::from("/real/dir"))).expect("a name");
        assert_eq!(name("a/b"), Some("b".into()));
        assert_eq!(name("a/b/"), Some("b".into()));
        assert_eq!(name(".."), Some("dir".into()));
        assert_eq!(name("."), None);
        assert_eq!(name("a/."), None);
    }
}
