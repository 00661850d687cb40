//! Paths on a machine, checked once when they are created, and targets of file operations.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::{Expected, MachineError, Result};

/// An absolute path inside a machine: no `.` or `..`, no empty part, no NUL byte, at most 4,095 bytes. It need not be UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SerializedPath", into = "SerializedPath")]
pub struct MachinePath(OsString);

impl MachinePath {
    /// Checks and normalises a path: `//a/./b/` becomes `/a/b`.
    ///
    /// # Errors
    /// [`MachineError::Invalid`] that names the path and the fault, for a relative path, `..`, a NUL byte or more than 4,095
    /// bytes.
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
                b".." => return bad("contains `..`; give the resolved path"),
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

    /// The usual directory of the agent's files, `/workspace`. That of a machine is [`Features::workspace`].
    ///
    /// [`Features::workspace`]: crate::Features::workspace
    #[must_use]
    pub fn workspace() -> Self {
        Self("/workspace".into())
    }

    /// The home directory of the default user, `/home/agent`.
    #[must_use]
    pub fn home() -> Self {
        Self("/home/agent".into())
    }

    /// Appends a relative path.
    ///
    /// # Errors
    /// [`MachineError::Invalid`] if `relative` is absolute or contains `..`, or the result is too long.
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

    /// The parent directory; `None` for `/`.
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

    /// Whether this path is `root` or below it. Only the text is compared; symbolic links are not resolved.
    #[must_use]
    pub fn is_within(&self, root: &Self) -> bool {
        Path::new(&self.0).starts_with(Path::new(&root.0))
    }

    /// The path as a string of the operating system.
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

/// Serialized form of a path: text if it is UTF-8, else an array of bytes.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum SerializedPath {
    Text(String),
    Bytes { bytes: Vec<u8> },
}

impl TryFrom<SerializedPath> for MachinePath {
    type Error = MachineError;

    fn try_from(saved: SerializedPath) -> Result<Self> {
        match saved {
            SerializedPath::Text(text) => Self::new(text),
            SerializedPath::Bytes { bytes } => Self::new(OsString::from_vec(bytes)),
        }
    }
}

impl From<MachinePath> for SerializedPath {
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

/// Target of a file operation: a path, the user that performs the operation, and the directory that it must not leave.
///
/// Symbolic links in the parent directories are followed as on the machine itself, except the magic links of `/proc`. With
/// [`beneath`](Self::beneath), a link that leads out of that directory is refused. A link in the last part of a path that is
/// written, removed or renamed is never followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Path on the machine.
    pub path: MachinePath,
    /// User that performs the operation; `None` is the machine's default user.
    pub user: Option<String>,
    /// Group of a file or directory that is created; `None` is the user's group. Only machines with several users support
    /// groups.
    pub group: Option<String>,
    /// Directory that the resolved path must not leave, neither by its text nor through symbolic links.
    pub beneath: Option<MachinePath>,
    /// Permission bits of a file or directory that is created. `None`: a replaced file keeps its bits, a new file gets 0644,
    /// a new directory 0755.
    pub mode: Option<u32>,
    /// Condition for a write; `None`: no condition. If it is not met, nothing is written and the error is
    /// [`Changed`](crate::MachineError::Changed).
    pub expected: Option<Expected>,
}

impl Target {
    /// Sets the user that performs the operation.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Sets the group of a file or directory that is created.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Refuses the operation if the path leads out of `root`.
    #[must_use]
    pub fn beneath(mut self, root: MachinePath) -> Self {
        self.beneath = Some(root);
        self
    }

    /// Writes only if this condition is met.
    #[must_use]
    pub fn expecting(mut self, expected: Expected) -> Self {
        self.expected = Some(expected);
        self
    }

    /// Sets the permission bits of a file or directory that is created, at most `0o777`: set-id bits are never granted.
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
    fn a_serialized_path_is_text_if_it_is_utf_8() {
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
