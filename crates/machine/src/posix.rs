//! File operations by `sh` and POSIX tools on the machine, for machines without the facet [`Files`](crate::Files), and helpers
//! for providers whose protocol carries only text.
//!
//! The functions use only `spawn`, `read` and `write` of a [`Machine`]. The machine needs `sh`, `find`, `stat`, `tar` and the
//! usual small tools, from GNU or busybox (whose file times are whole seconds). Values are passed as arguments, never inside
//! the shell text.
//!
//! [`Target::beneath`] is enforced by entering the directory, asking the kernel for its real path, and working from there. A
//! link that is exchanged later has no effect, but a directory that is *moved out* meanwhile is not noticed, and unpacking
//! relies on the links that existed when it began. A guest that resolves and acts in one system call is stricter.

mod archive;
mod file;
mod launch;
mod run;
mod script;

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use bytes::Bytes;

use self::run::Call;
pub use self::{
    archive::{pack, unpack},
    file::{place, read},
    launch::{Launch, TREE_VARIABLE, launch, signal_tree},
};
use crate::{
    DirEntry, EntryKind, Hashes, Machine, MachineError, MachinePath, Result, ScanOptions, Sha256, Target, TreeEntry,
    TreeIndex,
};

/// Maximum size in bytes of a listing.
const LISTING_LIMIT: usize = 64 << 20;

/// [`Files::stat`](crate::Files::stat) through `find` or `stat`.
///
/// # Errors
/// Those of the machine; [`MachineError::Denied`] if the path leaves [`Target::beneath`].
pub async fn stat<M: Machine + ?Sized>(machine: &M, target: &Target) -> Result<Option<DirEntry>> {
    // The parent of `beneath` must not be entered, so `beneath` itself is described from inside.
    let (parent, name) = match &target.beneath {
        Some(root) if *root == target.path => (root.clone(), OsStr::new(".")),
        _ => split(&target.path),
    };
    let call = Call::new("look at", target, script::DESCRIBE)?.arg(&parent).arg(dotted(name)).arg("0").arg("0");
    let listing = match call.run(machine, LISTING_LIMIT).await {
        Ok(listing) => listing,
        Err(MachineError::NotFound(_)) => return Ok(None),
        Err(other) => return Err(other),
    };
    let found = entries(&listing)?.into_iter().next();
    let name = target.path.name().unwrap_or(OsStr::new("/"));
    Ok(found.map(|(_, entry)| DirEntry { name: name.to_owned(), ..entry }))
}

/// [`Files::list`](crate::Files::list) through `find`.
///
/// # Errors
/// Those of the machine; [`MachineError::NotFound`] if the directory does not exist.
pub async fn list<M: Machine + ?Sized>(machine: &M, target: &Target) -> Result<Vec<DirEntry>> {
    let call = Call::new("list", target, script::DESCRIBE)?.arg(&target.path).arg(".").arg("1").arg("1");
    let listing = call.run(machine, LISTING_LIMIT).await?;
    let mut found: Vec<DirEntry> = entries(&listing)?.into_iter().map(|(_, entry)| entry).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// [`Files::make_dir`](crate::Files::make_dir) through `mkdir`, one part at a time.
///
/// # Errors
/// Those of the machine.
pub async fn make_dir<M: Machine + ?Sized>(machine: &M, target: &Target) -> Result<()> {
    let start = target.beneath.clone().unwrap_or_else(MachinePath::root);
    let mode = format!("{:o}", target.mode.unwrap_or(0o755) & 0o777);
    let mut call = Call::new("make", target, script::MAKE_DIR)?.arg(&start).arg(mode);
    let below = target.path.as_bytes().get(start.as_bytes().len()..).unwrap_or_default();
    for part in below.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        call = call.arg(OsStr::from_bytes(part));
    }
    call.run(machine, 0).await?;
    Ok(())
}

