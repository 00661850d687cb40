//! A directory with its children.

use serde::{Deserialize, Serialize};

use super::{Attributes, Content, Entry, File, Kind, Shape};
use crate::manifest::Entries;

/// A directory with its children.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dir {
    /// Fields that every entry has.
    #[serde(skip)]
    pub attributes: Attributes,
    /// Entries in the directory. The manifest's reader reads them, since it knows their position in the manifest.
    #[serde(skip_deserializing)]
    pub children: Entries,
}

impl Default for Dir {
    fn default() -> Self {
        Self::new()
    }
}

impl Dir {
    /// An empty directory.
    #[must_use]
    pub fn new() -> Self {
        Self { attributes: Attributes::of(Shape::Directory), children: Entries::new() }
    }

    /// The same directory with one more entry.
    #[must_use]
    pub fn entry(mut self, path: impl AsRef<str>, entry: impl Into<Entry>) -> Self {
        self.children.insert(path, entry);
        self
    }

    /// The same directory with one more file.
    #[must_use]
    pub fn file(self, path: impl AsRef<str>, content: impl Into<Content>) -> Self {
        self.entry(path, File::new(content))
    }
}

impl Kind for Dir {
    const SHAPE: Shape = Shape::Directory;
}
