//! Checks untrusted archives and rewrites them as tar streams that are safe to unpack on a machine.
//!
//! [`check`] reads the whole archive before any of it is passed on: an archive is unpacked completely or not at all.

mod cleaner;
mod names;
mod out;
mod pass;
mod rules;
mod spool;
mod tarball;
mod zip;

#[cfg(test)]
mod tests;

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

pub use self::pass::{Checked, check};
pub(crate) use self::rules::stays_inside;
use crate::{Result, SandboxError, WorkspacePath};

/// Container and compression of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Format {
    /// Tar, not compressed.
    #[serde(rename = "tar")]
    Tar,
    /// Tar, compressed by gzip.
    #[serde(rename = "tar.gz", alias = "tgz")]
    TarGz,
    /// Tar, compressed by Zstandard.
    #[serde(rename = "tar.zst", alias = "tzst")]
    TarZst,
    /// Zip: each member is compressed by itself, and a directory is at the end.
    #[serde(rename = "zip")]
    Zip,
}

impl Format {
    /// The format that a file name's ending stands for.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        const ENDINGS: [(&str, Format); 7] = [
            (".tar", Format::Tar),
            (".tar.gz", Format::TarGz),
            (".tgz", Format::TarGz),
            (".tar.zst", Format::TarZst),
            (".tar.zstd", Format::TarZst),
            (".tzst", Format::TarZst),
            (".zip", Format::Zip),
        ];
        let name = name.to_ascii_lowercase();
        ENDINGS.into_iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, format)| format)
    }

    /// The format of data that begins with these bytes. A tar archive is recognised only with the first 262 bytes.
    #[must_use]
    pub fn from_magic(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, ..] => Some(Self::TarGz),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::TarZst),
            [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => Some(Self::Zip),
            _ if head.get(257..262) == Some(b"ustar") => Some(Self::Tar),
            _ => None,
        }
    }

    /// The format that the caller names in `scheme`, or else the one that the file name stands for.
    ///
    /// # Errors
    /// `invalid_compression_scheme` if the format is not known.
    pub fn of(name: &str, scheme: Option<&str>) -> Result<Self> {
        let found = match scheme {
            Some(scheme) => Self::from_name(&format!(".{scheme}")),
            None => Self::from_name(name),
        };
        found.ok_or_else(|| {
            let ending = name.rsplit('/').next().and_then(|last| last.split_once('.')).map_or("", |(_, ending)| ending);
            SandboxError::invalid_compression_scheme(name, scheme.unwrap_or(ending))
        })
    }
}

/// Limits of an archive. `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArchiveLimits {
    /// Bytes of the archive itself.
    #[serde(alias = "maxInputBytes")]
    pub max_input_bytes: Option<NonZeroU64>,
    /// Bytes of all files in the archive. Both the announced and the real size must be within this limit.
    #[serde(alias = "maxExtractedBytes")]
    pub max_extracted_bytes: Option<NonZeroU64>,
    /// Members: files, directories and links.
    #[serde(alias = "maxMembers")]
    pub max_members: Option<NonZeroU64>,
    /// Components of one path.
    #[serde(alias = "maxDepth")]
    pub max_depth: Option<NonZeroU64>,
}

impl ArchiveLimits {
    /// No limits except memory.
    pub const NONE: Self =
        Self { max_input_bytes: None, max_extracted_bytes: None, max_members: None, max_depth: None };
}

impl Default for ArchiveLimits {
    fn default() -> Self {
        Self {
            max_input_bytes: NonZeroU64::new(1 << 30),
            max_extracted_bytes: NonZeroU64::new(4 << 30),
            max_members: NonZeroU64::new(100_000),
            max_depth: NonZeroU64::new(64),
        }
    }
}

/// How links in an archive are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// An archive with any link is refused.
    #[default]
    Refuse,
    /// Symbolic links are accepted if their target is inside the unpacked directory, even through other links; hard
    /// links if their target is an earlier file of the archive. Other links are refused.
    KeepInside,
    /// Symbolic links are accepted with any target; hard links as above. For archives that this program made itself.
    KeepAll,
}

/// Which permissions members get. Set-id and sticky bits are always dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Modes {
    /// The archive's permissions; in addition the owner may always read and write (and enter directories).
    #[default]
    Usable,
    /// The archive's permissions.
    Exact,
}

/// Which names members may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Names {
    /// Names without backslashes and drive letters.
    #[default]
    Portable,
    /// Every name that Unix allows. For archives that this program made itself.
    Any,
}

/// How the members of an archive are handled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// How links are handled.
    pub links: Links,
    /// Which permissions members get.
    pub modes: Modes,
    /// Which names members may have.
    pub names: Names,
    /// Number of leading components removed from each path. A path with no more components than that is left out.
    pub strip_components: usize,
    /// Directory (after stripping) that becomes the root; members outside it are left out. It must be in the archive.
    pub subpath: Option<WorkspacePath>,
}

/// Totals of the members that an archive contributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Number of files, directories and links.
    pub members: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

/// Stands for the whole archive where an error names a member.
pub(crate) const WHOLE: &str = "(archive)";

/// Error about the archive as a whole.
fn broken(archive: &str, reason: impl Into<String>) -> SandboxError {
    SandboxError::archive_refused(archive, WHOLE, reason)
}
