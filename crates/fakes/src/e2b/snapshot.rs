//! Snapshots: the writable trees of a sandbox as archives, from which new sandboxes are created.

use std::sync::Arc;

use bytes::Bytes;
use sandbar_machine::{Machine, MachinePath, Result, Target, collect, once};

use super::sandbox::{Sandbox, TREES, USER};

/// Size limit of one tree's archive.
const LONGEST_TREE: usize = 256 << 20;

/// A snapshot.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) id: String,
    pub(super) names: Vec<String>,
    pub(super) sandbox: String,
    trees: Vec<(&'static str, Bytes)>,
}

impl Snapshot {
    /// Archives the files that `user` can read.
    pub(super) async fn take(sandbox: &Sandbox, id: String, names: Vec<String>) -> Result<Self> {
        let mut trees = Vec::new();
        for tree in TREES {
            let root = Target::from(MachinePath::new(tree)?).user(USER);
            let packed = sandbox.machine.pack(&root, &[]).await?;
            trees.push((tree, collect(packed, LONGEST_TREE).await?));
        }
        Ok(Self { id, names, sandbox: sandbox.id.clone(), trees })
    }

    /// Unpacks the archives into a machine; all files then belong to `user`.
    pub(super) async fn restore(&self, machine: &Arc<dyn Machine>) -> Result<()> {
        for (tree, packed) in &self.trees {
            let root = Target::from(MachinePath::new(tree)?).user(USER);
            machine.unpack(&root, once(packed.clone())).await?;
        }
        Ok(())
    }

    /// Whether a template reference is the id or a name of this snapshot.
    pub(super) fn is(&self, reference: &str) -> bool {
        self.id == reference || self.names.iter().any(|name| name == reference)
    }
}