/// [`Files::remove`](crate::Files::remove) through `rm`.
///
/// # Errors
/// Those of the machine; [`MachineError::Invalid`] for `/`.
pub async fn remove<M: Machine + ?Sized>(machine: &M, target: &Target) -> Result<()> {
    let (parent, name) = split_or_refuse(&target.path, "removed")?;
    let call = Call::new("remove", target, script::REMOVE)?.arg(&parent).arg(dotted(name));
    match call.run(machine, 0).await {
        Ok(_) | Err(MachineError::NotFound(_)) => Ok(()),
        Err(other) => Err(other),
    }
}

/// [`Files::rename`](crate::Files::rename) through `mv`, which copies if the new name is on another file system.
///
/// # Errors
/// Those of the machine; [`MachineError::NotFound`] if `from` or the directory of `to` is missing.
pub async fn rename<M: Machine + ?Sized>(machine: &M, from: &Target, to: &Target) -> Result<()> {
    let (from_parent, from_name) = split_or_refuse(&from.path, "renamed")?;
    let (to_parent, to_name) = split_or_refuse(&to.path, "replaced")?;
    if from.path == to.path {
        let found = stat(machine, from).await?;
        return found.map(|_same| ()).ok_or_else(|| MachineError::NotFound(from.path.clone()));
    }
    let call = Call::new("rename", from, script::RENAME)?
        .arg(&from_parent)
        .arg(dotted(from_name))
        .other(to)?
        .arg(&to_parent)
        .arg(to_name);
    call.run(machine, 0).await?;
    Ok(())
}

/// [`Files::scan`](crate::Files::scan) through `find` and `sha256sum`.
///
/// # Errors
/// Those of the machine; [`MachineError::Exhausted`] if the index is larger than 64 MiB.
pub async fn scan<M: Machine + ?Sized>(machine: &M, root: &Target, options: &ScanOptions) -> Result<TreeIndex> {
    let pruned = prune(&options.skip);
    let call = Call::new("scan", root, script::DESCRIBE)?.arg(&root.path).arg(".").arg("1").arg("4096");
    let listing = call.args(&pruned).run(machine, LISTING_LIMIT).await?;
    let mut found = entries(&listing)?;
    found.sort_by(|(a, _), (b, _)| by_parts(a, b));
    let mut sums = match options.hashes {
        Hashes::Skip => HashMap::new(),
        Hashes::Sha256 => hashes(machine, root, &pruned).await?,
    };
    let entries = found
        .into_iter()
        .map(|(path, entry)| TreeEntry { sha256: sums.remove(path.as_bytes()), path, entry })
        .collect();
    Ok(TreeIndex { entries })
}

async fn hashes<M: Machine + ?Sized>(
    machine: &M,
    root: &Target,
    pruned: &[OsString],
) -> Result<HashMap<Vec<u8>, Sha256>> {
    let call = Call::new("hash", root, script::HASH)?.arg(&root.path).args(pruned);
    let listing = call.run(machine, LISTING_LIMIT).await.map_err(|error| match error {
        MachineError::NotFound(path) => MachineError::File { action: "hash", path, source: vanished() },
        other => other,
    })?;
    listing
        .split(|byte| *byte == 0)
        .filter(|record| !record.is_empty())
        .map(|record| hash_record(record).ok_or_else(|| unexpected("hash the files")))
        .collect()
}

fn vanished() -> io::Error {
    io::Error::other("a file vanished before it was read")
}

