//! Fills a workspace with the entries of a manifest: they are sent as streamed archives, several at once, all or nothing.

mod inline;
mod plan;
mod requests;
mod sources;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, TryStreamExt, future::BoxFuture, stream};
use sandbar_http::Proxies;
use sandbar_machine::{Machine, MachinePath, SandboxClient, Sha256, Target};
use serde::Serialize;

use self::plan::Wave;
use crate::{Entry, Result, SandboxError, SecretStore, SessionLimits, WorkspacePath, local::Roots};

/// Record of a file that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Path from the workspace's root.
    pub path: String,
    /// Digest of the bytes that were sent.
    pub sha256: Sha256,
    /// Number of bytes that were sent.
    pub bytes: u64,
    /// Commit of a repository. The digest is then that of the archive in which it was sent.
    pub revision: Option<String>,
}

/// A part of a source that was left out on purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Path that it would have had.
    pub path: String,
    /// Why it was left out.
    pub reason: String,
}

/// Result of filling a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Materialised {
    /// Files that were sent, in the order of the manifest.
    pub receipts: Vec<Receipt>,
    /// Parts of sources that were left out.
    pub left_out: Vec<LeftOut>,
}

impl From<Receipt> for Materialised {
    fn from(receipt: Receipt) -> Self {
        Self { receipts: vec![receipt], left_out: Vec::new() }
    }
}

/// Progress of filling a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgressEvent {
    /// An entry has begun.
    Begun {
        /// Path of the entry.
        path: String,
        /// The entry's `type`.
        kind: &'static str,
    },
    /// More bytes of an entry were sent.
    Moved {
        /// Path of the entry.
        path: String,
        /// Bytes so far.
        bytes: u64,
    },
    /// An entry is complete, or all inline entries together (path `.`).
    Done {
        /// Path of the entry.
        path: String,
        /// Number of complete entries.
        done: usize,
        /// Number of all entries.
        total: usize,
    },
}

/// Callback for progress. Filling waits for it, so it should be quick.
pub type Progress = Arc<dyn Fn(ProgressEvent) + Send + Sync>;

/// Parameters for filling a workspace.
pub(crate) struct Materialiser<'a> {
    pub(crate) machine: &'a dyn Machine,
    pub(crate) fetch: &'a Arc<dyn SandboxClient>,
    pub(crate) root: &'a MachinePath,
    pub(crate) user: Option<&'a str>,
    pub(crate) roots: Roots,
    pub(crate) secrets: &'a SecretStore,
    /// Whether fetching is restricted to public addresses.
    pub(crate) public_only: bool,
    pub(crate) proxies: &'a Proxies,
    pub(crate) limits: &'a SessionLimits,
    pub(crate) progress: Option<Progress>,
}

impl Materialiser<'_> {
    /// Fills the workspace. The first failure cancels all other work.
    pub(crate) async fn run(&self, entries: Vec<(WorkspacePath, &Entry)>) -> Result<Materialised> {
        let total = entries.len();
        let done = AtomicUsize::new(0);
        let mut all = Materialised::default();
        for wave in plan::waves(entries) {
            let arrived = self.wave(&wave, &done, total).await?;
            for part in arrived {
                all.receipts.extend(part.receipts);
                all.left_out.extend(part.left_out);
            }
        }
        Ok(all)
    }

    async fn wave(&self, wave: &Wave<'_>, done: &AtomicUsize, total: usize) -> Result<Vec<Materialised>> {
        let inline = (!wave.inline.is_empty()).then_some(Part::Inline(&wave.inline));
        let sources = wave.sources.iter().map(|(path, entry)| Part::Source(path, entry));
        let parts: Vec<Part<'_>> = inline.into_iter().chain(sources).collect();
        let mut work: Vec<BoxFuture<'_, Result<(usize, Materialised)>>> = Vec::with_capacity(parts.len());
        for (at, part) in parts.into_iter().enumerate() {
            work.push(Box::pin(async move {
                let (path, count, arrived) = match part {
                    Part::Inline(entries) => (".".to_owned(), entries.len(), self.inline(entries).await?),
                    Part::Source(path, entry) => (path.to_string(), 1, self.source(path, entry).await?),
                };
                let done = done.fetch_add(count, Ordering::Relaxed) + count;
                self.notify(|| ProgressEvent::Done { path, done, total });
                Ok((at, arrived))
            }));
        }
        // At the first error, the stream and all other work are dropped.
        let arriving = stream::iter(work).buffer_unordered(self.limits.manifest_entries.get());
        let mut arrived: Vec<(usize, Materialised)> = arriving.try_collect().await?;
        arrived.sort_by_key(|(at, _)| *at);
        Ok(arrived.into_iter().map(|(_, part)| part).collect())
    }

    async fn inline(&self, entries: &[(WorkspacePath, &Entry)]) -> Result<Materialised> {
        let mut all = Vec::new();
        for (group, members) in inline::batches(entries) {
            let (tar, receipts) = inline::archive(members);
            let unpacked = self.machine.unpack(&self.target(None, group)?, tar).await;
            unpacked.map_err(|cause| SandboxError::writing(self.root.to_string(), cause))?;
            all.append(&mut receipts.lock());
        }
        inline::in_order(&mut all, entries);
        Ok(Materialised { receipts: all, left_out: Vec::new() })
    }

    /// Target for a path in the workspace, confined to the root, with the group for the created files.
    fn target(&self, path: Option<&WorkspacePath>, group: Option<&str>) -> Result<Target> {
        let whole = match path {
            None => self.root.clone(),
            Some(path) => self.root.join(path.as_str()).map_err(|cause| SandboxError::writing(path.as_str(), cause))?,
        };
        let mut target = Target::from(whole).beneath(self.root.clone());
        target.user = self.user.map(str::to_owned);
        target.group = group.map(str::to_owned);
        Ok(target)
    }

    fn notify(&self, event: impl FnOnce() -> ProgressEvent) {
        if let Some(progress) = &self.progress {
            progress(event());
        }
    }

    fn deadline(&self) -> Duration {
        self.limits.transfer
    }
}

enum Part<'a> {
    Inline(&'a [(WorkspacePath, &'a Entry)]),
    Source(&'a WorkspacePath, &'a Entry),
}
