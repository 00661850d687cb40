//! Where a thing is on a machine: an absolute, normalised path, checked once when it is made.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::{Expected, MachineError, Result};

/// An absolute path inside a machine: no `.` or `..`, no empty part, no NUL, at most 4,095 bytes. Names need not be UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Saved", into = "Saved")]
pub struct MachinePath(OsString);

impl MachinePath {
    /// Checks and normalises a path: `//a/./b/` becomes `/a/b`; a relative path or a `..` is refused.
    ///
    /// # Errors
    /// [`MachineError::Invalid`], naming the path and the fault.
    pub fn new(path: impl AsRef<OsStr>) -> Result<Self> {
        let given = path.as_ref();
        let bad = |reason: &str| Err(MachineError::invalid(format!("path {given:?}"), reason));
        let bytes = given.as_bytes();
        if !bytes.starts_with(b"/") {
            return bad("must be absolute, like /workspace/file");
        }
        if bytes.contains(&0) {
            return bad("contains a NUL byte");
        }
        if bytes.len() > 4095 {
            return bad("is longer than 4095 bytes");
        }
        let mut clean = Vec::with_capacity(bytes.len());
        for part in bytes.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => return bad("contains `..`, which must be resolved before it is asked for"),
                name => {
                    clean.push(b'/');
                    clean.extend_from_slice(name);
                }
            }
        }
        if clean.is_empty() {
            clean.push(b'/');
        }
        Ok(Self(OsString::from_vec(clean)))
    }

    /// The root of the machine, `/`.
    #[must_use]
    pub fn root() -> Self {
        Self("/".into())
    }

    /// Where the agent's files are, `/workspace`.
    #[must_use]
    pub fn workspace() -> Self {
        Self("/workspace".into())
    }

    /// The agent's private home, `/home/agent`.
    #[must_use]
    pub fn home() -> Self {
        Self("/home/agent".into())
    }

    /// The path below this one.
    ///
    /// # Errors
    /// [`MachineError::Invalid`] when `relative` is absolute or contains `..`.
    pub fn join(&self, relative: impl AsRef<OsStr>) -> Result<Self> {
        let relative = relative.as_ref();
        if relative.as_bytes().starts_with(b"/") {
            return Err(MachineError::invalid(format!("path {relative:?}"), "must be relative here"));
        }
        let mut joined = self.0.clone();
        joined.push("/");
        joined.push(relative);
        Self::new(joined)
    }

    /// The directory this path is in; `None` for `/`.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let parent = Path::new(&self.0).parent()?;
        Some(Self(parent.as_os_str().to_owned()))
    }

    /// The last part; `None` for `/`.
    #[must_use]
    pub fn name(&self) -> Option<&OsStr> {
        Path::new(&self.0).file_name()
    }

    /// Whether this path is `root` or below it, by its letters alone.
    #[must_use]
    pub fn is_within(&self, root: &Self) -> bool {
        Path::new(&self.0).starts_with(Path::new(&root.0))
    }

    /// The path as the system sees it.
    #[must_use]
    pub fn as_os_str(&self) -> &OsStr {
        &self.0
    }

    /// The path's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Display for MachinePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())
    }
}

impl fmt::Debug for MachinePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl TryFrom<OsString> for MachinePath {
    type Error = MachineError;

    fn try_from(path: OsString) -> Result<Self> {
        Self::new(path)
    }
}

impl TryFrom<&str> for MachinePath {
    type Error = MachineError;

    fn try_from(path: &str) -> Result<Self> {
        Self::new(path)
    }
}

/// The saved form: text where that is possible, else its bytes, so that the common case can be read by people.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Saved {
    Text(String),
    Bytes { bytes: Vec<u8> },
}

impl TryFrom<Saved> for MachinePath {
    type Error = MachineError;

    fn try_from(saved: Saved) -> Result<Self> {
        match saved {
            Saved::Text(text) => Self::new(text),
            Saved::Bytes { bytes } => Self::new(OsString::from_vec(bytes)),
        }
    }
}

impl From<MachinePath> for Saved {
    fn from(path: MachinePath) -> Self {
        match path.0.into_string() {
            Ok(text) => Self::Text(text),
            Err(other) => Self::Bytes { bytes: other.into_vec() },
        }
    }
}

impl From<&MachinePath> for OsString {
    fn from(path: &MachinePath) -> Self {
        path.0.clone()
    }
}

impl From<MachinePath> for OsString {
    fn from(path: MachinePath) -> Self {
        path.0
    }
}

