//! Leftovers of dead clients at a provider: how they are found and removed.

use async_trait::async_trait;
use sandbar_machine::{MachineError, MachineHandle, Result};
use serde_json::Value;

use super::SessionList;

/// Finds and removes leftovers of dead clients. A resource whose state is not certain is retained.
#[async_trait]
pub trait Leftovers: Send + Sync {
    /// Lists the resources that are marked as this user's.
    ///
    /// # Errors
    /// [`MachineError`] if the provider cannot be reached.
    async fn find(&self, scope: Scope<'_>) -> Result<LeftoversFound>;

    /// Removes a leftover with [`Fate::Remove`]. Succeeds if the leftover is already gone.
    ///
    /// # Errors
    /// [`MachineError::StillBeingRemoved`] if the removal continues without this process; other errors if something
    /// remains.
    async fn remove(&self, leftover: &Leftover) -> Result<()>;
}

/// Which resources are searched.
#[derive(Clone, Copy)]
pub enum Scope<'a> {
    /// All resources of this user. The records are those of the sessions that machines may belong to.
    User(Option<&'a dyn SessionRecords>),
    /// Only machines that were created for these sessions.
    Sessions(&'a dyn SessionRecords),
}

impl<'a> Scope<'a> {
    /// The records of the sessions that machines may belong to.
    #[must_use]
    pub fn sessions(self) -> Option<&'a dyn SessionRecords> {
        match self {
            Self::User(sessions) => sessions,
            Self::Sessions(sessions) => Some(sessions),
        }
    }
}

/// Records of the sessions that machines may belong to.
pub trait SessionRecords: Send + Sync {
    /// The list that the sessions are in.
    fn list(&self) -> &SessionList;

    /// The machines of all sessions that existed or were being created at the time of the call. The caller lists the
    /// machines first: a machine that is in no record after that will never be in one.
    ///
    /// # Errors
    /// Why the machines cannot be determined: a session is just being created, or a record is damaged.
    fn handles(&self) -> Result<Vec<MachineHandle>, String>;
}

/// The result of a search for leftovers.
#[derive(Debug, Default)]
pub struct LeftoversFound {
    /// The address of the provider, if it has one.
    pub address: Option<String>,
    /// The leftovers, in the order in which they have to be removed.
    pub things: Vec<Leftover>,
    /// Notes for the user about retained resources.
    pub notes: Vec<String>,
    /// Errors of the parts that could not be searched.
    pub failures: Vec<MachineError>,
}

/// A resource of this user at a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Kind of the resource: `machine`, `container` or `volume`.
    pub kind: &'static str,
    /// The provider's name for the resource.
    pub name: String,
    /// Why the resource is removed or retained.
    pub why: String,
    /// What happens to the resource.
    pub fate: Fate,
    /// The provider's own data about the resource.
    pub state: Value,
}

/// What happens to a resource that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is removed.
    Remove,
    /// It is retained.
    Keep,
    /// Another process removes it.
    Removing,
}
