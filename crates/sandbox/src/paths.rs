//! The paths that a session may use on its machine: its root, additional grants, and the rules for path syntax.
//!
//! These rules check only the text of a path. Symbolic links are checked by the machine, which resolves every
//! [`Target`] beneath its root.

use std::{
    ffi::OsStr,
    fmt,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use sandbar_machine::{Access, MachinePath, Target};
use serde::{Deserialize, Serialize};

use crate::{PathFault, Result, SandboxError};

/// A relative path that cannot leave the workspace, normalised and never empty. It is checked once, at construction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkspacePath(String);

impl WorkspacePath {
    /// Checks and normalises: `./a//b/` becomes `a/b`. Absolute paths, `..`, backslashes, drives and empty paths are refused.
    ///
    /// # Errors
    /// `invalid_manifest_path`, with the fault as its reason.
    pub fn new(path: impl AsRef<str>) -> Result<Self> {
        let given = path.as_ref();
        let refuse = |fault| Err(SandboxError::invalid_manifest_path(given, fault));
        if is_windows(given) {
            return refuse(PathFault::WindowsPath);
        }
        if given.starts_with('/') {
            return refuse(PathFault::Absolute);
        }
        if given.contains('\0') || given.len() > 4000 {
            return refuse(PathFault::Malformed);
        }
        if given.split('/').any(|part| part == "..") {
            return refuse(PathFault::EscapeRoot);
        }
        let parts: Vec<&str> = given.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        if parts.is_empty() {
            return refuse(PathFault::Empty);
        }
        if parts.iter().any(|part| part.len() > 255) {
            return refuse(PathFault::Malformed);
        }
        Ok(Self(parts.join("/")))
    }

    /// Appends a path to this one.
    #[must_use]
    pub fn join(&self, below: &Self) -> Self {
        Self(format!("{}/{}", self.0, below.0))
    }

    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The components of the path, from the top.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// The ancestors of the path and the path itself, from the top.
    pub(crate) fn and_above(&self) -> impl Iterator<Item = Self> {
        let ends = self.0.char_indices().filter(|(_, c)| *c == '/').map(|(at, _)| at);
        ends.chain([self.0.len()]).map(|end| Self(self.0[..end].to_owned()))
    }

    /// Whether this path is `other` or below it.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        self.0 == other.0 || self.0.strip_prefix(&other.0).is_some_and(|rest| rest.starts_with('/'))
    }
}

impl fmt::Display for WorkspacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for WorkspacePath {
    type Error = SandboxError;

    fn try_from(path: String) -> Result<Self> {
        Self::new(path)
    }
}

impl From<WorkspacePath> for String {
    fn from(path: WorkspacePath) -> Self {
        path.0
    }
}

/// `C:\x`, `C:/x`, `\\host\share`, or any backslash at all.
fn is_windows(path: &str) -> bool {
    let bytes = path.as_bytes();
    let drive = bytes.len() >= 2 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':';
    let rooted = drive && (bytes.len() == 2 || matches!(bytes[2], b'/' | b'\\'));
    rooted || path.contains('\\')
}

/// A path that the file operations may use in addition to the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The path on the machine.
    pub path: MachinePath,
    /// Whether the path may be written.
    pub access: Access,
}

/// The purpose for which a path is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Reading.
    Read,
    /// Writing.
    Write,
}

/// The root of a session and its grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    root: MachinePath,
    grants: Vec<Grant>,
}

impl Paths {
    /// A root without grants.
    #[must_use]
    pub fn new(root: MachinePath) -> Self {
        Self { root, grants: Vec::new() }
    }

    /// Adds grants.
    #[must_use]
    pub fn grant(mut self, grants: impl IntoIterator<Item = Grant>) -> Self {
        self.grants.extend(grants);
        self
    }

    /// Replaces the root.
    pub(crate) fn moved_to(self, root: MachinePath) -> Self {
        Self { root, ..self }
    }

    /// The session's root.
    #[must_use]
    pub fn root(&self) -> &MachinePath {
        &self.root
    }

    /// Resolves a path. Relative paths are below the root; `..` is allowed while the result stays inside the root or a
    /// grant. The target contains the directory it must not leave, so that the machine refuses symbolic links that lead
    /// out.
    ///
    /// # Errors
    /// `invalid_manifest_path` if the path is outside the root and every grant, `workspace_archive_write_error` for a
    /// write to a read-only grant.
    pub fn target(&self, path: impl AsRef<OsStr>, intent: Intent) -> Result<Target> {
        let given = path.as_ref();
        let path = self.absolute(given)?;
        // The longest grant wins, so that a writable grant inside a read-only one stays writable.
        let grants = self.grants.iter().filter(|grant| path.is_within(&grant.path));
        let grant = grants.max_by_key(|grant| grant.path.as_bytes().len());
        let inside = path.is_within(&self.root);
        let base = match grant {
            Some(grant) if !inside || grant.path.is_within(&self.root) => {
                if intent == Intent::Write && grant.access == Access::ReadOnly {
                    let reason = "read_only_extra_path_grant";
                    return Err(SandboxError::workspace_archive_write_error(path.to_string(), reason));
                }
                &grant.path
            }
            _ if inside => &self.root,
            _ => {
                let fault =
                    if given.as_bytes().starts_with(b"/") { PathFault::Absolute } else { PathFault::EscapeRoot };
                return Err(SandboxError::invalid_manifest_path(given.to_string_lossy(), fault));
            }
        };
        Ok(Target::from(path).beneath(base.clone()))
    }

