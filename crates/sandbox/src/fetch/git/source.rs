//! Checks a clone request by its text, before anything runs.

use std::net::IpAddr;

use sandbar_http::{Url, shown_text};
use sandbar_machine::{BoxError, MachineError};

use super::GitRequest;
use crate::{PathFault, Result, SandboxError, WorkspacePath, error::Outside, fetch::http::reach::is_public};

/// Host name that never resolves, used as a proxy for servers that must not be reached.
pub(super) const UNREACHABLE_PROXY: &str = "only-public-addresses.invalid";

/// Hint for errors about private addresses.
pub(super) const ALLOWED_BY: &str =
    "; allow it with `--allow-private-addresses`, or in code with `allow_private_addresses`";

/// What to check out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    /// The server's `HEAD`.
    Head,
    /// A branch or a tag.
    Named(String),
    /// A whole commit id or a `refs/…` name, which can be fetched directly.
    Whole(String),
    /// A branch or a tag that looks like an abbreviated commit id.
    Abbreviated(String),
}

/// A request that has been checked.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) url: Url,
    /// Address for messages.
    pub(super) shown: String,
    pub(super) reference: Reference,
    pub(super) subpath: Option<WorkspacePath>,
}

impl Source {
    pub(super) fn check(request: &GitRequest) -> Result<Self> {
        let given = request.reference.clone().unwrap_or_default();
        let shown = shown_text(&request.url);
        let refuse = |reason: &str| {
            let cause = MachineError::invalid("the request", "was refused before anything was run");
            SandboxError::git_clone_error(&shown, &given, reason).because(cause)
        };
        let url = check_url(&request.url).map_err(refuse)?;
        if request.auth.is_some() && url.scheme() == "git" {
            return Err(refuse("the git protocol has no authentication; use https"));
        }
        if request.depth == Some(0) {
            return Err(refuse("the depth must be at least 1; leave it out for the whole history"));
        }
        if request.sparse.iter().any(|pattern| !is_pattern(pattern)) {
            return Err(refuse("a sparse pattern is empty, begins with `-` or spans lines"));
        }
        let reference = check_reference(request.reference.as_deref()).map_err(refuse)?;
        let subpath = check_subpath(&shown, request.subpath.as_deref())?;
        Ok(Self { url, shown, reference, subpath })
    }

    /// Git settings that restrict it to the public addresses that the server's name resolves to now, and to no other
    /// server. Git before 2.37 ignores the setting for the addresses and resolves the name again.
    ///
    /// # Errors
    /// `git_clone_error` if an address is not public, or if the name cannot be resolved.
    pub(super) async fn pins(&self) -> Result<Vec<String>> {
        let refuse = |reason: &str| self.error(&format!("{reason}{ALLOWED_BY}")).because(Outside::lasting());
        let (host, port) = match (self.url.host_str(), self.url.port_or_known_default(), self.url.scheme()) {
            (Some(host), Some(port), "http" | "https") => (host, port),
            _ => return Err(refuse("the git protocol cannot be restricted to public addresses, use https")),
        };
        let literal: Option<IpAddr> = host.trim_start_matches('[').trim_end_matches(']').parse().ok();
        let found: Vec<IpAddr> = match literal {
            Some(ip) => vec![ip],
            None => {
                let unknown = |error: std::io::Error| {
                    self.error(&format!("cannot find {host}: {error}"))
                        .because(Outside::passing("the name may be found later"))
                };
                tokio::net::lookup_host((host, port)).await.map_err(unknown)?.map(|server| server.ip()).collect()
            }
        };
        if found.is_empty() || !found.iter().all(|ip| is_public(*ip)) {
            return Err(refuse(
                "it is at an address of this host or of a private network, and only public addresses are allowed",
            ));
        }
        let addresses: Vec<String> =
            found.iter().map(|ip| if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() }).collect();
        let pinned = literal.is_none().then(|| format!("http.curloptResolve={host}:{port}:{}", addresses.join(",")));
        let origin = self.url.origin().ascii_serialization();
        // For every other server, git uses a proxy that does not exist.
        let others = [format!("http.proxy=http://{UNREACHABLE_PROXY}"), format!("http.{origin}/.proxy=")];
        Ok(pinned.into_iter().chain(others).collect())
    }

    /// Error of a clone that failed for this reason.
    pub(super) fn error(&self, reason: &str) -> SandboxError {
        SandboxError::git_clone_error(&self.shown, self.reference.as_str(), reason)
    }

    /// Error about the subpath.
    pub(super) fn subpath_error(&self, reason: &str) -> SandboxError {
        let subpath = self.subpath.as_ref().map(WorkspacePath::as_str).unwrap_or_default();
        SandboxError::git_subpath_error(&self.shown, subpath, reason)
    }

    /// Checks that the fetched commit is the requested one, if a commit was requested.
    pub(super) fn verify(&self, commit: &str) -> Result<()> {
        match &self.reference {
            Reference::Whole(name) if is_commit(name) && !name.eq_ignore_ascii_case(commit) => {
                Err(self.error(&format!("the server sent the commit {commit:?} instead")))
            }
            _ => Ok(()),
        }
    }
}

