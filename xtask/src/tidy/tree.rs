//! The repository's files as rules see them: read once, with Rust files already taken apart.

use std::{collections::BTreeSet, fs, io, path::Path};

use super::source::Source;

/// One file. Paths are relative to the repository and use `/`.
pub(super) struct File {
    pub(super) path: String,
    /// Empty when the file is not UTF-8.
    pub(super) text: String,
    /// For Rust files.
    pub(super) source: Option<Source>,
}

impl File {
    fn new(path: String, text: String) -> Self {
        let source = path.ends_with(".rs").then(|| Source::parse(&text));
        Self { path, text, source }
    }

    /// The folder of `crates` it is in.
    pub(super) fn crate_name(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split_once('/').map(|(name, _)| name)
    }

    /// Whether it is part of what is built, rather than a test, a benchmark, an example or a build script.
    pub(super) fn is_production(&self) -> bool {
        let in_src = match self.crate_name() {
            Some(name) => self.path.starts_with(&format!("crates/{name}/src/")),
            None => self.path.starts_with("xtask/src/"),
        };
        in_src && !self.path.ends_with("/tests.rs") && !self.path.contains("/tests/")
    }
}

/// All files of the repository that git would track.
pub(super) struct Tree {
    files: Vec<File>,
    /// Every file and every folder that has one.
    paths: BTreeSet<String>,
}

impl Tree {
    pub(super) fn read(root: &Path) -> io::Result<Self> {
        let ignored = fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
        let ignored: Vec<&str> = ignored.lines().map(|line| line.trim().trim_matches('/')).collect();
        let mut files = Vec::new();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(root.join(&folder))? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                let kind = entry.file_type()?;
                if path == ".git" || ignored.contains(&path.as_str()) {
                    continue;
                }
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_file() {
                    let text = String::from_utf8(fs::read(entry.path())?).unwrap_or_default();
                    files.push(File::new(path, text));
                }
            }
        }
        Ok(Self::new(files))
    }

    fn new(files: Vec<File>) -> Self {
        let mut paths = BTreeSet::new();
        for file in &files {
            let mut path = file.path.as_str();
            paths.insert(path.to_owned());
            while let Some((folder, _)) = path.rsplit_once('/') {
                paths.insert(folder.to_owned());
                path = folder;
            }
        }
        Self { files, paths }
    }

    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        Self::new(files.iter().map(|(path, text)| File::new((*path).to_owned(), (*text).to_owned())).collect())
    }

    pub(super) fn files(&self) -> &[File] {
        &self.files
    }

    pub(super) fn has(&self, path: &str) -> bool {
        path.is_empty() || self.paths.contains(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_benches_and_build_scripts_are_not_production() {
        let production = |path: &str| File::new(path.to_owned(), String::new()).is_production();
        assert!(production("crates/guest/src/reap.rs"));
        assert!(production("crates/machine/src/posix/list.rs"));
        assert!(production("xtask/src/main.rs"));
        for path in ["crates/guest/build.rs", "crates/cli/tests/exec.rs", "crates/cli/src/tests.rs", "fuzz/x.rs"] {
            assert!(!production(path), "{path}");
        }
    }

    #[test]
    fn folders_exist_because_a_file_is_in_them() {
        let tree = Tree::of(&[("docs/guide/first.md", "")]);
        assert!(tree.has("docs/guide") && tree.has("docs") && tree.has(""));
        assert!(!tree.has("docs/other"));
    }
}
