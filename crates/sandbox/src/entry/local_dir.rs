//! A directory of the host.

use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{Attributes, Kind, Shape};
use crate::manifest::{At, Fault};

/// What happens to symbolic links in a directory that is copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Symlinks {
    /// Those that stay inside the directory are kept, those that leave it are left out and reported.
    #[default]
    Preserve,
    /// All are left out and reported.
    Drop,
    /// Those that stay inside are kept; one that leaves it is enough to refuse the directory.
    Reject,
}

impl Symlinks {
    fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// A directory of the host, copied in when the session starts; without `src`, an empty one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalDir {
    /// What every entry can say about itself.
    #[serde(skip)]
    pub attributes: Attributes,
    /// Where it is on the host; a relative path begins at the manifest's directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src: Option<PathBuf>,
    /// What is left out: patterns as in a `.gitignore` file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<String>,
    /// Whether the `.gitignore` files in it are obeyed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gitignore: bool,
    /// What happens to symbolic links.
    #[serde(default, skip_serializing_if = "Symlinks::is_usual")]
    pub symlinks: Symlinks,
    /// The most that may be copied, in bytes.
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

    /// The same without what this pattern names, as in a `.gitignore` file.
    #[must_use]
    pub fn ignore(mut self, pattern: impl Into<String>) -> Self {
        self.ignore.push(pattern.into());
        self
    }

    /// The same without what the `.gitignore` files in it name.
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

    /// The same, refused when it holds more than this many bytes.
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
        let strange = self.ignore.iter().position(|pattern| pattern.contains(['\0', '\n']));
        let ignore =
            strange.map(|index| Fault::invalid(&at.field("ignore").index(index), "contains a line break or NUL"));
        src.into_iter().chain(ignore).collect()
    }

    fn forget(&mut self) -> bool {
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
