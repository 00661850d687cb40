//! The files of a repository, fetched when the session starts.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Attributes, Kind, Shape, url};
use crate::{
    fetch::shown_text,
    manifest::{At, Fault},
};

/// The files of a repository at one commit: `repo` on `host`, or a whole `url`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitRepo {
    /// Fields that every entry has.
    #[serde(skip)]
    pub attributes: Attributes,
    /// Host of the repository, unless `url` is given.
    #[serde(default = "github")]
    pub host: String,
    /// Name of the repository: `owner/name`, or a whole address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub repo: String,
    /// Whole address, instead of `host` and `repo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Branch, tag or commit; the repository's default branch if not given.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub git_ref: Option<String>,
    /// Number of commits of history to fetch; 0 is the whole history.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub depth: u32,
    /// Directories to check out; all of them if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sparse: Vec<String>,
    /// Directory of the repository that becomes the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subpath: Option<String>,
    /// Whether submodules are fetched too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub submodules: bool,
    /// Name of the secret that grants access: a token, or `user:password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<String>,
}

fn github() -> String {
    "github.com".to_owned()
}

fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(depth: &u32) -> bool {
    *depth == 1
}

/// `owner/name` or `owner/name@ref` on GitHub, where `ref` is a branch, tag or commit. Addresses are used unchanged.
impl From<&str> for GitRepo {
    fn from(repo: &str) -> Self {
        match repo.rsplit_once('@') {
            Some((name, git_ref)) if !repo.contains(':') && !git_ref.is_empty() => Self::new(name).at(git_ref),
            _ => Self::new(repo),
        }
    }
}

impl GitRepo {
    /// `owner/name` on GitHub, or the whole address of a repository.
    pub fn new(repo: impl Into<String>) -> Self {
        Self {
            attributes: Attributes::of(Shape::Directory),
            host: github(),
            repo: repo.into(),
            url: None,
            git_ref: None,
            depth: 1,
            sparse: Vec::new(),
            subpath: None,
            submodules: false,
            auth: None,
        }
    }

    /// The same on another host.
    #[must_use]
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = host.into();
        self
    }

    /// The same at a branch, tag or commit.
    #[must_use]
    pub fn at(mut self, git_ref: impl Into<String>) -> Self {
        self.git_ref = Some(git_ref.into());
        self
    }

    /// The same with this many commits of history; 0 is the whole history.
    #[must_use]
    pub fn depth(mut self, commits: u32) -> Self {
        self.depth = commits;
        self
    }

    /// The same with this directory added to those that are checked out.
    #[must_use]
    pub fn sparse(mut self, directory: impl Into<String>) -> Self {
        self.sparse.push(directory.into());
        self
    }

    /// The same, but only this directory of the repository becomes the entry.
    #[must_use]
    pub fn subpath(mut self, directory: impl Into<String>) -> Self {
        self.subpath = Some(directory.into());
        self
    }

    /// The same with its submodules.
    #[must_use]
    pub fn submodules(mut self) -> Self {
        self.submodules = true;
        self
    }

    /// The same, accessed with the secret of this name.
    #[must_use]
    pub fn auth(mut self, secret: impl Into<String>) -> Self {
        self.auth = Some(secret.into());
        self
    }

    /// Address that is cloned.
    #[must_use]
    pub fn clone_url(&self) -> String {
        match &self.url {
            Some(url) => url.clone(),
            None if self.repo.contains("://") => self.repo.clone(),
            None => format!("https://{}/{}.git", self.host, self.repo.trim_end_matches(".git")),
        }
    }

    /// Address for messages: without user, password and the values of a query.
    #[must_use]
    pub fn shown_url(&self) -> String {
        shown_text(&self.clone_url())
    }

    /// Directory of the repository that becomes the entry; `None` is the whole repository.
    #[must_use]
    pub fn inner_path(&self) -> Option<&str> {
        self.subpath.as_deref().filter(|path| !matches!(*path, "" | "."))
    }

    fn address_fault(&self) -> Option<(&'static str, &'static str)> {
        if let Some(url) = &self.url {
            if !self.repo.is_empty() {
                return Some(("url", "and `repo` cannot both be given"));
            }
            return url::fault(url).map(|reason| ("url", reason));
        }
        if self.repo.is_empty() {
            return Some(("repo", "or `url` must be given"));
        }
        if self.repo.contains("://") {
            return url::fault(&self.repo).map(|reason| ("repo", reason));
        }
        if self.repo.contains(':') {
            return Some((
                "repo",
                "must be `owner/name` or an https address; ssh is not used, name a secret with `auth`",
            ));
        }
        let plain = self.repo.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._~-/+".contains(&byte));
        let empty_part = self.repo.split('/').any(|part| matches!(part, "" | "." | "..") || part.starts_with('-'));
        if !plain || empty_part {
            return Some(("repo", "must be `owner/name`"));
        }
        (!url::is_host(&self.host)).then_some(("host", "names no valid host"))
    }
}

/// Leaves out the secret parts of the address.
impl fmt::Debug for GitRepo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitRepo")
            .field("attributes", &self.attributes)
            .field("url", &self.shown_url())
            .field("git_ref", &self.git_ref)
            .field("depth", &self.depth)
            .field("sparse", &self.sparse)
            .field("subpath", &self.subpath)
            .field("submodules", &self.submodules)
            .field("auth", &self.auth)
            .finish_non_exhaustive()
    }
}

impl Kind for GitRepo {
    const SHAPE: Shape = Shape::Directory;

