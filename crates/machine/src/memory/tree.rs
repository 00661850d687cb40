//! A file tree in memory, with path resolution as in a kernel.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use bytes::Bytes;
use sha2::Digest;

use crate::{
    DirEntry, EntryKind, MachineError, MachinePath, Result, Sha256, Target, TreeEntry,
    posix::plain,
    tar::{Kind, Member},
};

/// Maximum number of symbolic links in the resolution of one path.
const LINKS: usize = 40;

/// Content of a node.
#[derive(Clone, Debug)]
pub(super) enum Content {
    File(Bytes),
    Dir(BTreeMap<OsString, Node>),
    Symlink(OsString),
}

/// A file, directory or symbolic link.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) content: Content,
    pub(super) mode: u32,
    pub(super) modified_ns: i64,
}

impl Node {
    fn entry(&self, name: &OsStr) -> DirEntry {
        let (kind, size, link) = match &self.content {
            Content::File(bytes) => (EntryKind::File, bytes.len() as u64, None),
            Content::Dir(_) => (EntryKind::Dir, 0, None),
            Content::Symlink(to) => (EntryKind::Symlink, 0, Some(to.clone())),
        };
        let (mode, modified_ns) = (self.mode, self.modified_ns);
        DirEntry { name: name.to_owned(), kind, size, mode, modified_ns, uid: 0, gid: 0, link }
    }
}

/// A node, and its path relative to the root of the walk.
#[derive(Clone, Debug)]
pub(super) struct WalkItem {
    pub(super) path: OsString,
    pub(super) node: Node,
}

impl WalkItem {
    pub(super) fn into_entry(self, sha256: Option<Sha256>) -> TreeEntry {
        let name = self.path.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let entry = self.node.entry(OsStr::from_bytes(name));
        TreeEntry { path: self.path, entry, sha256 }
    }
}

/// Whether a symbolic link in the last part of a path is followed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastLink {
    Follow,
    NoFollow,
}

/// A resolved path, as names from the root; the last name may not exist.
type RealPath = Vec<OsString>;

/// A file tree and its clock.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    root: Node,
    clock: i64,
}

impl Tree {
    pub(super) fn new() -> Self {
        let root = Node { content: Content::Dir(BTreeMap::new()), mode: 0o755, modified_ns: 0 };
        let mut tree = Self { root, clock: 0 };
        let workspace = Target::from(MachinePath::workspace());
        // This cannot fail in an empty tree.
        let _made = tree.make_dir(&workspace);
        tree
    }

    pub(super) fn read(&self, target: &Target) -> Result<Bytes> {
        let real = self.resolve("read", target, LastLink::Follow)?;
        match &self.existing(target, &real)?.content {
            Content::File(bytes) => Ok(bytes.clone()),
            Content::Dir(_) | Content::Symlink(_) => Err(file("read", target, io::ErrorKind::IsADirectory)),
        }
    }

    /// Refuses a write that the current tree does not allow.
    pub(super) fn check_write(&self, target: &Target) -> Result<()> {
        if let Some(expected) = target.expected
            && !expected.is(self.stat(target)?.as_ref())
        {
            return Err(MachineError::Changed(target.path.clone()));
        }
        // Missing parents are not an error: the write creates them.
        match self.resolve("write", target, LastLink::NoFollow).map(|real| self.node(&real)) {
            Ok(found) => may_replace(target, found),
            Err(MachineError::NotFound(_)) => Ok(()),
            Err(other) => Err(other),
        }
    }

    pub(super) fn write(&mut self, target: &Target, bytes: Bytes) -> Result<()> {
        if let Some(expected) = target.expected
            && !expected.is(self.stat(target)?.as_ref())
        {
            return Err(MachineError::Changed(target.path.clone()));
        }
        let real = self.with_parents(target)?;
        let found = self.node(&real);
        may_replace(target, found)?;
        let mode = target.mode.map(|mode| mode & 0o777).or(found.map(|node| node.mode)).unwrap_or(0o644);
        let node = self.fresh(Content::File(bytes), mode);
        self.put("write", target, &real, node)
    }

