//! Places outside the workspace that a session may use, and where on the host they come from.

use std::path::{Component, Path, PathBuf};

use sandbar_machine::{Access, MachinePath};
use serde::{Deserialize, Serialize};

use crate::Grant;

/// One granted place. Where on the host it comes from is only ever said by trusted code, never by a manifest that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathGrant {
    /// Where, in the machine.
    pub path: MachinePath,
    /// Whether it may only be read.
    #[serde(default)]
    pub read_only: bool,
    /// What it is, for people and models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The directory of the host that is shown there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<PathBuf>,
}

impl PathGrant {
    /// A place that may be read and written.
    #[must_use]
    pub fn new(path: MachinePath) -> Self {
        Self { path, read_only: false, description: None, host_path: None }
    }

    /// The same place, only to be read.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// The same place with a word about what it is.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// The same place, showing a directory of the host.
    #[must_use]
    pub fn host_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.host_path = Some(path.into());
        self
    }

    /// What the file operations of a session need to know.
    #[must_use]
    pub fn grant(&self) -> Grant {
        let access = if self.read_only { Access::ReadOnly } else { Access::ReadWrite };
        Grant { path: self.path.clone(), access }
    }

    /// Why this cannot be granted, if it cannot.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        if self.path == MachinePath::root() {
            return Some("`/` cannot be granted; name a directory");
        }
        self.host_path.as_deref().and_then(host_fault)
    }
}

fn host_fault(path: &Path) -> Option<&'static str> {
    let text = path.to_string_lossy();
    if text.starts_with("//") || text.starts_with("\\\\") {
        return Some("the host path is a network or device path");
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Some("the host path contains `..`");
    }
    if !path.is_absolute() {
        return Some("the host path must be absolute");
    }
    if path.components().count() == 1 {
        return Some("the whole host cannot be granted; name a directory");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_paths_are_absolute_and_not_everything() {
        let table = [
            ("/srv/data", true),
            ("/", false),
            ("/.", false),
            ("data", false),
            ("", false),
            ("/srv/../etc", false),
            ("//host/share", false),
            ("\\\\host\\share", false),
        ];
        for (path, fine) in table {
            let grant = PathGrant::new(MachinePath::workspace()).host_path(path);
            assert_eq!(grant.fault().is_none(), fine, "{path}");
        }
        assert!(PathGrant::new(MachinePath::root()).fault().is_some());
    }
}
