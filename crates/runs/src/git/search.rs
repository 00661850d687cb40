//! The search for git repositories below a directory: by handles, without following links, bounded.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs::{self, File},
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::fs::{Dir, FileType, Mode, OFlags};
use sandbar_host_files::{ConfinedDir, DIRECTORY, READING, as_path, name_of, parent_of, read_up_to, regular};
use serde::{Deserialize, Serialize};

use super::{
    config::{self, ConfigPath, UserDirs},
    layout::Layout,
};
use crate::index::{Digest, PathBytes};

/// Limits of a search: names, depth and time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) entries: usize,
    pub(super) depth: usize,
    pub(super) time: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { entries: 250_000, depth: 40, time: Duration::from_secs(5) }
    }
}

/// Bytes of a file that are compared.
const FILE: u64 = 1 << 20;

/// Number and depth of hooks that are compared.
const HOOKS: usize = 512;
const HOOKS_DEPTH: usize = 3;

/// Depth of includes, and number of paths in configurations that are followed.
const INCLUDES: usize = 4;
const NAMES: usize = 1 << 16;

/// Bytes of all files that are compared. Beyond this, an unchanged file may be reported as changed.
const BYTES: u64 = 64 << 20;

/// Files of a repository that configure git, besides hooks.
const SETTINGS: [&str; 5] = ["config", "config.worktree", "commondir", "gitdir", "info/attributes"];

/// Identity and content of a file or a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fingerprint {
    pub(super) device: u64,
    pub(super) inode: u64,
    /// Digest of a file, or of the configuration and hooks of a repository.
    pub(super) content: Digest,
}

/// The result of a search.
#[derive(Debug, Default)]
pub(super) struct Repositories {
    /// Everything that belongs to repositories, by path below the root.
    pub(super) own: BTreeMap<PathBytes, Fingerprint>,
    /// The part of `own` that is in a working tree: named in a configuration, or the target of a hook.
    pub(super) named: BTreeSet<PathBytes>,
    /// Links with the name `.git`.
    pub(super) links: Vec<PathBytes>,
    /// Number of directories that were not searched, and the first of them.
    pub(super) skipped: (usize, PathBytes),
}

impl Repositories {
    /// Searches a directory whose path has no links, or only one path below it.
    pub(super) fn search(root: &ConfinedDir, (path, start): (&Path, &[u8]), bounds: Bounds) -> Self {
        let until = Instant::now() + bounds.time;
        let dirs = UserDirs::from_env();
        let user = dirs.config_paths();
        let mut search = Search {
            root,
            path,
            home: dirs.home,
            user,
            read: BTreeSet::new(),
            names: NAMES,
            bytes: Cell::new(BYTES),
            found: Self::default(),
        };
        search.above(start);
        if start.is_empty() || search.begins_with_directory(start) {
            search.walk(start, bounds, until);
        }
        search.found
    }

    /// The note about an incomplete search.
    pub(super) fn search_note(&self, path: &Path) -> Option<String> {
        let (count, first) = &self.skipped;
        let (first, rest) = (at(path, &first.0), "not searched for repositories");
        match count {
            0 => None,
            1 => Some(format!("the directory {} was {rest}", first.display())),
            count => Some(format!("{count} directories were {rest}, {} first", first.display())),
        }
    }
}

/// Whether git takes a directory for a repository.
pub(super) fn is_repository(dir: &Path) -> bool {
    let mut layout = Layout::default();
    for part in Layout::PARTS {
        if dir.join(part).symlink_metadata().is_ok() {
            layout.add(part.as_bytes());
        }
    }
    layout.is_repository()
}

/// The path in a `.git` or `commondir` file, relative to its directory.
pub(super) fn pointer_target(text: &[u8], key: &str, from: &Path) -> Option<PathBuf> {
    let rest = text.strip_prefix(key.as_bytes())?;
    let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(rest.len());
    let path = rest[..end].trim_ascii();
    (!path.is_empty()).then(|| from.join(as_path(path)))
}

struct Search<'a> {
    root: &'a ConfinedDir,
    path: &'a Path,
    home: Option<PathBuf>,
    /// Paths in the user's configuration.
    user: Vec<ConfigPath>,
    /// Configurations that were read, each with its working tree.
    read: BTreeSet<(PathBuf, PathBuf)>,
    /// Remaining paths of configurations to follow, and remaining bytes to read.
    names: usize,
    bytes: Cell<u64>,
    found: Repositories,
}