    pub(super) fn stat(&self, target: &Target) -> Result<Option<DirEntry>> {
        let real = match self.resolve("look at", target, LastLink::NoFollow) {
            Ok(real) => real,
            Err(MachineError::NotFound(_)) => return Ok(None),
            Err(other) => return Err(other),
        };
        Ok(self.node(&real).map(|node| node.entry(target.path.name().unwrap_or(OsStr::new("/")))))
    }

    pub(super) fn list(&self, target: &Target) -> Result<Vec<DirEntry>> {
        let real = self.resolve("list", target, LastLink::Follow)?;
        match &self.existing(target, &real)?.content {
            Content::Dir(children) => Ok(children.iter().map(|(name, node)| node.entry(name)).collect()),
            Content::File(_) | Content::Symlink(_) => Err(file("list", target, io::ErrorKind::NotADirectory)),
        }
    }

    pub(super) fn make_dir(&mut self, target: &Target) -> Result<()> {
        let start = target.beneath.clone().unwrap_or_else(MachinePath::root);
        let below = target.path.as_bytes().get(start.as_bytes().len()..).unwrap_or_default();
        let names: Vec<&[u8]> = below.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
        let mut step = Target { path: start, ..target.clone() };
        for (at, name) in names.iter().enumerate() {
            step.path = step.path.join(OsStr::from_bytes(name))?;
            let real = self.resolve("make", &step, LastLink::Follow)?;
            match self.node(&real).map(|node| &node.content) {
                Some(Content::Dir(_)) => {}
                Some(_) => return Err(file("make", target, io::ErrorKind::AlreadyExists)),
                None => {
                    let last = at + 1 == names.len();
                    let mode = target.mode.filter(|_| last).unwrap_or(0o755) & 0o777;
                    let node = self.fresh(Content::Dir(BTreeMap::new()), mode);
                    self.put("make", target, &real, node)?;
                }
            }
        }
        self.resolve("make", target, LastLink::Follow).map(|_checked| ())
    }

    pub(super) fn remove(&mut self, target: &Target) -> Result<()> {
        if target.path == MachinePath::root() {
            return Err(MachineError::invalid("path \"/\"", "cannot be removed"));
        }
        match self.resolve("remove", target, LastLink::NoFollow) {
            Ok(real) => {
                let _what_was_there = self.take(&real);
                Ok(())
            }
            Err(MachineError::NotFound(_)) => Ok(()),
            Err(other) => Err(other),
        }
    }

    pub(super) fn rename(&mut self, from: &Target, to: &Target) -> Result<()> {
        let source = self.resolve("rename", from, LastLink::NoFollow)?;
        let goal = self.resolve("rename", to, LastLink::NoFollow)?;
        let moved = self.existing(from, &source)?;
        let is_dir = matches!(moved.content, Content::Dir(_));
        match self.node(&goal).map(|node| &node.content) {
            _ if source == goal => return Ok(()),
            Some(Content::Dir(children)) if is_dir && children.is_empty() => {}
            Some(Content::Dir(_)) if is_dir => return Err(file("rename", to, io::ErrorKind::DirectoryNotEmpty)),
            Some(Content::Dir(_)) => return Err(file("rename", to, io::ErrorKind::IsADirectory)),
            Some(_) if is_dir => return Err(file("rename", to, io::ErrorKind::NotADirectory)),
            _ => {}
        }
        if source.is_empty() || goal.starts_with(&source) {
            return Err(file("rename", to, io::ErrorKind::InvalidInput));
        }
        self.directory("rename", to, &goal)?;
        let Some(node) = self.take(&source) else { return Err(MachineError::NotFound(from.path.clone())) };
        let Some((name, children)) = self.slot(&goal) else { return Err(MachineError::NotFound(to.path.clone())) };
        children.insert(name, node);
        Ok(())
    }

