//! The directories of the host that a manifest may read from, and how a file below them is opened.

use std::{
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use sandbar_host_files::{ConfinedDir, READING};

/// Directories that sources may be in: the manifest's own directory, and those that trusted code granted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roots {
    base: PathBuf,
    granted: Vec<PathBuf>,
}

impl Roots {
    /// Allows sources below `base`, the directory that relative sources start from.
    pub(crate) fn new(base: impl Into<PathBuf>) -> Self {
        Self { base: base.into(), granted: Vec::new() }
    }

    /// The same with more directories.
    pub(crate) fn grant(mut self, directories: impl IntoIterator<Item = PathBuf>) -> Self {
        self.granted.extend(directories);
        self
    }

    /// Absolute path of a source.
    pub(crate) fn resolve(&self, src: &Path) -> PathBuf {
        lexical(&self.base.join(src))
    }

    /// Opens a source without following any symbolic link below the directory that allows it. FIFOs do not block.
    pub(crate) fn open(&self, src: &Path) -> Result<OwnedFd, String> {
        let whole = self.resolve(src);
        let roots = std::iter::once(&self.base).chain(&self.granted);
        let root = roots.filter(|root| whole.starts_with(lexical(root))).max_by_key(|root| root.as_os_str().len());
        let Some(root) = root else {
            let base = self.base.display();
            return Err(format!("outside_base_dir: it is neither below {base} nor below a granted path; grant it"));
        };
        let below = whole.strip_prefix(lexical(root)).unwrap_or(Path::new(""));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir =
            rustix::fs::open(root, flags, Mode::empty()).map_err(|error| format!("{}: {error}", root.display()))?;
        if below.as_os_str().is_empty() {
            return Ok(dir);
        }
        let opened = ConfinedDir::from(dir).open_at(below.as_os_str().as_bytes(), READING);
        opened.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::LOOP) => "symlink_not_supported: a symbolic link is on the way".to_owned(),
            Some(Errno::XDEV) => "outside_base_dir: it leads out of the allowed directory".to_owned(),
            Some(Errno::NOENT) => "it does not exist".to_owned(),
            _ => error.to_string(),
        })
    }
}

/// The path without `.` and `..`, resolved by its text alone.
fn lexical(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            other => clean.push(other),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_below_an_allowed_directory() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        std::fs::create_dir_all(at("base/sub")).unwrap();
        std::fs::create_dir_all(at("granted")).unwrap();
        std::fs::write(at("base/sub/file"), "x").unwrap();
        std::fs::write(at("granted/file"), "x").unwrap();
        std::fs::write(at("secret"), "x").unwrap();
        std::os::unix::fs::symlink(at("secret"), at("base/link")).unwrap();
        std::os::unix::fs::symlink(at("base/sub"), at("base/dirlink")).unwrap();
        let roots = Roots::new(at("base")).grant([at("granted")]);
        for fine in ["sub/file", "./sub/../sub/file", ".", "", "../granted/file"] {
            roots.open(Path::new(fine)).unwrap_or_else(|reason| panic!("{fine}: {reason}"));
        }
        roots.open(&at("granted/file")).unwrap();
        roots.open(&at("base/sub")).unwrap();
        for (bad, reason) in [
            ("../secret", "outside_base_dir"),
            ("/etc/passwd", "outside_base_dir"),
            ("link", "symlink_not_supported"),
            ("dirlink/file", "symlink_not_supported"),
            ("missing", "does not exist"),
        ] {
            let error = roots.open(Path::new(bad)).unwrap_err();
            assert!(error.contains(reason), "{bad}: {error}");
        }
    }
}
