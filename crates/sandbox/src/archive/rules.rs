//! The rules for members of an archive, and the path each member gets.

use sandbar_machine::tar::{Kind, Member};

use super::{
    ArchiveLimits, Links, Modes, Names, Policy,
    names::{Clash, Node, Tree},
};
use crate::{Result, SandboxError};

/// Longest path and longest component on any machine, with room for the directory it is unpacked in.
const PATH_LIMIT: usize = 4000;
const PART_LIMIT: usize = 255;
/// Latest time that every tar program can read (2242).
const LATEST: u64 = 0o777_7777_7777;

/// Result of checking a member.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The member is unpacked, and takes this many bytes on the machine.
    Keep(Member, u64),
    /// The member is valid, but the policy leaves it out.
    LeaveOut,
}

/// Checks the members of one archive, in order.
#[derive(Debug)]
pub(super) struct Rules {
    archive: String,
    policy: Policy,
    depth: u64,
    tree: Tree,
    /// Whether a member was at or below the requested subpath.
    has_subpath: bool,
}

impl Rules {
    pub(super) fn new(archive: &str, limits: &ArchiveLimits, policy: &Policy) -> Self {
        let depth = limits.max_depth.map_or(u64::MAX, u64::from);
        Self { archive: archive.to_owned(), policy: policy.clone(), depth, tree: Tree::new(), has_subpath: false }
    }

    /// The member in the one form that every tar program reads the same way.
    pub(super) fn judge(&mut self, member: &Member) -> Result<Verdict> {
        let refuse = |reason: &str| self.refuse(&member.path, reason);
        match member.kind {
            Kind::Other(flag) => return Err(refuse(special(flag))),
            Kind::Symlink | Kind::HardLink if self.policy.links == Links::Refuse => {
                return Err(refuse("is a link, and links are not unpacked"));
            }
            _ => {}
        }
        let parts = split(&member.path, self.policy.names).map_err(refuse)?;
        if parts.is_empty() && member.kind != Kind::Dir {
            return Err(refuse("has no name"));
        }
        if parts.len() as u64 > self.depth {
            let what = format!("the depth of {:?} in {}", shown(&member.path), self.archive);
            return Err(SandboxError::limit_exceeded(what, self.depth, parts.len() as u64));
        }
        let Some(parts) = self.mapped(&parts) else { return Ok(Verdict::LeaveOut) };
        self.has_subpath = true;
        if parts.is_empty() {
            let directory = member.kind == Kind::Dir;
            let reason = "is requested as a directory, but is not one";
            return if directory { Ok(Verdict::LeaveOut) } else { Err(self.refuse(&member.path, reason)) };
        }
        self.accept(member, &parts)
    }

    /// Fails if the requested subpath is not in the archive.
    pub(super) fn finish(&self) -> Result<()> {
        match &self.policy.subpath {
            Some(subpath) if !self.has_subpath => {
                Err(self.refuse(subpath.as_str().as_bytes(), "is not in the archive"))
            }
            _ => Ok(()),
        }
    }

