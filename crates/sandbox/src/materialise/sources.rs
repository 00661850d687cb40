//! Sends entries whose content is elsewhere: files of the host, repositories, downloads.

use std::{
    fs::File as HostFile,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::StreamExt;
use parking_lot::Mutex;
use sandbar_machine::{ByteStream, MachineError, Sha256, Target};
use sha2::Digest;

use super::{LeftOut, Materialised, Materialiser, ProgressEvent, Receipt, requests};
use crate::{
    Attributes, Entry, EntryGroup, GitRepo, LocalDir, LocalFile, Op, RemoteDir, RemoteFile, Result, SandboxError,
    WorkspacePath,
    archive::{self, Links as ArchiveLinks, Policy},
    fetch::{self, GitRequest, HttpRequest},
    local::{self, Feed, TreeOptions},
    session::within,
};

/// Default limit of a local source, in bytes.
const LOCAL_LIMIT: u64 = 16 << 30;
/// Bytes of one entry between two progress reports.
const REPORT_EVERY: u64 = 4 << 20;

impl Materialiser<'_> {
    pub(super) async fn source(&self, path: &WorkspacePath, entry: &Entry) -> Result<Materialised> {
        if entry.is_redacted() {
            let field = format!("entries[{:?}]", path.as_str());
            let reason =
                "was saved without its host path or credential; give the manifest that the session was created with";
            return Err(SandboxError::manifest_invalid(field, reason));
        }
        self.notify(|| ProgressEvent::Begun { path: path.to_string(), kind: entry.kind() });
        let mode = entry.attributes().permissions.mode() & 0o777;
        let work = async {
            match entry {
                Entry::LocalFile(file) => self.local_file(path, file, mode).await,
                Entry::LocalDir(dir) => self.local_dir(path, dir, mode).await,
                Entry::GitRepo(repo) => self.git_repo(path, repo, mode).await,
                Entry::RemoteFile(file) => self.remote_file(path, file, mode).await,
                Entry::RemoteDir(dir) => self.remote_dir(path, dir, mode).await,
                // Mounts were made when the machine was created.
                _ => Ok(Materialised::default()),
            }
        };
        within(self.deadline(), Op::Materialize, path.as_str(), work).await?
    }

    async fn local_file(&self, path: &WorkspacePath, entry: &LocalFile, mode: u32) -> Result<Materialised> {
        let src = entry.src.display().to_string();
        let failed = |reason: String| SandboxError::local_file_read_error(&src, reason);
        let opened = self.roots.open(&entry.src).map_err(failed)?;
        let (parent, name) = split(path);
        let feed = local::file(HostFile::from(opened), name.into_bytes(), mode, LOCAL_LIMIT);
        let report = self.feed(path, self.target(parent.as_ref(), group(&entry.attributes))?, feed).await?;
        let report = report.map_err(|(_, reason)| failed(reason))?;
        let receipt = |(_, bytes, sha256)| Receipt { path: path.to_string(), sha256, bytes, revision: None };
        Ok(Materialised { receipts: report.files.into_iter().map(receipt).collect(), ..Materialised::default() })
    }

    async fn local_dir(&self, path: &WorkspacePath, entry: &LocalDir, mode: u32) -> Result<Materialised> {
        let target = self.target(Some(path), group(&entry.attributes))?;
        self.directory(&target, mode).await?;
        let Some(src) = &entry.src else { return Ok(Materialised::default()) };
        let shown = src.display().to_string();
        let failed = |child: &[u8], reason: String| {
            SandboxError::local_dir_read_error(&shown, String::from_utf8_lossy(child), reason)
        };
        let opened = self.roots.open(src).map_err(|reason| failed(b"", reason))?;
        let options = TreeOptions {
            ignore: entry.ignore.clone(),
            gitignore: entry.gitignore,
            links: entry.symlinks,
            max_bytes: entry.max_bytes.unwrap_or(LOCAL_LIMIT),
            files: self.limits.local_dir_files.get(),
        };
        let report = self.feed(path, target, local::tree(opened, options)).await?;
        let report = report.map_err(|(child, reason)| failed(&child, reason))?;
        let below = |child: Vec<u8>| format!("{path}/{}", String::from_utf8_lossy(&child));
        let receipts = report.files.into_iter().map(|(child, bytes, sha256)| Receipt {
            path: below(child),
            sha256,
            bytes,
            revision: None,
        });
        let left_out =
            report.left_out.into_iter().map(|(child, why)| LeftOut { path: below(child), reason: why.to_owned() });
        Ok(Materialised { receipts: receipts.collect(), left_out: left_out.collect() })
    }

    /// Sends a feed. If reading failed, that error is returned, not the machine's error about the broken stream.
    async fn feed(
        &self,
        path: &WorkspacePath,
        target: Target,
        feed: Feed,
    ) -> Result<Result<local::Report, (Vec<u8>, String)>> {
        let unpacked = self.machine.unpack(&target, self.counted(path, feed.tar)).await;
        let gone = |_| SandboxError::workspace_archive_write_error(path.as_str(), "the reading thread ended early");
        match (unpacked, feed.report.await.map_err(gone)?) {
            (Ok(()), report) => Ok(report),
            (Err(cause), Ok(_)) => Err(SandboxError::writing(path.as_str(), cause)),
            // The machine stopped reading because it refused something: its error came first.
            (Err(cause), Err((_, reason))) if reason == local::READER_GONE => {
                Err(SandboxError::writing(path.as_str(), cause))
            }
            (Err(_), report) => Ok(report),
        }
    }

    async fn git_repo(&self, path: &WorkspacePath, entry: &GitRepo, mode: u32) -> Result<Materialised> {
        let auth = entry.auth.as_deref().map(|name| self.secrets.get(name)).transpose()?;
        let request = GitRequest { public_only: self.public_only, ..requests::repository(entry, auth.cloned()) };
        let checkout = fetch::clone(self.fetch, &request).await?;
        let copied = async {
            let target = self.target(Some(path), group(&entry.attributes))?;
            self.directory(&target, mode).await?;
            let (tar, sums) = hashed(checkout.pack().await?);
            let unpacked = self.machine.unpack(&target, self.counted(path, tar)).await;
            unpacked.map_err(|cause| {
                SandboxError::git_copy_error(entry.shown_url(), path.as_str(), cause.code()).because(cause)
            })?;
            let sums = sums.lock();
            let (bytes, sha256) = (sums.1, Sha256(sums.0.clone().finalize().into()));
            let revision = Some(checkout.commit().to_owned());
            Ok::<_, SandboxError>(Receipt { path: path.to_string(), sha256, bytes, revision })
        };
        let copied = copied.await;
        if let Err(error) = checkout.close().await {
            tracing::warn!(%error, "cannot remove the machine that cloned a repository");
        }
        copied.map(Materialised::from)
    }

    /// The same request, with the session's restrictions and proxies.
    fn download(&self, request: HttpRequest) -> HttpRequest {
        HttpRequest { public_only: self.public_only, ..request }.proxies(self.proxies.clone())
    }

    async fn remote_file(&self, path: &WorkspacePath, entry: &RemoteFile, mode: u32) -> Result<Materialised> {
        let request = self.download(requests::file(entry, self.secrets)?);
        let download = fetch::download(&request).await?;
        let (sha256, bytes) = (download.sha256, download.bytes);
        let target = self.target(Some(path), group(&entry.attributes))?.mode(mode);
        let written = self.machine.write(&target, self.counted(path, download.into_stream())).await;
        written.map_err(|cause| SandboxError::writing(path.as_str(), cause))?;
        Ok(Receipt { path: path.to_string(), sha256, bytes, revision: None }.into())
    }

    async fn remote_dir(&self, path: &WorkspacePath, entry: &RemoteDir, mode: u32) -> Result<Materialised> {
        let request = self.download(requests::archive(entry, self.secrets)?);
        let download = fetch::download(&request).await?;
        let (sha256, bytes) = (download.sha256, download.bytes);
        let policy = Policy {
            links: ArchiveLinks::KeepInside,
            strip_components: entry.strip_components as usize,
            subpath: entry.subpath.as_deref().map(WorkspacePath::new).transpose()?,
            ..Policy::default()
        };
        let (format, limits) = (requests::format(entry)?, &self.limits.archive);
        let checked = archive::check(download.into_stream(), format, limits, &policy, &entry.shown_url()).await?;
        let target = self.target(Some(path), group(&entry.attributes))?;
        self.directory(&target, mode).await?;
        let unpacked = self.machine.unpack(&target, self.counted(path, checked.into_tar())).await;
        unpacked.map_err(|cause| SandboxError::writing(path.as_str(), cause))?;
        Ok(Receipt { path: path.to_string(), sha256, bytes, revision: None }.into())
    }

    /// Creates the directory of an entry, with the entry's own permissions.
    async fn directory(&self, target: &Target, mode: u32) -> Result<()> {
        let made = self.machine.make_dir(&target.clone().mode(mode)).await;
        made.map_err(|cause| SandboxError::writing(target.path.to_string(), cause))
    }

    /// The same stream with progress reports.
    fn counted(&self, path: &WorkspacePath, stream: ByteStream) -> ByteStream {
        let Some(progress) = self.progress.clone() else { return stream };
        let (path, bytes) = (path.to_string(), Arc::new(AtomicU64::new(0)));
        Box::pin(stream.inspect(move |piece: &Result<bytes::Bytes, MachineError>| {
            let Ok(piece) = piece else { return };
            let before = bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
            let after = before + piece.len() as u64;
            if before / REPORT_EVERY != after / REPORT_EVERY {
                progress(ProgressEvent::Moved { path: path.clone(), bytes: after });
            }
        }))
    }
}

fn group(attributes: &Attributes) -> Option<&str> {
    attributes.group.as_ref().map(EntryGroup::name)
}

/// Digest and number of bytes so far.
type Sums = Arc<Mutex<(sha2::Sha256, u64)>>;

/// The same stream, hashed and counted.
fn hashed(stream: ByteStream) -> (ByteStream, Sums) {
    let sums = Sums::default();
    let totals = sums.clone();
    let stream = stream.inspect(move |piece: &Result<bytes::Bytes, MachineError>| {
        if let Ok(piece) = piece {
            let mut sums = totals.lock();
            sums.0.update(piece);
            sums.1 += piece.len() as u64;
        }
    });
    (Box::pin(stream), sums)
}

/// Parent directory of an entry (`None` is the root), and its name.
fn split(path: &WorkspacePath) -> (Option<WorkspacePath>, String) {
    match path.as_str().rsplit_once('/') {
        None => (None, path.to_string()),
        Some((parent, name)) => (WorkspacePath::new(Path::new(parent).to_string_lossy()).ok(), name.to_owned()),
    }
}
