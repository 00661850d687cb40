//! The attacks: each a few system calls, the same program on the host, in a weakened place and in the sandbox.

mod channels;
mod containers;
mod exceptions;
mod files;
mod hoards;
mod ipc;
mod network;
pub mod older;
mod privilege;
mod processes;
mod procfs;
mod quotas;
mod resources;
mod scheduling;
mod setid;
mod starving;
mod storms;
pub mod sys;

use std::{collections::BTreeMap, fmt};

pub use containers::{DIFFERENT, Difference, UNPROMISED};
pub use exceptions::{EXCEPTIONS, Exception};
pub use files::identity;

/// What became of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It worked.
    Reached(String),
    /// The system said no, with this error.
    Refused(i32, String),
    /// The attempt itself could not be made.
    Error(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reached(detail) => write!(f, "reached 0 {detail}"),
            Self::Refused(errno, detail) => write!(f, "refused {errno} {detail}"),
            Self::Error(detail) => write!(f, "error 0 {detail}"),
        }
    }
}

impl Outcome {
    /// A call that must not succeed.
    #[must_use]
    pub fn of<T>(result: Result<T, i32>) -> Self {
        match result {
            Ok(_) => Self::Reached(String::new()),
            Err(errno) => Self::Refused(errno, sys::name_of(errno)),
        }
    }

    /// Reads back what [`fmt::Display`] wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().splitn(3, ' ');
        let (kind, errno, detail) = (parts.next()?, parts.next()?, parts.next().unwrap_or_default().to_owned());
        match kind {
            "reached" => Some(Self::Reached(detail)),
            "refused" => Some(Self::Refused(errno.parse().ok()?, detail)),
            "error" => Some(Self::Error(detail)),
            _ => None,
        }
    }
}

/// Where an attack is shown to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// On the host, as the user who runs the sandbox.
    Host,
    /// In fresh namespaces with every capability and no filter: everything but our own layers.
    Namespaces,
}

/// One attack.
pub struct Attack {
    /// Group and number of the escape list, and a word.
    pub name: &'static str,
    /// What sandbar promises, in one sentence.
    pub promise: &'static str,
    /// Where it must work, or at least fail differently.
    pub control: Control,
    /// The errors a refusal may have; any, if empty.
    pub expect: &'static [i32],
    /// The attempt.
    pub run: fn(&Args) -> Outcome,
}

/// What the runner tells an attack: the canaries, by name.
#[derive(Clone, Debug, Default)]
pub struct Args(BTreeMap<String, String>);

impl Args {
    /// From `key=value` words.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Self {
        Self(words.into_iter().filter_map(|word| word.split_once('=').map(|(k, v)| (k.into(), v.into()))).collect())
    }

    /// One value; empty when it was not given.
    #[must_use]
    pub fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    /// One value as a number; 0 when it is none.
    #[must_use]
    pub fn number(&self, key: &str) -> i64 {
        self.get(key).parse().unwrap_or(0)
    }
}

/// Limits of the machine that the attacks of group J are tried in; they try for more.
pub const LIMITS: (usize, usize, usize) = (resources::PIDS, resources::TMP, resources::FILES);

/// Every attack the probe knows, in the order of the escape list.
pub fn attacks() -> impl Iterator<Item = &'static Attack> {
    [
        files::ATTACKS,
        procfs::ATTACKS,
        processes::ATTACKS,
        scheduling::ATTACKS,
        privilege::ATTACKS,
        setid::ATTACKS,
        channels::ATTACKS,
        ipc::ATTACKS,
        network::ATTACKS,
        resources::ATTACKS,
        quotas::ATTACKS,
    ]
    .into_iter()
    .flatten()
}

/// Programs the runner needs inside that are no attack by themselves.
#[must_use]
pub fn storm(name: &str) -> Option<fn(&Args) -> Outcome> {
    storms::STORMS
        .iter()
        .chain(hoards::STORMS)
        .chain(starving::STORMS)
        .find(|(known, _)| *known == name)
        .map(|(_, run)| *run)
}
