//! Patches to the files of a session: each is applied completely or not at all.

use serde_json::json;
use tracing::Instrument;

use super::{SandboxSession, observed};
use crate::{
    Op, Result, SandboxError,
    patch::{self, Applied, Change, Patch, PatchOptions, Recovered},
};

/// The patches that were applied in a session's workspace.
#[derive(Clone, Copy, Debug)]
pub struct SessionPatches<'a>(&'a SandboxSession);

impl SandboxSession {
    /// Applies a patch completely or not at all, also if the caller drops this future.
    ///
    /// # Errors
    /// The `apply_patch_…` codes; no file is changed then.
    pub async fn apply_patch(&self, text: &str, mut options: PatchOptions) -> Result<Applied> {
        options.user = options.user.or_else(|| self.user.clone());
        options.journal = options.journal.or_else(|| self.shared.patch_journal.clone());
        options.mask = options.mask.or_else(|| self.shared.secrets.mask());
        let span = self.shared.begin(Op::ApplyPatch, json!({"bytes": text.len(), "user": options.user}));
        let applied = async {
            self.shared.live()?;
            let patch = Patch::parse(text)?;
            let shared = self.shared.clone();
            run_to_completion(async move {
                let _one_at_a_time = shared.patching.clone().lock_owned().await;
                patch::apply(&*shared.machine, &shared.paths, &patch, &options).await
            })
            .await
        };
        let applied = applied.instrument(span.traced().clone()).await;
        let data = applied.as_ref().map_or(json!({}), patch_facts);
        span.finish(&applied, data);
        applied
    }

    /// The patches that were applied before.
    #[must_use]
    pub fn patches(&self) -> SessionPatches<'_> {
        SessionPatches(self)
    }
}

impl SessionPatches<'_> {
    /// Rolls back a patch that was interrupted in an earlier session of this workspace; `None` if there is none, or the
    /// session has no [journal](crate::SessionOptions::patch_journal). Applying a patch does this first.
    ///
    /// # Errors
    /// As [`patch::recover`].
    pub async fn recover(self) -> Result<Option<Recovered>> {
        let Some(journal) = &self.0.shared.patch_journal else { return Ok(None) };
        self.0.shared.live()?;
        let limits = PatchOptions::default().limits;
        let _one_at_a_time = self.0.shared.patching.lock().await;
        patch::recover(&*self.0.shared.machine, &self.0.shared.paths, journal, &limits).await
    }

    /// Undoes a patch, if its files are unchanged since.
    ///
    /// # Errors
    /// `apply_patch_invalid_diff` if a file has changed since; no file is changed then.
    pub async fn undo(self, applied: &Applied) -> Result<()> {
        observed(&self.0.shared, Op::ApplyPatch, json!({"undo": true}), async {
            self.0.shared.live()?;
            let (shared, applied) = (self.0.shared.clone(), applied.clone());
            run_to_completion(async move {
                let _one_at_a_time = shared.patching.clone().lock_owned().await;
                let recorded = shared.patch_journal.as_ref().map(|journal| (&shared.paths, journal));
                patch::undo_recorded(&*shared.machine, &applied, recorded).await
            })
            .await
        })
        .await
    }
}

/// Completes the work even if the caller is dropped: a patch must never be applied in part. Every request in it has its
/// own timeout.
async fn run_to_completion<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    match tokio::spawn(work).await {
        Ok(done) => done,
        Err(cause) => Err(SandboxError::apply_patch_write_error("the patch", false).because(cause)),
    }
}

/// The audit facts of a patch: which files, without their content.
fn patch_facts(applied: &Applied) -> serde_json::Value {
    let kind = |change: &Change| match (&change.before, &change.after) {
        (None, _) => "created",
        (Some(_), None) => "deleted",
        (Some(_), Some(_)) => "updated",
    };
    let changes = applied.delta.iter().map(|change| json!({"path": change.path, "kind": kind(change)}));
    json!({"changes": changes.collect::<Vec<_>>()})
}