/// What a file operation is about: a path, whose identity it runs under, and the directory it must not leave.
///
/// Symbolic links on the way are followed as the machine itself would, never `/proc` magic links; with
/// [`beneath`](Self::beneath) a link that leads out of that directory is refused. The last part of a path that is
/// written, removed or renamed is never followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where.
    pub path: MachinePath,
    /// Whose identity; `None` is the machine's own default user.
    pub user: Option<String>,
    /// The group that what is made belongs to; `None` is the user's own. Only machines with several users know groups.
    pub group: Option<String>,
    /// The directory that resolution may not leave, not even through symbolic links.
    pub beneath: Option<MachinePath>,
    /// Permission bits for a file or directory that is made; `None` keeps a replaced file's own, else 0644 or 0755.
    pub mode: Option<u32>,
    /// What must be there for a write to take place; anything when `None`. A write that finds something else is
    /// [`Changed`](crate::MachineError::Changed), and nothing is written.
    pub expected: Option<Expected>,
}

impl Target {
    /// The same target under another identity.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// The same target, whose making belongs to a group.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// The same target, refused if its path leads out of `root`.
    #[must_use]
    pub fn beneath(mut self, root: MachinePath) -> Self {
        self.beneath = Some(root);
        self
    }

    /// The same target, written only if this is what is there.
    #[must_use]
    pub fn expecting(mut self, expected: Expected) -> Self {
        self.expected = Some(expected);
        self
    }

    /// The same target, made with these permission bits (`0o777` at most: set-id bits are never granted).
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = Some(mode);
        self
    }
}

impl From<MachinePath> for Target {
    fn from(path: MachinePath) -> Self {
        Self { path, user: None, group: None, beneath: None, mode: None, expected: None }
    }
}

impl From<&MachinePath> for Target {
    fn from(path: &MachinePath) -> Self {
        Self::from(path.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalised_or_refused() {
        let table: &[(&[u8], Option<&[u8]>)] = &[
            (b"/", Some(b"/")),
            (b"//a/./b/", Some(b"/a/b")),
            (b"/a b/\xff\n", Some(b"/a b/\xff\n")),
            (b"/...", Some(b"/...")),
            (b"", None),
            (b"a", None),
            (b"./a", None),
            (b"/a/../b", None),
            (b"/..", None),
            (b"/a\0b", None),
            (&[b'/'; 5000], None),
        ];
        for (given, expected) in table {
            let path = MachinePath::new(OsStr::from_bytes(given));
            assert_eq!(path.as_ref().ok().map(MachinePath::as_bytes), *expected, "{given:?}");
            if expected.is_none() {
                assert_eq!(path.unwrap_err().code(), "invalid");
            }
        }
    }

    #[test]
    fn a_path_below_another_stays_below_it() {
        let workspace = MachinePath::workspace();
        assert_eq!(workspace.join("a//b").unwrap(), MachinePath::new("/workspace/a/b").unwrap());
        assert!(workspace.join("../a").is_err());
        assert!(workspace.join("/a").is_err());
        assert!(workspace.join("a").unwrap().is_within(&workspace));
        assert!(!MachinePath::new("/workspace2").unwrap().is_within(&workspace));
        assert!(workspace.is_within(&MachinePath::root()));
    }

    #[test]
    fn the_root_has_neither_name_nor_parent() {
        assert_eq!(MachinePath::root().parent(), None);
        assert_eq!(MachinePath::root().name(), None);
        assert_eq!(MachinePath::workspace().parent(), Some(MachinePath::root()));
        assert_eq!(MachinePath::workspace().name(), Some(OsStr::new("workspace")));
    }

    #[test]
    fn a_saved_path_is_text_where_it_can_be() {
        let text = MachinePath::new("/wörk").unwrap();
        assert_eq!(serde_json::to_string(&text).unwrap(), "\"/wörk\"");
        let bytes = MachinePath::new(OsStr::from_bytes(b"/\xff")).unwrap();
        assert_eq!(serde_json::to_string(&bytes).unwrap(), r#"{"bytes":[47,255]}"#);
        for path in [text, bytes] {
            let saved = serde_json::to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<MachinePath>(&saved).unwrap(), path);
        }
        assert!(serde_json::from_str::<MachinePath>("\"../x\"").is_err());
        assert!(serde_json::from_str::<MachinePath>(r#"{"bytes":[47,46,46]}"#).is_err());
    }
}