    fn faults(&self, at: &At<'_>) -> Vec<Fault> {
        let mut faults = Vec::new();
        if let Some((field, reason)) = self.address_fault() {
            faults.push(Fault::invalid(&at.field(field), reason));
        }
        if let Some(reason) = self.git_ref.as_deref().and_then(ref_fault) {
            faults.push(Fault::invalid(&at.field("ref"), reason));
        }
        if let Some((subpath, reason)) = self.subpath.as_deref().and_then(|path| Some((path, path_fault(path)?))) {
            faults.push(Fault::git_subpath(&at.field("subpath"), self.shown_url(), subpath, reason));
        }
        for (index, directory) in self.sparse.iter().enumerate() {
            if let Some(reason) = path_fault(directory).or_else(|| directory.is_empty().then_some("empty")) {
                faults.push(Fault::git_subpath(&at.field("sparse").index(index), self.shown_url(), directory, reason));
            }
        }
        if self.auth.as_deref() == Some("") {
            faults.push(Fault::invalid(&at.field("auth"), "names no secret"));
        }
        faults
    }

    fn redact(&mut self) -> bool {
        url::redact(&mut self.repo) | self.url.as_mut().is_some_and(url::redact)
    }
}

/// Fault of a directory of a repository, by the reason codes that other sandboxes use.
fn path_fault(path: &str) -> Option<&'static str> {
    if matches!(path, "" | ".") {
        return None;
    }
    if path.trim().is_empty() {
        return Some("empty");
    }
    if path.contains('\\') || path.as_bytes().get(1) == Some(&b':') && path.as_bytes()[0].is_ascii_alphabetic() {
        return Some("windows_path");
    }
    if path.starts_with('/') {
        return Some("absolute");
    }
    if path.split('/').any(|part| part == "..") {
        return Some("parent_traversal");
    }
    if path.starts_with('-') || path.contains(char::is_control) {
        return Some("malformed");
    }
    None
}

/// Fault of a reference that git refuses or would read as an option.
fn ref_fault(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("is empty; leave it out for the repository's default branch");
    }
    let forbidden = |c: char| c.is_control() || c.is_whitespace() || "~^:?*[\\".contains(c);
    if name.starts_with('-')
        || name.contains(forbidden)
        || name.contains("..")
        || name.contains("@{")
        || name.len() > 255
    {
        return Some("is not the name of a branch, tag or commit");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(repo: &GitRepo) -> Vec<String> {
        repo.faults(&At::top("x")).iter().map(|fault| fault.at().to_owned()).collect()
    }

    #[test]
    fn a_short_name_may_include_a_reference() {
        for (text, repo, git_ref) in [
            ("acme/hello@main", "acme/hello", Some("main")),
            ("acme/hello", "acme/hello", None),
            ("acme/hello@", "acme/hello@", None),
            ("git@host.test:acme/hello.git", "git@host.test:acme/hello.git", None),
            ("https://me@host.test/hello.git", "https://me@host.test/hello.git", None),
        ] {
            let made = GitRepo::from(text);
            assert_eq!((made.repo.as_str(), made.git_ref.as_deref()), (repo, git_ref), "{text}");
        }
    }

    #[test]
    fn a_repository_is_an_owner_and_a_name_or_an_address() {
        let table = [
            (GitRepo::new("a/b"), Some("https://github.com/a/b.git")),
            (GitRepo::new("a/b.git"), Some("https://github.com/a/b.git")),
            (
                GitRepo::new("group/sub/b").host("git.example.com:8443"),
                Some("https://git.example.com:8443/group/sub/b.git"),
            ),
            (GitRepo::new("http://localhost:1/x"), Some("http://localhost:1/x")),
            (GitRepo::new("git@github.com:a/b"), None),
            (GitRepo::new(""), None),
            (GitRepo::new("a//b"), None),
            (GitRepo::new("../b"), None),
            (GitRepo::new("a b"), None),
            (GitRepo::new("-x/y"), None),
            (GitRepo::new("file:///etc"), None),
            (GitRepo::new("https://u:p@example.com/x"), None),
            (GitRepo::new("a/b").host("exa/mple"), None),
        ];
        for (repo, url) in table {
            match url {
                Some(url) => assert_eq!((fields(&repo), repo.clone_url().as_str()), (vec![], url)),
                None => assert_eq!(fields(&repo).len(), 1, "{repo:?}"),
            }
        }
        let both = GitRepo { url: Some("https://example.com/x".into()), ..GitRepo::new("a/b") };
        assert_eq!(fields(&both), ["x.url"]);
    }

    #[test]
    fn a_subpath_stays_inside() {
        let table = [
            ("", None),
            (".", None),
            ("a/b", None),
            ("  ", Some("empty")),
            ("/a", Some("absolute")),
            ("a\\b", Some("windows_path")),
            ("C:/a", Some("windows_path")),
            ("a/../b", Some("parent_traversal")),
            ("-a", Some("malformed")),
        ];
        for (subpath, reason) in table {
            assert_eq!(path_fault(subpath), reason, "{subpath}");
            let faults = GitRepo::new("a/b").subpath(subpath).faults(&At::top("x"));
            assert_eq!(faults.len(), usize::from(reason.is_some()));
            if let Some(fault) = faults.into_iter().next() {
                assert_eq!(fault.into_error(0).code(), "git_subpath_error");
            }
        }
        assert_eq!(GitRepo::new("a/b").subpath(".").inner_path(), None);
        assert_eq!(GitRepo::new("a/b").subpath("x").inner_path(), Some("x"));
    }

    #[test]
    fn a_ref_cannot_be_an_option() {
        for (name, fine) in [
            ("main", true),
            ("v1.2.3", true),
            ("feature/x", true),
            ("0123abcd", true),
            ("--upload-pack=x", false),
            ("", false),
            ("a b", false),
            ("a..b", false),
            ("HEAD~1", false),
        ] {
            assert_eq!(ref_fault(name).is_none(), fine, "{name}");
        }
    }
}
