//! Snapshots: what is in the writable trees of a sandbox, to begin another one with.

use std::sync::Arc;

use bytes::Bytes;
use sandbar_machine::{Machine, MachinePath, Result, Target, collect, once};

use super::sandbox::{Sandbox, TREES, USER};

/// What one tree of a snapshot may hold.
const LONGEST_TREE: usize = 256 << 20;

/// The files of a sandbox at one time.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) id: String,
    pub(super) names: Vec<String>,
    pub(super) sandbox: String,
    trees: Vec<(&'static str, Bytes)>,
}

impl Snapshot {
    /// Saves what `user` can read of the trees.
    pub(super) async fn take(sandbox: &Sandbox, id: String, names: Vec<String>) -> Result<Self> {
        let mut trees = Vec::new();
        for tree in TREES {
            let root = Target::from(MachinePath::new(tree)?).user(USER);
            let packed = sandbox.machine.pack(&root, &[]).await?;
            trees.push((tree, collect(packed, LONGEST_TREE).await?));
        }
        Ok(Self { id, names, sandbox: sandbox.id.clone(), trees })
    }

    /// Puts the files into a machine, where they belong to `user`.
    pub(super) async fn restore(&self, machine: &Arc<dyn Machine>) -> Result<()> {
        for (tree, packed) in &self.trees {
            let root = Target::from(MachinePath::new(tree)?).user(USER);
            machine.unpack(&root, once(packed.clone())).await?;
        }
        Ok(())
    }

    /// Whether a template reference means this snapshot.
    pub(super) fn is(&self, reference: &str) -> bool {
        self.id == reference || self.names.iter().any(|name| name == reference)
    }
}