impl Search<'_> {
    /// Walks the tree level by level, so that the deepest directories are skipped first.
    fn walk(&mut self, start: &[u8], bounds: Bounds, until: Instant) {
        let mut left = bounds.entries;
        let mut queue = VecDeque::from([(start.to_vec(), 0)]);
        while let Some((dir, depth)) = queue.pop_front() {
            let is_far = depth > bounds.depth || Instant::now() > until;
            let mut names = Vec::new();
            if is_far || self.list(&dir, &mut left, &mut names).is_none() {
                self.skip(&dir);
                // The names of a repository's parts are known: checking them takes no listing.
                if Instant::now() < until + bounds.time {
                    names.extend(self.known_names(&dir));
                }
            }
            let mut layout = Layout::default();
            names.iter().for_each(|(name, _)| layout.add(name));
            if layout.is_repository() {
                let host = self.host(&dir);
                self.repository(&host, &host);
                continue;
            }
            for (name, kind) in names {
                let path = below(&dir, &name);
                match kind {
                    _ if name.eq_ignore_ascii_case(b".git") => self.git(&dir, path, kind),
                    FileType::Directory if !is_far => queue.push_back((path, depth + 1)),
                    _ => {}
                }
            }
        }
    }

    fn skip(&mut self, dir: &[u8]) {
        let (count, first) = &mut self.found.skipped;
        if *count == 0 {
            *first = PathBytes(dir.to_vec());
        }
        *count += 1;
    }

    /// The parts of a repository that a directory has.
    fn known_names(&self, dir: &[u8]) -> Vec<(Vec<u8>, FileType)> {
        let names = Layout::PARTS.into_iter().chain([".git"]).map(|name| name.as_bytes().to_vec());
        let kind = |name: &[u8]| self.root.stat(&below(dir, name)).ok().flatten();
        names
            .filter_map(|name| Some((kind(&name)?.st_mode, name)))
            .map(|(mode, name)| (name, FileType::from_raw_mode(mode)))
            .collect()
    }

    /// Adds the names in a directory; nothing if it cannot be read, or not to its end.
    fn list(&self, dir: &[u8], left: &mut usize, names: &mut Vec<(Vec<u8>, FileType)>) -> Option<()> {
        let opened = match dir {
            b"" => self.root.root().try_clone().ok()?,
            dir => self.root.open_at(dir, DIRECTORY).ok()?,
        };
        for entry in Dir::read_from(&opened).ok()? {
            let entry = entry.ok()?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            *left = left.checked_sub(1)?;
            // Some file systems do not say it when they are listed.
            let kind = match entry.file_type() {
                FileType::Unknown => FileType::from_raw_mode(self.root.stat(&below(dir, name)).ok()??.st_mode),
                kind => kind,
            };
            names.push((name.to_vec(), kind));
        }
        Some(())
    }

    /// Something that is called `.git`, in a directory.
    fn git(&mut self, dir: &[u8], path: Vec<u8>, kind: FileType) {
        let (tree, host) = (self.host(dir), self.host(&path));
        match kind {
            FileType::Directory => self.repository(&host, &tree),
            FileType::Symlink => self.found.links.push(PathBytes(path)),
            _ => {
                self.own(&path);
                self.pointer(&host, &tree);
            }
        }
    }

    /// What a `.git` file leads to, for the working tree it is in.
    fn pointer(&mut self, file: &Path, tree: &Path) {
        if let Some(gitdir) =
            pointer_target(&self.read_host(file), "gitdir:", tree).filter(|gitdir| is_repository(gitdir))
        {
            self.repository(&gitdir, tree);
        }
    }

    /// Whether the start is a directory to walk. A start with the name `.git` is handled here.
    fn begins_with_directory(&mut self, start: &[u8]) -> bool {
        let Ok(Some(stat)) = self.root.stat(start) else { return false };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if super::is_git(name_of(start)) {
            self.git(parent_of(start).unwrap_or_default(), start.to_vec(), kind);
            return false;
        }
        kind == FileType::Directory
    }

    /// Reads the configuration of repositories above the start: they may name files below it.
    fn above(&mut self, start: &[u8]) {
        for tree in self.path.ancestors().skip(usize::from(start.is_empty())) {
            let git = tree.join(".git");
            match git.metadata() {
                Ok(found) if found.is_dir() => self.repository(&git, tree),
                Ok(_) => self.pointer(&git, tree),
                Err(_) => {}
            }
        }
    }

    /// Adds a repository and everything that it names.
    fn repository(&mut self, gitdir: &Path, tree: &Path) {
        let common = pointer_target(&self.read_host(&gitdir.join("commondir")), "", gitdir);
        for dir in [Some(gitdir), common.as_deref()].into_iter().flatten() {
            if let Some(path) = self.inside(dir) {
                self.own(&path);
                self.found.named.remove(&PathBytes(path));
            }
            for file in SETTINGS.iter().map(|file| dir.join(file)).chain(self.hooks(dir)) {
                // Git reads or runs the target of a link.
                if file.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
                    self.named_file(&file);
                }
            }
            for file in ["config", "config.worktree"] {
                self.configuration(&dir.join(file), tree, 0);
            }
        }
        let user = self.user.clone();
        self.add_paths(&user, (gitdir, tree), 0);
    }

    /// The directory of hooks and its files.
    fn hooks(&self, gitdir: &Path) -> Vec<PathBuf> {
        let dir = gitdir.join("hooks");
        let files = fs::read_dir(&dir).into_iter().flatten().take(HOOKS).filter_map(|entry| Some(entry.ok()?.path()));
        [dir.clone()].into_iter().chain(files).collect()
    }

    /// Adds everything that a configuration names. It is read once for each working tree.
    fn configuration(&mut self, file: &Path, tree: &Path, depth: usize) {
        if depth > INCLUDES || !self.read.insert((file.to_owned(), tree.to_owned())) {
            return;
        }
        let paths = config::paths(&self.read_host(file));
        self.add_paths(&paths, (file.parent().unwrap_or(file), tree), depth);
    }

    fn add_paths(&mut self, paths: &[ConfigPath], (dir, tree): (&Path, &Path), depth: usize) {
        for path in paths {
            let Some(left) = self.names.checked_sub(1) else { return self.skip(tree.as_os_str().as_bytes()) };
            self.names = left;
            match path {
                ConfigPath::Include(path) => {
                    let file = self.expand(dir, path);
                    self.named_file(&file);
                    self.configuration(&file, tree, depth + 1);
                }
                ConfigPath::Hooks(path) => {
                    let hooks = self.expand(tree, path);
                    // Husky's `_` directory only calls the hooks in its parent.
                    let above = hooks.parent().filter(|_| hooks.ends_with("_"));
                    self.named_file(above.unwrap_or(&hooks));
                }
                ConfigPath::Word(word) => {
                    let file = tree.join(word);
                    if file.is_file() {
                        self.named_file(&file);
                    }
                }
            }
        }
    }

    fn named_file(&mut self, file: &Path) {
        if let Some(path) = self.inside(file).filter(|path| !path.is_empty()) {
            if !self.found.own.contains_key(&PathBytes(path.clone())) {
                self.found.named.insert(PathBytes(path.clone()));
            }
            self.own(&path);
        }
    }

    /// Adds a path that belongs to a repository.
    fn own(&mut self, path: &[u8]) {
        if self.found.own.contains_key(&PathBytes(path.to_vec())) {
            return;
        }
        let opened = match path {
            b"" => self.root.root().try_clone().ok(),
            path => self.root.open_at(path, OFlags::PATH | OFlags::NOFOLLOW).ok(),
        };
        let Some(stat) = opened.and_then(|opened| rustix::fs::fstat(&opened).ok()) else { return };
        let mut content = Vec::new();
        let files = &mut { HOOKS };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if is_repository(&self.host(path)) || super::is_git(name_of(path)) => {
                for file in SETTINGS {
                    content.extend_from_slice(&Digest::of(&self.read(&below(path, file.as_bytes()))).0);
                }
                self.tree(&below(path, b"hooks"), (files, HOOKS_DEPTH), &mut content);
            }
            FileType::Directory => self.tree(path, (files, HOOKS_DEPTH), &mut content),
            _ => content = self.read(path),
        }
        let fingerprint = Fingerprint { device: stat.st_dev, inode: stat.st_ino, content: Digest::of(&content) };
        self.found.own.insert(PathBytes(path.to_vec()), fingerprint);
    }

    /// Appends the names and digests of all files in a directory.
    fn tree(&self, path: &[u8], (files, depth): (&mut usize, usize), content: &mut Vec<u8>) {
        let mut names = Vec::new();
        let _as_many_as_count = self.list(path, files, &mut names);
        names.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (name, kind) in names {
            let file = below(path, &name);
            content.extend_from_slice(&Digest::of(&name).0);
            match kind {
                FileType::Directory if depth > 0 => self.tree(&file, (files, depth - 1), content),
                FileType::Symlink => content.extend(self.root.link(&file).unwrap_or_default()),
                _ => content.extend_from_slice(&Digest::of(&self.read(&file)).0),
            }
        }
    }

    /// The compared part of a regular file; empty for anything else.
    fn read(&self, path: &[u8]) -> Vec<u8> {
        self.root.file(path).and_then(|(file, _)| self.content(file)).unwrap_or_default()
    }

    /// The same for a path of the host, which may be outside of the root.
    fn read_host(&self, file: &Path) -> Vec<u8> {
        if let Some(path) = self.inside(file) {
            return self.read(&path);
        }
        let opened = rustix::fs::open(file, READING.difference(OFlags::NOFOLLOW), Mode::empty());
        let text = opened.map_err(io::Error::from).and_then(regular).and_then(|(file, _)| self.content(file));
        text.unwrap_or_default()
    }

    fn content(&self, file: File) -> io::Result<Vec<u8>> {
        let content = read_up_to(file, FILE.min(self.bytes.get()))?;
        self.bytes.set(self.bytes.get().saturating_sub(content.len() as u64));
        Ok(content)
    }

    /// A path of a configuration, relative to a directory or to the home directory.
    fn expand(&self, from: &Path, path: &str) -> PathBuf {
        match path.strip_prefix("~/").zip(self.home.as_ref()) {
            Some((rest, home)) => home.join(rest),
            None => from.join(path),
        }
    }

    fn host(&self, path: &[u8]) -> PathBuf {
        at(self.path, path)
    }

    /// The path below the root of a path of the host.
    fn inside(&self, host: &Path) -> Option<Vec<u8>> {
        let real = host.canonicalize().ok()?;
        Some(real.strip_prefix(self.path).ok()?.as_os_str().as_bytes().to_vec())
    }
}

