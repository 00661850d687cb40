//! How a declared workspace becomes a live one: entries travel as streamed archives, several at once, all or nothing.

mod inline;
mod plan;
mod requests;
mod sources;

use std::{
    sync::{
        Arc, PoisonError,
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

/// Proof of what arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Where, from the workspace's root.
    pub path: String,
    /// The digest of what was sent.
    pub sha256: Sha256,
    /// How much that was.
    pub bytes: u64,
    /// The commit, for a repository; its digest is that of the archive it came as.
    pub revision: Option<String>,
}

/// Something of a source that stayed behind on purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Where it would have been.
    pub path: String,
    /// Why it is not.
    pub reason: String,
}

/// What filling a workspace came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Materialised {
    /// Every file that was sent, in the order of the manifest.
    pub receipts: Vec<Receipt>,
    /// What was not.
    pub left_out: Vec<LeftOut>,
}

/// How far filling a workspace is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgressEvent {
    /// An entry is on its way.
    Begun {
        /// Which.
        path: String,
        /// What it is, as its `type` says.
        kind: &'static str,
    },
    /// More of an entry has arrived.
    Moved {
        /// Which.
        path: String,
        /// Bytes so far.
        bytes: u64,
    },
    /// An entry, or all inline ones together, is complete.
    Done {
        /// Which.
        path: String,
        /// Entries complete by now.
        done: usize,
        /// Entries in all.
        total: usize,
    },
}

/// Who hears how far filling a workspace is. It is called on the way, so it should be quick.
pub type Progress = Arc<dyn Fn(ProgressEvent) + Send + Sync>;

/// Everything that entries need to become files.
pub(crate) struct Materialiser<'a> {
    pub(crate) machine: &'a dyn Machine,
    pub(crate) fetch: &'a Arc<dyn SandboxClient>,
    pub(crate) root: &'a MachinePath,
    pub(crate) user: Option<&'a str>,
    pub(crate) roots: Roots,
    pub(crate) secrets: &'a SecretStore,
    /// Whether what is fetched may come from public addresses only.
    pub(crate) public_only: bool,
    pub(crate) proxies: &'a Proxies,
    pub(crate) limits: &'a SessionLimits,
    pub(crate) progress: Option<Progress>,
}

impl Materialiser<'_> {
    /// Fills the workspace. The first failure ends everything else that is on its way.
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
                self.tell(|| ProgressEvent::Done { path, done, total });
                Ok((at, arrived))
            }));
        }
        // At the first error the stream, and with it all other work, is dropped.
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
            all.append(&mut receipts.lock().unwrap_or_else(PoisonError::into_inner));
        }
        inline::in_order(&mut all, entries);
        Ok(Materialised { receipts: all, left_out: Vec::new() })
    }

    /// A place in the workspace that must not be left, and the group that what is made there belongs to.
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

    fn tell(&self, event: impl FnOnce() -> ProgressEvent) {
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