impl Reference {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Head => "HEAD",
            Self::Named(name) | Self::Whole(name) | Self::Abbreviated(name) => name,
        }
    }
}

fn check_url(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).map_err(|_| "it is not a valid address; use one like https://host/owner/name.git")?;
    if !matches!(url.scheme(), "https" | "http" | "git") {
        return Err("only https, http and git addresses can be cloned");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("an address must not contain a user or password; name a secret instead");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("an address of a repository has neither a query nor a fragment");
    }
    // Older versions of git passed a host that begins with `-` as an option to the program that connects.
    if url.host_str().is_none_or(|host| host.is_empty() || host.starts_with('-')) {
        return Err("it names no host");
    }
    Ok(url)
}

fn check_reference(given: Option<&str>) -> Result<Reference, &'static str> {
    let Some(name) = given.filter(|name| *name != "HEAD") else { return Ok(Reference::Head) };
    let forbidden = |letter: char| letter.is_control() || letter.is_whitespace() || "~^:?*[\\".contains(letter);
    let malformed = name.is_empty()
        || name == "@"
        || name.len() > 255
        || name.starts_with(['-', '/'])
        || name.ends_with(['.', '/'])
        || name.contains(forbidden)
        || ["..", "@{", "//"].iter().any(|pair| name.contains(pair))
        || name.split('/').any(|part| part.starts_with('.') || part.ends_with(".lock"));
    if malformed {
        return Err("it is not the name of a branch, tag or commit");
    }
    if is_commit(name) || name.starts_with("refs/") {
        return Ok(Reference::Whole(name.to_owned()));
    }
    let hex = name.len() >= 7 && name.len() < 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    Ok(if hex { Reference::Abbreviated(name.to_owned()) } else { Reference::Named(name.to_owned()) })
}

