//! File operations of a session, each within the paths that the session may use.

use std::ffi::OsStr;

use bytes::Bytes;
use sandbar_machine::{ByteStream, DirEntry, MachineError, Target, once};
use serde_json::json;

use super::{SandboxSession, observed, streams::audited_if_open, within};
use crate::{
    Intent, Op, Result, SandboxError,
    image::{ImageOutcome, ViewImageArgs},
};

impl SandboxSession {
    /// Reads a whole file. For a file larger than the session's limit see [`read_stream`](Self::read_stream).
    ///
    /// # Errors
    /// `workspace_read_not_found`, `workspace_archive_read_error`, `limit_exceeded`.
    pub async fn read(&self, path: impl AsRef<OsStr>) -> Result<Bytes> {
        let shown = shown(&path);
        observed(&self.shared, Op::Read, json!({"path": shown, "user": self.user}), async {
            let target = target(self, path, Intent::Read)?;
            let limit = self.shared.limits.read_bytes;
            let read = async { sandbar_machine::collect(self.shared.machine.read(&target).await?, limit).await };
            let read = within(self.shared.limits.transfer, Op::Read, &shown, read).await?;
            read.map_err(|cause| match cause {
                MachineError::Exhausted { .. } => SandboxError::limit_exceeded(&shown, limit as u64, limit as u64 + 1),
                other => SandboxError::reading(&shown, other),
            })
        })
        .await
    }

    /// Reads a file as a stream.
    ///
    /// # Errors
    /// `workspace_read_not_found`, `workspace_archive_read_error`.
    pub async fn read_stream(&self, path: impl AsRef<OsStr>) -> Result<ByteStream> {
        let shown = shown(&path);
        let span = self.shared.begin(Op::Read, json!({"path": shown, "user": self.user, "stream": true}));
        let opened = async {
            let target = target(self, path, Intent::Read)?;
            let read = self.shared.machine.read(&target);
            let read = within(self.shared.limits.operation, Op::Read, &shown, read).await?;
            read.map_err(|cause| SandboxError::reading(&shown, cause))
        };
        audited_if_open(opened.await, span, shown.clone(), self.shared.limits.operation)
    }

    /// Reads a whole file as text.
    ///
    /// # Errors
    /// As [`read`](Self::read), and `workspace_archive_read_error` if the file is not UTF-8.
    pub async fn read_text(&self, path: impl AsRef<OsStr>) -> Result<String> {
        let shown = shown(&path);
        let bytes = self.read(path).await?;
        String::from_utf8(bytes.into())
            .map_err(|cause| SandboxError::workspace_archive_read_error(shown, "it is not UTF-8 text").because(cause))
    }

    /// Replaces or creates a file atomically, and creates its missing parents.
    ///
    /// # Errors
    /// `workspace_archive_write_error`, `invalid_manifest_path`.
    pub async fn write(&self, path: impl AsRef<OsStr>, content: impl Into<Bytes>) -> Result<()> {
        let content = content.into();
        let data = json!({"path": shown(&path), "user": self.user, "bytes": content.len()});
        put(self, path, once(content), data).await
    }

