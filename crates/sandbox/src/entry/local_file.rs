//! A file of the host.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Attributes, Kind, Shape};
use crate::manifest::{At, Fault};

/// A file of the host, copied in when the session starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalFile {
    /// Fields that every entry has.
    #[serde(skip)]
    pub attributes: Attributes,
    /// Path on the host, relative to the manifest's directory or absolute. Empty only if the entry is redacted.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub src: PathBuf,
}

fn is_empty(src: &Path) -> bool {
    src.as_os_str().is_empty()
}

impl LocalFile {
    /// This file of the host.
    pub fn new(src: impl Into<PathBuf>) -> Self {
        Self { attributes: Attributes::of(Shape::File), src: src.into() }
    }
}

impl Kind for LocalFile {
    const SHAPE: Shape = Shape::File;

    fn faults(&self, at: &At<'_>) -> Vec<Fault> {
        let reason = if is_empty(&self.src) {
            (!self.attributes.redacted).then_some("is empty or not given")
        } else {
            super::local_dir::src_fault(&self.src)
        };
        reason.map(|reason| Fault::invalid(&at.field("src"), reason)).into_iter().collect()
    }

    fn redact(&mut self) -> bool {
        !is_empty(&std::mem::take(&mut self.src))
    }
}