/// Parses `HEX  ./path`.
fn hash_record(record: &[u8]) -> Option<(Vec<u8>, Sha256)> {
    let (hex, path) = record.split_at_checked(64)?;
    let mut sum = [0; 32];
    for (byte, pair) in sum.iter_mut().zip(hex.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some((path.strip_prefix(b"  ./")?.to_vec(), Sha256(sum)))
}

/// Compares paths for the order of a [`TreeIndex`]: parents before children, siblings by name.
pub(crate) fn by_parts(a: &OsStr, b: &OsStr) -> std::cmp::Ordering {
    let slash = |byte: &u8| *byte == b'/';
    a.as_bytes().split(slash).cmp(b.as_bytes().split(slash))
}

/// A path of a skip list without a leading `./` and a trailing slash.
pub(crate) fn plain(skip: &OsStr) -> &[u8] {
    let bytes = skip.as_bytes();
    let bytes = bytes.strip_prefix(b"./").unwrap_or(bytes);
    bytes.strip_suffix(b"/").unwrap_or(bytes)
}

/// Arguments that make `find` prune these paths; special characters of patterns are escaped.
fn prune(skip: &[OsString]) -> Vec<OsString> {
    let mut arguments = Vec::new();
    for skipped in skip.iter().map(|skip| plain(skip)).filter(|skip| !skip.is_empty()) {
        arguments.push(OsString::from(if arguments.is_empty() { "(" } else { "-o" }));
        let mut pattern = b"./".to_vec();
        for byte in skipped {
            if b"*?[]\\".contains(byte) {
                pattern.push(b'\\');
            }
            pattern.push(*byte);
        }
        arguments.extend(["-path".into(), OsString::from_vec(pattern)]);
    }
    if !arguments.is_empty() {
        arguments.extend([")", "-prune", "-o"].map(OsString::from));
    }
    arguments
}

/// The directory to enter and the name to act on there; for `/`, the name is `.`.
fn split(path: &MachinePath) -> (MachinePath, &OsStr) {
    match (path.parent(), path.name()) {
        (Some(parent), Some(name)) => (parent, name),
        _ => (MachinePath::root(), OsStr::new(".")),
    }
}

fn split_or_refuse<'a>(path: &'a MachinePath, participle: &str) -> Result<(MachinePath, &'a OsStr)> {
    if *path == MachinePath::root() {
        return Err(MachineError::invalid("path \"/\"", format!("cannot be {participle}")));
    }
    Ok(split(path))
}

/// The name with a leading `./`, so that no tool takes it for an option.
fn dotted(name: &OsStr) -> OsString {
    let mut dotted = OsString::from("./");
    dotted.push(name);
    dotted
}

/// Parses the output of [`script::DESCRIBE`]. A record has eight fields, each ended by NUL: relative path, kind, size, mode,
/// time, owner, group, link target.
fn entries(listing: &Bytes) -> Result<Vec<(OsString, DirEntry)>> {
    let Some(listing) = listing.strip_suffix(b"\0") else {
        return if listing.is_empty() { Ok(Vec::new()) } else { Err(unexpected("list files")) };
    };
    let fields: Vec<&[u8]> = listing.split(|byte| *byte == 0).collect();
    let (records, rest) = fields.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(unexpected("list files"));
    }
    records.iter().map(|record| entry(record).ok_or_else(|| unexpected("list files"))).collect()
}

fn entry([path, kind, size, mode, modified, uid, gid, link]: &[&[u8]; 8]) -> Option<(OsString, DirEntry)> {
    let text = |field: &[u8]| std::str::from_utf8(field).ok().map(str::to_owned);
    // `find` prints a letter, `stat` prints words.
    let kind = match *kind {
        b"f" => EntryKind::File,
        b"d" | b"directory" => EntryKind::Dir,
        b"l" | b"symbolic link" => EntryKind::Symlink,
        text if text.starts_with(b"regular") => EntryKind::File,
        _ => EntryKind::Other,
    };
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let entry = DirEntry {
        name: OsStr::from_bytes(name).to_owned(),
        kind,
        size: if kind == EntryKind::File { text(size)?.parse().ok()? } else { 0 },
        mode: u32::from_str_radix(&text(mode)?, 8).ok()? & 0o7777,
        modified_ns: nanoseconds(&text(modified)?)?,
        uid: text(uid)?.parse().ok()?,
        gid: text(gid)?.parse().ok()?,
        link: (kind == EntryKind::Symlink).then(|| OsStr::from_bytes(link).to_owned()),
    };
    Some((OsStr::from_bytes(path).to_owned(), entry))
}

/// Parses `1700000000` or `1700000000.1234567890`.
fn nanoseconds(time: &str) -> Option<i64> {
    let (seconds, fraction) = time.split_once('.').unwrap_or((time, ""));
    let fraction = format!("{fraction:0<9}");
    let seconds: i64 = seconds.parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction.get(..9)?.parse().ok()?)
}

fn unexpected(action: &'static str) -> MachineError {
    MachineError::transport(action, "a tool on the machine printed an unexpected format")
}