    /// All nodes below a directory except the skipped ones, parents first.
    pub(super) fn walk(&self, root: &Target, skip: &[OsString]) -> Result<Vec<WalkItem>> {
        let real = self.resolve("scan", root, LastLink::Follow)?;
        let Content::Dir(children) = &self.existing(root, &real)?.content else {
            return Err(file("scan", root, io::ErrorKind::NotADirectory));
        };
        let mut found = Vec::new();
        let mut ahead: Vec<(OsString, &Node)> =
            children.iter().rev().map(|(name, node)| (name.clone(), node)).collect();
        while let Some((path, node)) = ahead.pop() {
            if skip.iter().any(|skip| plain(skip) == path.as_bytes()) {
                continue;
            }
            found.push(WalkItem { path: path.clone(), node: node.clone() });
            if let Content::Dir(children) = &node.content {
                for (name, child) in children.iter().rev() {
                    ahead.push((OsString::from_vec([path.as_bytes(), b"/", name.as_bytes()].concat()), child));
                }
            }
        }
        Ok(found)
    }

    /// Creates or replaces the node of an archive member that was checked.
    pub(super) fn place(&mut self, root: &Target, member: &Member, content: Bytes) -> Result<()> {
        let within = root.beneath.clone().unwrap_or_else(|| root.path.clone());
        let path = root.path.join(OsStr::from_bytes(&member.path))?;
        let target = Target { path, beneath: Some(within), mode: Some(member.mode), ..Target::from(root.path.clone()) };
        if member.kind == Kind::Dir {
            self.make_dir(&target)?;
            let real = self.resolve("unpack", &target, LastLink::Follow)?;
            if let Some(node) = self.node_mut(&real) {
                node.mode = member.mode;
            }
            return Ok(());
        }
        let content = match member.kind {
            Kind::Symlink => Content::Symlink(OsString::from_vec(member.link.clone())),
            Kind::HardLink => {
                let original = root.path.join(OsStr::from_bytes(&member.link))?;
                Content::File(self.read(&Target { path: original, ..target.clone() })?)
            }
            Kind::File | Kind::Dir | Kind::Other(_) => Content::File(content),
        };
        let real = self.with_parents(&target)?;
        let node = self.fresh(content, member.mode);
        self.put("unpack", &target, &real, node)
    }

    fn with_parents(&mut self, target: &Target) -> Result<RealPath> {
        let parent = target.path.parent().ok_or_else(|| file("write", target, io::ErrorKind::IsADirectory))?;
        if target.beneath.as_ref().is_none_or(|root| parent.is_within(root)) {
            self.make_dir(&Target { path: parent, mode: None, ..target.clone() })?;
        }
        self.resolve("write", target, LastLink::NoFollow)
    }

    /// Creates or replaces the node at a resolved path; a directory is not replaced.
    fn put(&mut self, action: &'static str, target: &Target, real: &[OsString], node: Node) -> Result<()> {
        self.directory(action, target, real)?;
        let Some((name, children)) = self.slot(real) else { return Err(MachineError::NotFound(target.path.clone())) };
        if children.get(&name).is_some_and(|found| matches!(found.content, Content::Dir(_))) {
            return Err(file(action, target, io::ErrorKind::IsADirectory));
        }
        children.insert(name, node);
        Ok(())
    }

    /// A new node, whose time is one nanosecond after the previous one.
    fn fresh(&mut self, content: Content, mode: u32) -> Node {
        self.clock += 1;
        Node { content, mode, modified_ns: self.clock }
    }

    fn take(&mut self, real: &[OsString]) -> Option<Node> {
        let (name, children) = self.slot(real)?;
        children.remove(&name)
    }

    /// The last name of a resolved path, and the children of its parent directory.
    fn slot(&mut self, real: &[OsString]) -> Option<(OsString, &mut BTreeMap<OsString, Node>)> {
        let (name, parent) = real.split_last()?;
        match &mut self.node_mut(parent)?.content {
            Content::Dir(children) => Some((name.clone(), children)),
            Content::File(_) | Content::Symlink(_) => None,
        }
    }

    /// Refuses a resolved path whose parent is missing or not a directory.
    fn directory(&self, action: &'static str, target: &Target, real: &[OsString]) -> Result<()> {
        let parent = real.split_last().map_or(real, |(_, parent)| parent);
        match self.node(parent).map(|node| &node.content) {
            Some(Content::Dir(_)) => Ok(()),
            Some(_) => Err(file(action, target, io::ErrorKind::NotADirectory)),
            None => Err(MachineError::NotFound(target.path.clone())),
        }
    }

