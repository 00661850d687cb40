//! A fault of a manifest, and its place in the document.

use std::fmt;

use crate::{PathFault, SandboxError};

/// A place in a manifest, such as `entries["a/b"].children["x"]`; made of borrowed parts, so that knowing it costs nothing.
#[derive(Clone, Copy)]
pub(crate) enum At<'a> {
    /// Wherever the caller is.
    Here,
    Top(&'a str),
    Field(&'a At<'a>, &'a str),
    Key(&'a At<'a>, &'a str),
    Index(&'a At<'a>, usize),
}

impl<'a> At<'a> {
    pub(crate) fn top(name: &'a str) -> Self {
        Self::Top(name)
    }

    pub(crate) fn field(&'a self, name: &'a str) -> Self {
        Self::Field(self, name)
    }

    pub(crate) fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }

    pub(crate) fn index(&'a self, index: usize) -> Self {
        Self::Index(self, index)
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => Ok(()),
            Self::Top(name) => f.write_str(name),
            Self::Field(Self::Here, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Key(parent, key) if key.len() > 200 => {
                let end = key.floor_char_boundary(200);
                write!(f, "{parent}[{:?}…]", &key[..end])
            }
            Self::Key(parent, key) => write!(f, "{parent}[{key:?}]"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    at: String,
    kind: FaultKind,
}

#[derive(Clone, Debug, PartialEq)]
enum FaultKind {
    Invalid(String),
    Path(String, PathFault),
    GitSubpath { repo: String, subpath: String, reason: String },
    Mount(String),
    Limit { limit: u64, actual: u64 },
}

impl Fault {
    pub(crate) fn invalid(at: &At<'_>, reason: impl Into<String>) -> Self {
        Self { at: at.to_string(), kind: FaultKind::Invalid(reason.into()) }
    }

    pub(crate) fn path(at: &At<'_>, given: &str, fault: PathFault) -> Self {
        let end = given.floor_char_boundary(200);
        Self { at: at.to_string(), kind: FaultKind::Path(given[..end].to_owned(), fault) }
    }

    /// The fault of an invalid path.
    pub(crate) fn of_path(at: &At<'_>, given: &str, error: &SandboxError) -> Self {
        match error {
            SandboxError::InvalidPath { reason, .. } => Self::path(at, given, *reason),
            other => Self::invalid(at, other.to_string()),
        }
    }

    pub(crate) fn git_subpath(at: &At<'_>, repo: impl Into<String>, subpath: &str, reason: &str) -> Self {
        let kind = FaultKind::GitSubpath { repo: repo.into(), subpath: subpath.to_owned(), reason: reason.to_owned() };
        Self { at: at.to_string(), kind }
    }

    pub(crate) fn mount(at: &At<'_>, reason: impl Into<String>) -> Self {
        Self { at: at.to_string(), kind: FaultKind::Mount(reason.into()) }
    }

    pub(crate) fn limit(at: &At<'_>, limit: u64, actual: u64) -> Self {
        Self { at: at.to_string(), kind: FaultKind::Limit { limit, actual } }
    }

    /// Where it is.
    #[cfg(test)]
    pub(crate) fn at(&self) -> &str {
        &self.at
    }

    /// The same, seen from further up.
    pub(super) fn below(&self, at: &At<'_>) -> Self {
        Self { at: format!("{at}{}", self.at), kind: self.kind.clone() }
    }

    /// As an error that also says how many more there are.
    pub(crate) fn into_error(self, more: usize) -> SandboxError {
        let others = match more {
            0 => String::new(),
            1 => " (and 1 more fault)".to_owned(),
            more => format!(" (and {more} more faults)"),
        };
        let place = format!("in {}{others}", self.at);
        match self.kind {
            FaultKind::Invalid(reason) => SandboxError::manifest_invalid(self.at, format!("{reason}{others}")),
            FaultKind::Path(given, fault) => SandboxError::invalid_manifest_path(given, fault).because(place),
            FaultKind::GitSubpath { repo, subpath, reason } => {
                SandboxError::git_subpath_error(repo, subpath, reason).because(place)
            }
            FaultKind::Mount(reason) => SandboxError::mount_config_invalid(self.at, format!("{reason}{others}")),
            FaultKind::Limit { limit, actual } => SandboxError::limit_exceeded(self.at, limit, actual),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.clone().into_error(0).full_message())
    }
}

/// Faults in the order they were found. Beyond a thousand they are only counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Faults {
    faults: Vec<Fault>,
    more: usize,
}

const LIMIT: usize = 1000;

impl Faults {
    pub(crate) fn push(&mut self, fault: Fault) {
        if self.faults.len() < LIMIT {
            self.faults.push(fault);
        } else {
            self.more += 1;
        }
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.more += other.more;
        for fault in other.faults {
            self.push(fault);
        }
    }

    /// Adds what was found further down.
    pub(super) fn extend_below(&mut self, at: &At<'_>, other: &Self) {
        self.more += other.more;
        for fault in &other.faults {
            self.push(fault.below(at));
        }
    }

    pub(crate) fn take_first(&mut self) -> Option<Fault> {
        if self.faults.is_empty() { None } else { Some(self.faults.remove(0)) }
    }

    /// The first, saying how many more there are.
    pub(crate) fn into_result(mut self) -> crate::Result<()> {
        let more = self.more + self.faults.len().saturating_sub(1);
        self.take_first().map_or(Ok(()), |fault| Err(fault.into_error(more)))
    }

    /// All of them; the last says how many were only counted.
    pub(crate) fn into_errors(self) -> Vec<SandboxError> {
        let last = self.faults.len().saturating_sub(1);
        let more = |index| if index == last { self.more } else { 0 };
        self.faults.into_iter().enumerate().map(|(index, fault)| fault.into_error(more(index))).collect()
    }
}