    /// The path as a model sees it: relative to the root if it is inside the root, absolute otherwise.
    #[must_use]
    pub fn shown(&self, path: &MachinePath) -> String {
        let whole = path.to_string();
        let Some(rest) = whole.strip_prefix(&self.root.to_string()).filter(|_| path.is_within(&self.root)) else {
            return whole;
        };
        let rest = rest.trim_start_matches('/');
        if rest.is_empty() { ".".to_owned() } else { rest.to_owned() }
    }

    fn absolute(&self, given: &OsStr) -> Result<MachinePath> {
        let refuse = |fault| SandboxError::invalid_manifest_path(given.to_string_lossy(), fault);
        let bytes = given.as_bytes();
        if bytes.is_empty() {
            return Err(refuse(PathFault::Empty));
        }
        if given.to_str().is_some_and(|text| is_windows(text) && !text.starts_with('/') && text.as_bytes()[1] == b':') {
            return Err(refuse(PathFault::WindowsPath));
        }
        let start: &[u8] = if bytes.starts_with(b"/") { b"" } else { self.root.as_bytes() };
        let mut parts: Vec<&[u8]> = Vec::new();
        for part in start.split(|byte| *byte == b'/').chain(bytes.split(|byte| *byte == b'/')) {
            match part {
                b"" | b"." => {}
                b".." => {
                    parts.pop().ok_or_else(|| refuse(PathFault::EscapeRoot))?;
                }
                name => parts.push(name),
            }
        }
        let joined = [b"/".as_slice(), &parts.join(&b'/')].concat();
        MachinePath::new(std::ffi::OsString::from_vec(joined)).map_err(|_| refuse(PathFault::Malformed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str) -> MachinePath {
        MachinePath::new(path).unwrap()
    }

    #[test]
    fn workspace_paths_are_normalised_or_refused() {
        let table: &[(&str, Result<&str, PathFault>)] = &[
            ("a", Ok("a")),
            ("./a//b/.", Ok("a/b")),
            ("a b/ü", Ok("a b/ü")),
            ("...", Ok("...")),
            ("", Err(PathFault::Empty)),
            (".", Err(PathFault::Empty)),
            ("/a", Err(PathFault::Absolute)),
            ("../a", Err(PathFault::EscapeRoot)),
            ("a/../b", Err(PathFault::EscapeRoot)),
            ("C:\\a", Err(PathFault::WindowsPath)),
            ("C:/a", Err(PathFault::WindowsPath)),
            ("c:", Err(PathFault::WindowsPath)),
            ("a\\b", Err(PathFault::WindowsPath)),
            ("\\\\host\\share", Err(PathFault::WindowsPath)),
            ("a\0b", Err(PathFault::Malformed)),
        ];
        for (given, expected) in table {
            match (WorkspacePath::new(given), expected) {
                (Ok(path), Ok(text)) => assert_eq!(path.as_str(), *text),
                (Err(SandboxError::InvalidPath { reason, .. }), Err(fault)) => {
                    assert_eq!(reason, *fault, "{given:?}")
                }
                (other, _) => panic!("{given:?}: {other:?}"),
            }
        }
        assert!(WorkspacePath::new("a".repeat(256)).is_err());
    }

    #[test]
    fn a_path_resolves_only_inside_the_root_and_the_grants() {
        let grants = [
            Grant { path: at("/data"), access: Access::ReadOnly },
            Grant { path: at("/data/out"), access: Access::ReadWrite },
        ];
        let paths = Paths::new(at("/workspace")).grant(grants);
        let table = [
            ("a/b", Intent::Write, Ok(("/workspace/a/b", "/workspace"))),
            (".", Intent::Read, Ok(("/workspace", "/workspace"))),
            ("a/../b", Intent::Write, Ok(("/workspace/b", "/workspace"))),
            ("/workspace/x", Intent::Write, Ok(("/workspace/x", "/workspace"))),
            ("../workspace/x", Intent::Write, Ok(("/workspace/x", "/workspace"))),
            ("/data/x", Intent::Read, Ok(("/data/x", "/data"))),
            ("/data/out/x", Intent::Write, Ok(("/data/out/x", "/data/out"))),
            ("/data/x", Intent::Write, Err("workspace_archive_write_error")),
            ("/data/out/../x", Intent::Write, Err("workspace_archive_write_error")),
            ("../x", Intent::Read, Err("invalid_manifest_path")),
            ("/etc/passwd", Intent::Read, Err("invalid_manifest_path")),
            ("/workspace2", Intent::Read, Err("invalid_manifest_path")),
            ("../../../x", Intent::Read, Err("invalid_manifest_path")),
            ("", Intent::Read, Err("invalid_manifest_path")),
            ("C:\\x", Intent::Read, Err("invalid_manifest_path")),
        ];
        for (given, intent, expected) in table {
            let target = paths.target(given, intent);
            match expected {
                Ok((path, beneath)) => {
                    assert_eq!(target.unwrap(), Target::from(at(path)).beneath(at(beneath)), "{given}")
                }
                Err(code) => assert_eq!(target.unwrap_err().code(), code, "{given}"),
            }
        }
    }

    #[test]
    fn names_are_shown_from_the_root() {
        let paths = Paths::new(at("/workspace"));
        assert_eq!(paths.shown(&at("/workspace/a/b")), "a/b");
        assert_eq!(paths.shown(&at("/workspace")), ".");
        assert_eq!(paths.shown(&at("/workspace2/a")), "/workspace2/a");
    }
}