/// A path below a directory of the host, without a trailing slash.
pub(super) fn at(dir: &Path, path: &[u8]) -> PathBuf {
    if path.is_empty() { dir.to_owned() } else { dir.join(as_path(path)) }
}

pub(super) fn below(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, name].join(&b'/') }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(dir: &Path, bounds: Bounds) -> Repositories {
        Repositories::search(&ConfinedDir::open(dir).unwrap(), (&dir.canonicalize().unwrap(), b""), bounds)
    }

    #[test]
    fn an_incomplete_search_says_so() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().canonicalize().unwrap();
        fs::create_dir_all(path.join("a/b/c/.git")).unwrap();
        fs::create_dir_all(path.join(".git")).unwrap();
        let names = |found: &Repositories| found.own.keys().map(PathBytes::to_string).collect::<Vec<_>>();
        let all = search(&path, Bounds::default());
        assert_eq!((names(&all), all.search_note(&path)), (vec![".git".to_owned(), "a/b/c/.git".to_owned()], None));
        let zero = Duration::ZERO;
        for (bounds, first) in [
            (Bounds { depth: 1, ..Bounds::default() }, "a/b"),
            (Bounds { entries: 2, ..Bounds::default() }, "a"),
            (Bounds { entries: 0, ..Bounds::default() }, ""),
            (Bounds { time: zero, ..Bounds::default() }, ""),
        ] {
            let some = search(&path, bounds);
            let words =
                format!("the directory {} was not searched for repositories", at(&path, first.as_bytes()).display());
            assert_eq!(some.search_note(&path), Some(words), "{bounds:?}");
            assert_eq!(names(&some).len(), usize::from(bounds.time > zero), "what lies deepest is left out");
        }
    }

    #[test]
    fn circular_includes_end() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().canonicalize().unwrap();
        fs::create_dir_all(path.join(".git")).unwrap();
        let round = "[include]\n\tpath = ../one\n\tpath = ../two\n".repeat(2000);
        for file in [".git/config", "one", "two"] {
            fs::write(path.join(file), &round).unwrap();
        }
        assert_eq!(search(&path, Bounds::default()).own.len(), 3);
    }

    #[test]
    fn a_repository_above_protects_files_below_it() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().canonicalize().unwrap();
        fs::create_dir_all(path.join(".git/hooks")).unwrap();
        fs::create_dir_all(path.join("sub/hooks")).unwrap();
        fs::write(path.join("sub/check"), "").unwrap();
        std::os::unix::fs::symlink("../../sub/check", path.join(".git/hooks/pre-push")).unwrap();
        fs::write(path.join(".git/config"), "[core]\n\thooksPath = sub/hooks\n").unwrap();
        let names: Vec<_> =
            search(&path.join("sub"), Bounds::default()).own.into_keys().map(|name| name.to_string()).collect();
        assert_eq!(names, ["check", "hooks"]);
    }
}
