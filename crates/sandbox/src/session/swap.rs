//! One tree in the place of another: unpacked aside, exchanged by renames, and put back if any of them fails.

use std::collections::{HashSet, VecDeque};

use sandbar_machine::{ByteStream, EntryKind, Machine, MachineError, MachinePath, Result, Target};

use crate::WorkspacePath;

/// What is not touched when a tree is exchanged: paths below its root, and what lies above them is taken apart.
#[derive(Debug, Default)]
pub(super) struct Kept {
    exact: HashSet<Vec<u8>>,
    above: HashSet<Vec<u8>>,
}

impl Kept {
    pub(super) fn new(paths: &[WorkspacePath]) -> Self {
        let mut kept = Self::default();
        for path in paths {
            let bytes = path.as_str().as_bytes();
            let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
            kept.above.extend(ends.map(|end| bytes[..end].to_vec()));
            kept.exact.insert(bytes.to_vec());
        }
        kept
    }
}

/// Replaces everything below `root` but what is kept. When it fails, everything is as it was.
pub(super) async fn replace(machine: &dyn Machine, root: &Target, kept: &Kept, tar: ByteStream) -> Result<()> {
    let name = format!(".sandbar-{}", uuid::Uuid::new_v4().simple());
    let aside = at(root, name.as_bytes())?;
    let (new, old) = (at(&aside, b"new")?, at(&aside, b"old")?);
    let swapped = async {
        machine.make_dir(&old).await?;
        machine.unpack(&new, tar).await?;
        let mut swap = Swap { machine, root, new: &new, old: &old, own: name.as_bytes(), kept, done: Vec::new() };
        let moved = swap.run().await;
        if moved.is_err() {
            swap.back().await;
        }
        moved
    };
    let swapped = swapped.await;
    let removed = machine.remove(&aside).await;
    swapped.and(removed)
}

struct Swap<'a> {
    machine: &'a dyn Machine,
    root: &'a Target,
    new: &'a Target,
    old: &'a Target,
    own: &'a [u8],
    kept: &'a Kept,
    done: Vec<(Target, Target)>,
}

impl Swap<'_> {
    async fn run(&mut self) -> Result<()> {
        let mut waiting = VecDeque::from([Vec::new()]);
        while let Some(dir) = waiting.pop_front() {
            for path in self.names(self.root, &dir).await? {
                if path == self.own || self.kept.exact.contains(&path) {
                    continue;
                }
                if self.kept.above.contains(&path) && self.is_dir(self.root, &path).await? {
                    waiting.push_back(path);
                } else {
                    self.rename(at(self.root, &path)?, at(self.old, &path)?).await?;
                }
            }
            for path in self.names(self.new, &dir).await? {
                // A directory around something that is kept has not been moved; what is in it follows by itself.
                let stays = self.kept.exact.contains(&path) || waiting.contains(&path);
                if !stays {
                    self.rename(at(self.new, &path)?, at(self.root, &path)?).await?;
                }
            }
        }
        Ok(())
    }

    async fn rename(&mut self, from: Target, to: Target) -> Result<()> {
        if let Some(parent) = to.path.parent() {
            let mut parent = Target { path: parent, ..to.clone() };
            parent.mode = None;
            self.machine.make_dir(&parent).await?;
        }
        self.machine.rename(&from, &to).await?;
        self.done.push((from, to));
        Ok(())
    }

    /// Puts everything back, the last first.
    async fn back(&mut self) {
        for (from, to) in self.done.drain(..).rev() {
            if let Err(error) = self.machine.rename(&to, &from).await {
                tracing::error!(path = %from.path, %error, "cannot put a file back");
            }
        }
    }

    async fn names(&self, base: &Target, dir: &[u8]) -> Result<Vec<Vec<u8>>> {
        let entries = match self.machine.list(&at(base, dir)?).await {
            Err(MachineError::NotFound(_)) => return Ok(Vec::new()),
            other => other?,
        };
        let name = |name: &std::ffi::OsStr| std::os::unix::ffi::OsStrExt::as_bytes(name).to_vec();
        let below = |name: Vec<u8>| if dir.is_empty() { name } else { [dir, b"/", &name].concat() };
        Ok(entries.iter().map(|entry| below(name(&entry.name))).collect())
    }

    async fn is_dir(&self, base: &Target, path: &[u8]) -> Result<bool> {
        Ok(self.machine.stat(&at(base, path)?).await?.is_some_and(|entry| entry.kind == EntryKind::Dir))
    }
}

/// The target below another; the same when the path is empty.
fn at(base: &Target, path: &[u8]) -> Result<Target> {
    let path: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(path);
    let path: MachinePath = if path.is_empty() { base.path.clone() } else { base.path.join(path)? };
    Ok(Target { path, ..base.clone() })
}
