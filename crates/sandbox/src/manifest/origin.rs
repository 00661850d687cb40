//! Where a manifest comes from, and what it may therefore ask of the host.

use super::{At, Manifest};
use crate::{Entry, Result, SandboxError};

/// Where a manifest comes from; later variants are trusted less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// Built by code.
    Built,
    /// Read from text; the caller vouches for its mounts.
    Trusted,
    /// Read from text of unknown origin.
    Read,
}

/// Why a writable mount is refused.
pub(super) const WRITABLE: &str =
    "a manifest that was read cannot mount writable; allow it with `--allow-mounts`, or in code with `trust_mounts`";

/// Two manifests are equal when they say the same, wherever they come from.
impl PartialEq for Manifest {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            root,
            entries,
            environment,
            users,
            groups,
            extra_path_grants,
            remote_mount_command_allowlist,
            base_dir,
            origin: _,
            private_addresses: _,
            unrestored,
            faults,
        } = self;
        *root == other.root
            && *entries == other.entries
            && *environment == other.environment
            && *users == other.users
            && *groups == other.groups
            && *extra_path_grants == other.extra_path_grants
            && *remote_mount_command_allowlist == other.remote_mount_command_allowlist
            && *base_dir == other.base_dir
            && *unrestored == other.unrestored
            && *faults == other.faults
    }
}

impl Manifest {
    /// Whether this, or a part that was merged into it, was read from text and not made by code.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.origin > Origin::Built
    }

    /// The same, for whose mounts the caller answers: a manifest that was read may then show directories of the host
    /// writable. For trusted code, and for people who say so.
    #[must_use]
    pub fn trust_mounts(mut self) -> Self {
        self.origin = self.origin.min(Origin::Trusted);
        self
    }

    /// The same, for whose addresses the caller answers: a manifest that was read may then fetch repositories and files from
    /// this host and its private networks too. For trusted code, and for people who say so.
    #[must_use]
    pub fn allow_private_addresses(mut self) -> Self {
        self.private_addresses = true;
        self
    }

    /// Whether its repositories and downloads may come from addresses that are not public.
    #[must_use]
    pub fn may_use_private_addresses(&self) -> bool {
        self.private_addresses || !self.is_read()
    }
}

/// Whether the manifest asks for nothing of the host that text may not ask for. What code has built may ask for
/// everything. What was read may not mount writable unless its [mounts are trusted](Manifest::trust_mounts), and may name
/// sources on the host only if the directory they must stay in is known.
///
/// # Errors
/// `mount_config_invalid` for a mount, `manifest_invalid` for another source: the first in the order of the manifest.
pub(crate) fn check_sources(manifest: &Manifest) -> Result<()> {
    if !manifest.is_read() {
        return Ok(());
    }
    for (path, entry) in manifest.flatten() {
        let has_source = match entry {
            Entry::LocalFile(file) => !file.src.as_os_str().is_empty(),
            Entry::LocalDir(dir) => dir.src.is_some(),
            Entry::Mount(mount) => mount.source.is_some(),
            _ => false,
        };
        if !has_source {
            continue;
        }
        let mount = if let Entry::Mount(mount) = entry { Some(mount) } else { None };
        if manifest.base_dir.is_none() {
            let reason = "a manifest that was read can only use the host's files when it is known where it belongs: \
                          read it with `Manifest::load`, or give it a `base_dir`";
            return Err(match mount {
                Some(_) => SandboxError::mount_config_invalid(path.as_str(), reason),
                None => SandboxError::manifest_invalid(
                    At::top("entries").key(path.as_str()).field("src").to_string(),
                    reason,
                ),
            });
        }
        if manifest.origin == Origin::Read && mount.is_some_and(|mount| !mount.read_only) {
            return Err(SandboxError::mount_config_invalid(path.as_str(), WRITABLE));
        }
    }
    Ok(())
}