    /// The path after stripping and subpath; `None` if the member is left out.
    fn mapped<'a>(&self, parts: &[&'a [u8]]) -> Option<Vec<&'a [u8]>> {
        let mut rest = parts.get(self.policy.strip_components..)?;
        if rest.is_empty() && self.policy.strip_components > 0 {
            return None;
        }
        for wanted in self.policy.subpath.iter().flat_map(|subpath| subpath.parts()) {
            let (first, below) = rest.split_first()?;
            if *first != wanted.as_bytes() {
                return None;
            }
            rest = below;
        }
        Some(rest.to_vec())
    }

    fn accept(&mut self, member: &Member, parts: &[&[u8]]) -> Result<Verdict> {
        let mut cleaned = Member::new(member.kind, &parts.join(&b'/'), self.mode(member));
        cleaned.modified = member.modified.min(LATEST);
        let node = match member.kind {
            Kind::File => {
                cleaned.size = member.size;
                Node::File(member.size)
            }
            Kind::Symlink => {
                cleaned.link.clone_from(&member.link);
                self.symlink(&member.link, parts.len() - 1).map_err(|reason| self.refuse(&member.path, reason))?;
                Node::Symlink
            }
            Kind::HardLink => {
                let (link, size) = self.hard_link(&member.link).map_err(|reason| self.refuse(&member.path, reason))?;
                cleaned.link = link;
                Node::File(size)
            }
            Kind::Dir | Kind::Other(_) => Node::Dir,
        };
        self.tree.put(parts, node).map_err(|clash| match clash {
            Clash::Twice => self.refuse(&member.path, "occurs twice"),
            Clash::Below => self.refuse(&member.path, "lies below something that is not a directory"),
            Clash::Full => {
                let what = format!("the number of paths in {}", self.archive);
                SandboxError::limit_exceeded(what, Tree::LIMIT, Tree::LIMIT + 1)
            }
        })?;
        // A hard link may be unpacked as a copy, so it costs as much as one.
        let bytes = if let Node::File(size) = node { size } else { 0 };
        Ok(Verdict::Keep(cleaned, bytes))
    }

    fn mode(&self, member: &Member) -> u32 {
        let mode = member.mode & 0o777;
        match (self.policy.modes, member.kind) {
            (_, Kind::Symlink) => 0o777,
            (Modes::Exact, _) => mode,
            (Modes::Usable, Kind::Dir) => mode | 0o700,
            (Modes::Usable, _) => mode | 0o600,
        }
    }

    /// Checks the target of a symbolic link that is `depth` directories below the top.
    fn symlink(&self, target: &[u8], depth: usize) -> Result<(), &'static str> {
        if target.is_empty() || target.contains(&0) || target.len() > PATH_LIMIT {
            return Err("is a symbolic link with an empty, invalid or too long target");
        }
        if self.policy.links == Links::KeepAll {
            return Ok(());
        }
        if target.starts_with(b"/") {
            return Err("is a symbolic link to an absolute path");
        }
        if !stays_inside(target, depth) {
            return Err("is a symbolic link that leads, or may lead, out of the archive");
        }
        Ok(())
    }

    /// Target of a hard link after mapping, and the size of that file.
    fn hard_link(&self, target: &[u8]) -> Result<(Vec<u8>, u64), &'static str> {
        let elsewhere = "is a hard link to something that is not an earlier file of the archive";
        let parts = split(target, self.policy.names).map_err(|_fault| elsewhere)?;
        let parts = self.mapped(&parts).ok_or("is a hard link to something that is left out")?;
        match self.tree.get(&parts) {
            Some(Node::File(size)) => Ok((parts.join(&b'/'), size)),
            _ => Err(elsewhere),
        }
    }

    fn refuse(&self, member: &[u8], reason: &str) -> SandboxError {
        SandboxError::archive_refused(&self.archive, shown(member), reason)
    }
}

/// Components of a path; none for the root itself.
fn split(path: &[u8], names: Names) -> Result<Vec<&[u8]>, &'static str> {
    if path.is_empty() {
        return Err("has no name");
    }
    if path.starts_with(b"/") {
        return Err("is absolute");
    }
    if path.contains(&0) {
        return Err("has a NUL byte in its name");
    }
    if names == Names::Portable && path.contains(&b'\\') {
        return Err("has a backslash in its name");
    }
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
    if parts.contains(&b"..".as_slice()) {
        return Err("has `..` in its name");
    }
    let drive = parts.first().is_some_and(|first| matches!(first, [letter, b':'] if letter.is_ascii_alphabetic()));
    if names == Names::Portable && drive {
        return Err("begins with a drive letter");
    }
    if path.len() > PATH_LIMIT || parts.iter().any(|part| part.len() > PART_LIMIT) {
        return Err("has a name longer than any system allows");
    }
    Ok(parts)
}

fn special(flag: u8) -> &'static str {
    match flag {
        b'3' | b'4' => "is a device",
        b'6' => "is a FIFO",
        b'S' => "is a sparse file of a kind that programs do not agree on",
        _ => "is not a file, directory or link",
    }
}

/// A member's name for messages and logs, shortened.
pub(super) fn shown(member: &[u8]) -> String {
    let text = String::from_utf8_lossy(member);
    match text.char_indices().nth(300) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.into_owned(),
    }
}

/// Whether the target of a relative link, `depth` directories below the top of a tree, is inside the tree.
///
/// `..` is allowed only at the beginning of a target: after a name it would start where that name leads, and the name
/// may be a link. Every accepted link leads inside from its real location, so a chain of accepted links does too.
pub(crate) fn stays_inside(target: &[u8], depth: usize) -> bool {
    if target.is_empty() || target.starts_with(b"/") {
        return false;
    }
    let parts = target.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let mut parts = parts.skip_while({
        let mut ups = 0;
        move |part| {
            ups += 1;
            *part == b".." && ups <= depth
        }
    });
    !parts.any(|part| part == b"..")
}