/// Whether this is a complete commit id, SHA-1 or SHA-256.
pub(super) fn is_commit(name: &str) -> bool {
    matches!(name.len(), 40 | 64) && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_pattern(pattern: &str) -> bool {
    !pattern.trim().is_empty()
        && pattern.len() <= 4096
        && !pattern.starts_with('-')
        && !pattern.contains(char::is_control)
}

fn check_subpath(shown: &str, given: Option<&str>) -> Result<Option<WorkspacePath>> {
    let Some(given) = given.filter(|given| !matches!(*given, "" | "." | "./")) else { return Ok(None) };
    let refuse = |reason: &str, cause: Option<BoxError>| {
        let error = SandboxError::git_subpath_error(shown, given, reason);
        Err(match cause {
            Some(cause) => error.because(cause),
            None => error,
        })
    };
    if given.trim().is_empty() {
        return refuse("empty", None);
    }
    let path = match WorkspacePath::new(given) {
        Ok(path) => path,
        Err(SandboxError::InvalidPath { reason, .. }) => return refuse(fault(reason), None),
        Err(other) => return refuse("malformed", Some(other.into())),
    };
    if path.parts().any(|part| part.eq_ignore_ascii_case(".git")) {
        return refuse("git_directory", None);
    }
    Ok(Some(path))
}

fn fault(fault: PathFault) -> &'static str {
    match fault {
        PathFault::Absolute => "absolute",
        PathFault::EscapeRoot => "parent_traversal",
        PathFault::Empty => "empty",
        PathFault::WindowsPath => "windows_path",
        PathFault::Duplicate | PathFault::Malformed => "malformed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn only_addresses_that_name_a_host_of_a_known_protocol_are_cloned() {
        let table = [
            ("https://github.com/a/b.git", true),
            ("http://127.0.0.1:80/a", true),
            ("git://host/a", true),
            ("HTTPS://host/a", true),
            ("", false),
            ("-x", false),
            ("git@host:a/b", false),
            ("ssh://host/a", false),
            ("file:///etc", false),
            ("ext::echo hi", false),
            ("ext://host/x", false),
            ("/etc", false),
            ("https://me@host/a", false),
            ("https://me:hunter2@host/a", false),
            ("https://host/a?token=hunter2", false),
            ("https://host/a#x", false),
            ("git://-oProxyCommand=x/a", false),
            ("git:///a", false),
        ];
        for (url, fine) in table {
            let result = Source::check(&GitRequest::new(url));
            assert_eq!(result.is_ok(), fine, "{url}: {result:?}");
            let Err(error) = result else { continue };
            assert_eq!((error.code(), error.retryable()), ("git_clone_error", Some(false)));
            assert!(!error.full_message().contains("hunter2"), "{}", error.full_message());
        }
    }

    #[test]
    fn a_host_and_a_name_become_an_address() {
        let table = [
            ("a/b", "https://github.com/a/b.git"),
            ("/a/b.git/", "https://github.com/a/b.git"),
            ("http://h/x", "http://h/x"),
        ];
        for (repo, url) in table {
            assert_eq!(GitRequest::hosted("github.com", repo).url, url);
        }
    }

    #[test]
    fn references_are_told_apart_or_refused() {
        let named = |name: &str| Some(Reference::Named(name.to_owned()));
        let table = [
            (None, Some(Reference::Head)),
            (Some("HEAD"), Some(Reference::Head)),
            (Some("main"), named("main")),
            (Some("feature/ü"), named("feature/ü")),
            (Some("v1.0"), named("v1.0")),
            (Some("abcdef"), named("abcdef")),
            (Some("deadbee"), Some(Reference::Abbreviated("deadbee".to_owned()))),
            (Some(SHA), Some(Reference::Whole(SHA.to_owned()))),
            (Some("refs/pull/1/head"), Some(Reference::Whole("refs/pull/1/head".to_owned()))),
        ];
        for (given, expected) in table {
            assert_eq!(check_reference(given).ok(), expected, "{given:?}");
        }
        let long = "x".repeat(300);
        for bad in [
            "",
            "-x",
            "--upload-pack=x",
            "a b",
            "a..b",
            "a:b",
            "+a",
            "a~1",
            "a^",
            "a\nb",
            ".a",
            "a/.b",
            "a.lock",
            "a/",
            "/a",
            "a//b",
            "@",
            "a@{1}",
            "a\\b",
            "a*",
            "a?",
            "[a",
            "a.",
            &long,
        ] {
            // A plus sign is allowed: a name is never used as a refspec here.
            assert_eq!(check_reference(Some(bad)).is_ok(), bad == "+a", "{bad:?}");
        }
    }

    #[test]
    fn subpaths_follow_the_known_rules() {
        let table = [
            (None, Ok(None)),
            (Some(""), Ok(None)),
            (Some("."), Ok(None)),
            (Some("a/./b/"), Ok(Some("a/b"))),
            (Some("  "), Err("empty")),
            (Some("./."), Err("empty")),
            (Some("/a"), Err("absolute")),
            (Some("a\\b"), Err("windows_path")),
            (Some("C:/a"), Err("windows_path")),
            (Some("a/../b"), Err("parent_traversal")),
            (Some("a/.Git"), Err("git_directory")),
            (Some("a\0"), Err("malformed")),
        ];
        for (given, expected) in table {
            match (check_subpath("r", given), expected) {
                (Ok(path), Ok(text)) => assert_eq!(path.as_ref().map(WorkspacePath::as_str), text),
                (Err(error), Err(reason)) => {
                    assert_eq!(error.code(), "git_subpath_error");
                    assert_eq!(error.context()["reason"], reason, "{given:?}");
                }
                (other, _) => panic!("{given:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn another_commit_than_the_one_asked_for_is_refused() {
        let source = Source::check(&GitRequest::new("https://h/a").reference(SHA.to_uppercase())).unwrap();
        source.verify(SHA).unwrap();
        assert_eq!(source.verify(&SHA.replace('0', "1")).unwrap_err().code(), "git_clone_error");
    }
}
