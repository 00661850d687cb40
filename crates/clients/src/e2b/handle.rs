//! The stored handle of a machine at E2B.

use std::time::Duration;

use sandbar_machine::{Lifetime, MachineError, MachineHandle, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{DETACHED, ID, OWNED};

/// The state of a handle: everything that another client needs to use the machine, without secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HandleState {
    pub(super) sandbox: String,
    pub(super) ports: Vec<u16>,
    pub(super) lifetime: StoredLifetime,
    /// How long a command without its own deadline may run.
    pub(super) time: Option<Duration>,
}

impl HandleState {
    pub(super) fn read(handle: &MachineHandle) -> Result<Self> {
        let bad = |reason: String| MachineError::invalid("handle", reason);
        if handle.client != ID {
            return Err(bad(format!("belongs to the client {:?}", handle.client)));
        }
        let state: Self = serde_json::from_value(handle.state.clone()).map_err(|error| bad(error.to_string()))?;
        if is_id(&state.sandbox) { Ok(state) } else { Err(bad("has no id of a sandbox".to_owned())) }
    }

    pub(super) fn handle(&self) -> MachineHandle {
        MachineHandle { client: ID.to_owned(), state: json!(self) }
    }
}

/// Whether a text can be the id of a sandbox. The id becomes part of addresses.
pub(super) fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// The lifetime of a machine, as its handle stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StoredLifetime {
    Owner,
    Detached,
    /// Lease in seconds without a client.
    Leased(u64),
}

impl StoredLifetime {
    pub(super) fn new(lifetime: Lifetime) -> Result<Self> {
        match lifetime {
            Lifetime::WithOwner => Ok(Self::Owner),
            Lifetime::Detached => Ok(Self::Detached),
            Lifetime::Leased(lease) => Ok(Self::Leased(lease.as_secs().max(1))),
            _ => Err(MachineError::Unsupported("keep a machine for this lifetime")),
        }
    }

    /// The timeout of the sandbox.
    pub(super) fn seconds(self) -> u64 {
        match self {
            Self::Owner => OWNED.as_secs(),
            Self::Detached => DETACHED.as_secs(),
            Self::Leased(seconds) => seconds,
        }
    }
}
