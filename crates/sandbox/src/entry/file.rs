//! A file whose content is in the manifest.

use serde::{Deserialize, Serialize};

use super::{Attributes, Content, Kind, Shape};

/// A file whose content is in the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Fields that every entry has.
    #[serde(skip)]
    pub attributes: Attributes,
    /// Content of the file.
    pub content: Content,
}

impl File {
    /// A file with this content, text or bytes.
    pub fn new(content: impl Into<Content>) -> Self {
        Self { attributes: Attributes::of(Shape::File), content: content.into() }
    }
}

impl Kind for File {
    const SHAPE: Shape = Shape::File;
}