    /// Writes a file from a stream. If the stream ends with an error, the old file stays.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_stream(&self, path: impl AsRef<OsStr>, content: ByteStream) -> Result<()> {
        let data = json!({"path": shown(&path), "user": self.user, "stream": true});
        put(self, path, content, data).await
    }

    /// Lists a directory, sorted by name.
    ///
    /// # Errors
    /// `workspace_read_not_found`, `workspace_archive_read_error`.
    pub async fn list(&self, path: impl AsRef<OsStr>) -> Result<Vec<DirEntry>> {
        let shown = shown(&path);
        observed(&self.shared, Op::List, json!({"path": shown, "user": self.user}), async {
            let target = target(self, path, Intent::Read)?;
            let list = self.shared.machine.list(&target);
            let listed = within(self.shared.limits.operation, Op::List, &shown, list).await?;
            listed.map_err(|cause| SandboxError::reading(&shown, cause))
        })
        .await
    }

    /// The entry at a path, without following links; `None` if the path does not exist.
    ///
    /// # Errors
    /// `workspace_archive_read_error`; a missing path is not an error.
    pub async fn stat(&self, path: impl AsRef<OsStr>) -> Result<Option<DirEntry>> {
        let shown = shown(&path);
        observed(&self.shared, Op::Stat, json!({"path": shown, "user": self.user}), async {
            let target = target(self, path, Intent::Read)?;
            let stat = self.shared.machine.stat(&target);
            let found = within(self.shared.limits.operation, Op::Stat, &shown, stat).await?;
            found.map_err(|cause| SandboxError::reading(&shown, cause))
        })
        .await
    }

    /// Creates a directory and its missing parents; an existing directory is not an error.
    ///
    /// # Errors
    /// `workspace_archive_write_error`.
    pub async fn make_dir(&self, path: impl AsRef<OsStr>) -> Result<()> {
        let shown = shown(&path);
        observed(&self.shared, Op::MakeDir, json!({"path": shown, "user": self.user}), async {
            let target = target(self, path, Intent::Write)?;
            let make = self.shared.machine.make_dir(&target);
            let made = within(self.shared.limits.operation, Op::MakeDir, &shown, make).await?;
            made.map_err(|cause| SandboxError::writing(&shown, cause))
        })
        .await
    }

    /// Removes a file, a link (never its target) or a whole directory; a missing path is not an error. The root itself
    /// cannot be removed.
    ///
    /// # Errors
    /// `workspace_archive_write_error`.
    pub async fn remove(&self, path: impl AsRef<OsStr>) -> Result<()> {
        let shown = shown(&path);
        observed(&self.shared, Op::Remove, json!({"path": shown, "user": self.user}), async {
            let target = target(self, path, Intent::Write)?;
            if self.shared.paths.root().is_within(&target.path) {
                return Err(SandboxError::workspace_archive_write_error(
                    &shown,
                    "the workspace itself cannot be removed",
                ));
            }
            let remove = self.shared.machine.remove(&target);
            let removed = within(self.shared.limits.transfer, Op::Remove, &shown, remove).await?;
            removed.map_err(|cause| SandboxError::writing(&shown, cause))
        })
        .await
    }

    /// An image for a model. If there is no image, the outcome is the text that the model reads instead.
    ///
    /// # Errors
    /// `invalid_manifest_path` for a path outside the allowed paths, `session_closed`.
    pub async fn view_image(&self, args: &ViewImageArgs) -> Result<ImageOutcome> {
        observed(&self.shared, Op::ViewImage, json!({"path": args.path, "user": self.user}), async {
            self.shared.live()?;
            self.shared.images.view(&*self.shared.machine, &self.shared.paths, args, self.user.as_deref()).await
        })
        .await
    }
}

async fn put(
    session: &SandboxSession,
    path: impl AsRef<OsStr>,
    content: ByteStream,
    data: serde_json::Value,
) -> Result<()> {
    let shown = shown(&path);
    observed(&session.shared, Op::Write, data, async {
        let target = target(session, path, Intent::Write)?;
        let write = session.shared.machine.write(&target, content);
        let written = within(session.shared.limits.transfer, Op::Write, &shown, write).await?;
        written.map_err(|cause| SandboxError::writing(&shown, cause))
    })
    .await
}

/// Resolves a path for the user that this session acts as.
pub(super) fn target(session: &SandboxSession, path: impl AsRef<OsStr>, intent: Intent) -> Result<Target> {
    session.shared.live()?;
    let mut target = session.shared.paths.target(path, intent)?;
    target.user.clone_from(&session.user);
    Ok(target)
}

fn shown(path: &impl AsRef<OsStr>) -> String {
    path.as_ref().to_string_lossy().into_owned()
}