    fn node(&self, real: &[OsString]) -> Option<&Node> {
        real.iter().try_fold(&self.root, |node, name| match &node.content {
            Content::Dir(children) => children.get(name),
            Content::File(_) | Content::Symlink(_) => None,
        })
    }

    fn node_mut(&mut self, real: &[OsString]) -> Option<&mut Node> {
        real.iter().try_fold(&mut self.root, |node, name| match &mut node.content {
            Content::Dir(children) => children.get_mut(name),
            Content::File(_) | Content::Symlink(_) => None,
        })
    }

    fn existing(&self, target: &Target, real: &[OsString]) -> Result<&Node> {
        self.node(real).ok_or_else(|| MachineError::NotFound(target.path.clone()))
    }

    /// Resolves a path. [`Target::beneath`] is enforced as by `openat2`: absolute links, and `..` above that directory, are
    /// refused.
    fn resolve(&self, action: &'static str, target: &Target, last: LastLink) -> Result<RealPath> {
        let (mut here, floor, path) = match &target.beneath {
            None => (RealPath::new(), None, target.path.as_bytes()),
            Some(root) if target.path.is_within(root) => {
                let whole = self.resolve(action, &Target::from(root), LastLink::Follow)?;
                let rest = target.path.as_bytes().get(root.as_bytes().len()..).unwrap_or_default();
                let floor = whole.len();
                (whole, Some(floor), rest)
            }
            Some(_) => return Err(leaves(target)),
        };
        let mut ahead: VecDeque<OsString> = names(path);
        let mut links = 0;
        while let Some(name) = ahead.pop_front() {
            if name == ".." {
                if floor.is_some_and(|floor| here.len() <= floor) {
                    return Err(leaves(target));
                }
                here.pop();
                continue;
            }
            self.enterable(action, target, &here)?;
            here.push(name);
            let follow = !ahead.is_empty() || last == LastLink::Follow;
            let Some(Content::Symlink(to)) = self.node(&here).map(|node| &node.content).filter(|_| follow) else {
                continue;
            };
            links += 1;
            if links > LINKS {
                return Err(file(action, target, io::ErrorKind::InvalidInput));
            }
            here.pop();
            if to.as_bytes().starts_with(b"/") {
                if floor.is_some() {
                    return Err(leaves(target));
                }
                here.clear();
            }
            for name in names(to.as_bytes()).into_iter().rev() {
                ahead.push_front(name);
            }
        }
        Ok(here)
    }

    fn enterable(&self, action: &'static str, target: &Target, here: &[OsString]) -> Result<()> {
        match self.node(here).map(|node| &node.content) {
            Some(Content::Dir(_)) => Ok(()),
            Some(_) => Err(file(action, target, io::ErrorKind::NotADirectory)),
            None => Err(MachineError::NotFound(target.path.clone())),
        }
    }
}

pub(super) fn sha256(bytes: &[u8]) -> Sha256 {
    Sha256(sha2::Sha256::digest(bytes).into())
}

fn names(path: &[u8]) -> VecDeque<OsString> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    parts.map(|part| OsStr::from_bytes(part).to_owned()).collect()
}

fn may_replace(target: &Target, found: Option<&Node>) -> Result<()> {
    match found.map(|node| &node.content) {
        Some(Content::Symlink(_)) => {
            let reason = "a symbolic link is never written through".to_owned();
            Err(MachineError::Denied { path: target.path.clone(), reason })
        }
        Some(Content::Dir(_)) => Err(file("write", target, io::ErrorKind::IsADirectory)),
        Some(Content::File(_)) | None => Ok(()),
    }
}

fn leaves(target: &Target) -> MachineError {
    let reason = "the path leaves the directory it must stay in".to_owned();
    MachineError::Denied { path: target.path.clone(), reason }
}

fn file(action: &'static str, target: &Target, kind: io::ErrorKind) -> MachineError {
    MachineError::File { action, path: target.path.clone(), source: kind.into() }
}
