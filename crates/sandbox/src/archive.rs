//! Archives from anywhere, made safe: whatever comes in, what goes on to a machine is a tar stream of plain members that
//! stay inside.
//!
//! [`check`] looks at everything before anything is passed on, so that an archive is unpacked whole or not at all.

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

/// What an archive is and how it is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Format {
    /// Not compressed.
    #[serde(rename = "tar")]
    Tar,
    /// Compressed by gzip.
    #[serde(rename = "tar.gz", alias = "tgz")]
    TarGz,
    /// Compressed by Zstandard.
    #[serde(rename = "tar.zst", alias = "tzst")]
    TarZst,
    /// Each member by itself, with a directory at the end.
    #[serde(rename = "zip")]
    Zip,
}

impl Format {
    /// What a file of this name is expected to be, by its ending.
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

    /// What bytes that begin like this are; a tar archive shows itself only after 262 of them.
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

    /// What the caller says it is, or else what its name says.
    ///
    /// # Errors
    /// `invalid_compression_scheme` when neither is known.
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

/// How much an archive may be. `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArchiveLimits {
    /// Bytes of the archive itself.
    #[serde(alias = "maxInputBytes")]
    pub max_input_bytes: Option<NonZeroU64>,
    /// Bytes of all files in it. What the archive says and what it really holds must both be within.
    #[serde(alias = "maxExtractedBytes")]
    pub max_extracted_bytes: Option<NonZeroU64>,
    /// Members: files, directories and links.
    #[serde(alias = "maxMembers")]
    pub max_members: Option<NonZeroU64>,
    /// Parts of one path.
    #[serde(alias = "maxDepth")]
    pub max_depth: Option<NonZeroU64>,
}

impl ArchiveLimits {
    /// No limits but those of memory.
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

/// What becomes of links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// An archive with any link is refused.
    #[default]
    Refuse,
    /// Symbolic links stay if what they lead to is inside, whatever else is there; hard links if they lead to an earlier
    /// file of the archive. Others are refused.
    KeepInside,
    /// Symbolic links stay wherever they lead; hard links as above. For archives this program has made itself.
    KeepAll,
}

/// Which permissions members get. Set-id and sticky bits are always dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Modes {
    /// The archive's, and the owner may always read and write (and enter directories).
    #[default]
    Usable,
    /// The archive's.
    Exact,
}

/// Which names members may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Names {
    /// Without backslashes and drive letters.
    #[default]
    Portable,
    /// Whatever a Unix file can be called. For archives this program has made itself.
    Any,
}

/// What is done with the members of an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// What becomes of links.
    pub links: Links,
    /// Which permissions members get.
    pub modes: Modes,
    /// Which names they may have.
    pub names: Names,
    /// How many leading parts are taken off each path. What has no more parts than that is left out.
    pub strip_components: usize,
    /// Only what is below this directory (after stripping) is kept, named from there. It must be in the archive.
    pub subpath: Option<WorkspacePath>,
}

/// What was found in an archive and kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Files, directories and links.
    pub members: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

/// What stands for the archive as a whole where a member's name is wanted.
pub(crate) const WHOLE: &str = "(archive)";

/// The archive itself is not right.
fn broken(archive: &str, reason: impl Into<String>) -> SandboxError {
    SandboxError::archive_refused(archive, WHOLE, reason)
}
