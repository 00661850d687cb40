//! A directory of the host.

use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{Attributes, Kind, Shape};
use crate::manifest::{At, Fault};

/// How symbolic links in a copied directory are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Symlinks {
    /// Links that stay inside the directory are copied; links that leave it are left out and reported.
    #[default]
    Preserve,
    /// All links are left out and reported.
    Drop,
    /// Links that stay inside the directory are copied; if one leaves it, the directory is refused.
    Reject,
}

impl Symlinks {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A directory of the host, copied in when the session starts. Without `src`, it is empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalDir {
    /// Fields that every entry has.
    #[serde(skip)]
    pub attributes: Attributes,
    /// Path on the host, relative to the manifest's directory or absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src: Option<PathBuf>,
    /// Patterns of files to leave out, as in a `.gitignore` file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<String>,
    /// Whether the `.gitignore` files in the directory apply.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gitignore: bool,
    /// How symbolic links are handled.
    #[serde(default, skip_serializing_if = "Symlinks::is_default")]
    pub symlinks: Symlinks,
    /// Limit of the copy, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

impl LocalDir {
    /// This directory of the host.
    pub fn new(src: impl Into<PathBuf>) -> Self {
        Self {
            attributes: Attributes::of(Shape::Directory),
            src: Some(src.into()),
            ignore: Vec::new(),
            gitignore: false,
            symlinks: Symlinks::default(),
            max_bytes: None,
        }
    }

    /// The same without files that match this pattern, as in a `.gitignore` file.
    #[must_use]
    pub fn ignore(mut self, pattern: impl Into<String>) -> Self {
        self.ignore.push(pattern.into());
        self
    }

    /// The same without files that the directory's `.gitignore` files exclude.
    #[must_use]
    pub fn obey_gitignore(mut self) -> Self {
        self.gitignore = true;
        self
    }

    /// The same with another rule for symbolic links.
    #[must_use]
    pub fn symlinks(mut self, symlinks: Symlinks) -> Self {
        self.symlinks = symlinks;
        self
    }

    /// The same, refused if it holds more than this many bytes.
    #[must_use]
    pub fn max_bytes(mut self, limit: u64) -> Self {
        self.max_bytes = Some(limit);
        self
    }
}

impl Kind for LocalDir {
    const SHAPE: Shape = Shape::Directory;

    fn faults(&self, at: &At<'_>) -> Vec<Fault> {
        let src = self.src.as_deref().and_then(src_fault).map(|reason| Fault::invalid(&at.field("src"), reason));
        let malformed = self.ignore.iter().position(|pattern| pattern.contains(['\0', '\n']));
        let ignore =
            malformed.map(|index| Fault::invalid(&at.field("ignore").index(index), "contains a line break or NUL"));
        src.into_iter().chain(ignore).collect()
    }

    fn redact(&mut self) -> bool {
        self.src.take().is_some()
    }
}

/// Why a path of the host cannot be a source, if it cannot.
pub(super) fn src_fault(src: &Path) -> Option<&'static str> {
    let bytes = src.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Some("is empty; write \".\" for the manifest's own directory");
    }
    bytes.contains(&0).then_some("contains a NUL byte")
}
