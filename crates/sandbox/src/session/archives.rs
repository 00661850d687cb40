//! Archives into and out of a workspace: an archive is checked completely before the first file is changed.

use std::ffi::{OsStr, OsString};

use sandbar_machine::ByteStream;
use serde_json::json;

use super::{
    SandboxSession,
    files::target,
    observed,
    streams::audited_if_open,
    swap::{PreservedPaths, replace},
    within,
};
use crate::{
    ArchiveLimits, Intent, Op, Result, SandboxError, WorkspacePath,
    archive::{self, Format, Links, Modes, Names, Policy},
};

/// An archive for [`SandboxSession::extract`].
pub struct Extract {
    name: String,
    bytes: ByteStream,
    format: Option<Format>,
    limits: Option<ArchiveLimits>,
    policy: Policy,
}

impl Extract {
    /// An archive with its name, which also determines the format unless [`format`](Self::format) sets it.
    pub fn new(name: impl Into<String>, bytes: ByteStream) -> Self {
        Self { name: name.into(), bytes, format: None, limits: None, policy: Policy::default() }
    }

    /// Sets the format.
    #[must_use]
    pub fn format(mut self, format: Format) -> Self {
        self.format = Some(format);
        self
    }

    /// Sets limits for this archive.
    #[must_use]
    pub fn limits(mut self, limits: ArchiveLimits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Sets which members are allowed, and how their paths are changed.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }
}

impl SandboxSession {
    /// Unpacks an archive below a directory, which is created if missing. The whole archive is checked before a file is
    /// written.
    ///
    /// # Errors
    /// `invalid_compression_scheme`, `archive_refused`, `limit_exceeded`, `workspace_archive_write_error`.
    pub async fn extract(&self, into: impl AsRef<OsStr>, given: Extract) -> Result<()> {
        let shown = into.as_ref().to_string_lossy().into_owned();
        let data = json!({"path": shown, "archive": given.name, "user": self.user});
        observed(&self.shared, Op::Extract, data, async {
            let target = target(self, into, Intent::Write)?;
            let format = given.format.map_or_else(|| Format::of(&given.name, None), Ok)?;
            let limits = given.limits.as_ref().unwrap_or(&self.shared.limits.archive);
            let work = async {
                let checked = archive::check(given.bytes, format, limits, &given.policy, &given.name).await?;
                let unpacked = self.shared.machine.unpack(&target, checked.into_tar()).await;
                unpacked.map_err(|cause| SandboxError::writing(&shown, cause))
            };
            within(self.shared.limits.transfer, Op::Extract, &shown, work).await?
        })
        .await
    }

    /// The workspace as one archive, without ephemeral entries, mounts and grants.
    ///
    /// # Errors
    /// `workspace_archive_read_error`; also as the last item of the stream, if a file cannot be read.
    pub async fn persist_workspace(&self) -> Result<ByteStream> {
        let root = self.shared.paths.root().clone();
        let span = self.shared.begin(Op::PersistWorkspace, json!({"workspace_root": root.to_string()}));
        let opened = async {
            let target = target(self, root.as_os_str(), Intent::Read)?;
            let skip: Vec<OsString> = preserved_paths(self).iter().map(|path| path.as_str().into()).collect();
            let pack = self.shared.machine.pack(&target, &skip);
            let packed = within(self.shared.limits.operation, Op::PersistWorkspace, "the workspace", pack).await?;
            packed.map_err(|cause| SandboxError::reading(root.to_string(), cause))
        };
        audited_if_open(opened.await, span, root.to_string(), self.shared.limits.operation)
    }

    /// Replaces everything in the workspace, except ephemeral entries, mounts and grants, by an archive from
    /// [`persist_workspace`](Self::persist_workspace). The archive is checked completely and unpacked into a temporary
    /// directory before a file is moved; if that fails, the workspace is unchanged. The replacement completes even if
    /// the caller drops this future.
    ///
    /// # Errors
    /// `archive_refused`, `limit_exceeded`, `workspace_archive_write_error`.
    pub async fn hydrate_workspace(&self, tar: ByteStream) -> Result<()> {
        let root = self.shared.paths.root().clone();
        observed(&self.shared, Op::HydrateWorkspace, json!({"workspace_root": root.to_string()}), async {
            let target = target(self, root.as_os_str(), Intent::Write)?;
            // An archive of a workspace may contain what a workspace may: absolute links of a virtual environment, any
            // name.
            let policy = Policy { links: Links::KeepAll, modes: Modes::Exact, names: Names::Any, ..Policy::default() };
            let check = archive::check(tar, Format::Tar, &self.shared.limits.hydrate, &policy, "workspace.tar");
            let checked = within(self.shared.limits.transfer, Op::HydrateWorkspace, "the workspace", check).await??;
            let (shared, preserved) = (self.shared.clone(), PreservedPaths::new(&preserved_paths(self)));
            let limit = self.shared.limits.transfer;
            let swap = async move { replace(&*shared.machine, &target, &preserved, checked.into_tar()).await };
            let swapped = tokio::spawn(within(limit, Op::HydrateWorkspace, "the workspace", swap)).await;
            let swapped = swapped.map_err(|cause| {
                let reason = "the replacement did not complete";
                SandboxError::workspace_archive_write_error(root.to_string(), reason).because(cause)
            });
            swapped??.map_err(|cause| SandboxError::writing(root.to_string(), cause))
        })
        .await
    }
}

/// Paths that are neither saved nor replaced: ephemeral entries, and mounts and grants inside the workspace.
fn preserved_paths(session: &SandboxSession) -> Vec<WorkspacePath> {
    let manifest = session.manifest();
    let mut preserved = manifest.ephemeral_paths();
    let mounted = manifest.mounts().unwrap_or_default().into_iter().map(|(_, path, _)| path);
    let granted = manifest.extra_path_grants.iter().map(|grant| grant.path.clone());
    for path in mounted.chain(granted) {
        let inside = path.is_within(session.shared.paths.root()).then(|| session.shared.paths.shown(&path));
        preserved.extend(inside.and_then(|path| WorkspacePath::new(path).ok()));
    }
    preserved
}
