//! Replaces a tree by another: unpacks the new one beside it, exchanges them by renames, and rolls back if a rename
//! fails.

use std::collections::{HashSet, VecDeque};

use sandbar_machine::{ByteStream, EntryKind, Machine, MachineError, MachinePath, Result, Target};

use crate::WorkspacePath;

/// Paths below the root that an exchange does not touch. Their ancestors are not moved as a whole, but entry by entry.
#[derive(Debug, Default)]
pub(super) struct PreservedPaths {
    exact: HashSet<Vec<u8>>,
    above: HashSet<Vec<u8>>,
}

impl PreservedPaths {
    pub(super) fn new(paths: &[WorkspacePath]) -> Self {
        let mut preserved = Self::default();
        for path in paths {
            let bytes = path.as_str().as_bytes();
            let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
            preserved.above.extend(ends.map(|end| bytes[..end].to_vec()));
            preserved.exact.insert(bytes.to_vec());
        }
        preserved
    }
}

/// Replaces everything below `root` except the preserved paths. If it fails, the old tree is restored.
pub(super) async fn replace(
    machine: &dyn Machine,
    root: &Target,
    preserved: &PreservedPaths,
    tar: ByteStream,
) -> Result<()> {
    let name = format!(".sandbar-{}", uuid::Uuid::new_v4().simple());
    let aside = at(root, name.as_bytes())?;
    let (new, old) = (at(&aside, b"new")?, at(&aside, b"old")?);
    let swapped = async {
        machine.make_dir(&old).await?;
        machine.unpack(&new, tar).await?;
        let mut swap = Swap { machine, root, new: &new, old: &old, own: name.as_bytes(), preserved, done: Vec::new() };
        let moved = swap.run().await;
        if moved.is_err() {
            swap.roll_back().await;
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
    preserved: &'a PreservedPaths,
    done: Vec<(Target, Target)>,
}

impl Swap<'_> {
    async fn run(&mut self) -> Result<()> {
        let mut waiting = VecDeque::from([Vec::new()]);
        while let Some(dir) = waiting.pop_front() {
            for path in self.names(self.root, &dir).await? {
                if path == self.own || self.preserved.exact.contains(&path) {
                    continue;
                }
                if self.preserved.above.contains(&path) && self.is_dir(self.root, &path).await? {
                    waiting.push_back(path);
                } else {
                    self.rename(at(self.root, &path)?, at(self.old, &path)?).await?;
                }
            }
            for path in self.names(self.new, &dir).await? {
                // An ancestor of a preserved path was not moved; its entries follow in a later round.
                let stays = self.preserved.exact.contains(&path) || waiting.contains(&path);
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

    /// Undoes all renames, the last first.
    async fn roll_back(&mut self) {
        for (from, to) in self.done.drain(..).rev() {
            if let Err(error) = self.machine.rename(&to, &from).await {
                tracing::error!(path = %from.path, %error, "cannot roll back a rename");
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

/// The target at a path below another; the same target if the path is empty.
fn at(base: &Target, path: &[u8]) -> Result<Target> {
    let path: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(path);
    let path: MachinePath = if path.is_empty() { base.path.clone() } else { base.path.join(path)? };
    Ok(Target { path, ..base.clone() })
}
