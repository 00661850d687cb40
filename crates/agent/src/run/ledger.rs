//! Every call of a run by its id, so that none is made twice and none is mistaken for another.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{Item, environment::KnownSecrets};

/// Every call by its id.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Ledger(BTreeMap<String, Entry>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    fingerprint: String,
    completed: bool,
}

/// What the ledger knows about a call that comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing.
    New,
    /// The very same call, and it was answered.
    Completed,
    /// The very same call, not answered yet.
    Open,
    /// Another call with this id.
    Clash,
}

impl Ledger {
    pub(crate) fn look(&self, call_id: &str, call: &Item, secrets: Option<&dyn KnownSecrets>) -> Known {
        match self.0.get(call_id) {
            None => Known::New,
            Some(entry) if entry.fingerprint != fingerprint(call, secrets) => Known::Clash,
            Some(Entry { completed: true, .. }) => Known::Completed,
            Some(Entry { completed: false, .. }) => Known::Open,
        }
    }

    pub(crate) fn open(&mut self, call_id: &str, call: &Item, secrets: Option<&dyn KnownSecrets>) {
        let entry = Entry { fingerprint: fingerprint(call, secrets), completed: false };
        self.0.insert(call_id.to_owned(), entry);
    }

    pub(crate) fn complete(&mut self, call_id: &str) {
        if let Some(entry) = self.0.get_mut(call_id) {
            entry.completed = true;
        }
    }
}

/// What makes two calls the same: kind, name and what they are called with; not the server's id or status. It is saved, so
/// secrets count by their names: a digest of their values would let a guess be checked.
fn fingerprint(call: &Item, secrets: Option<&dyn KnownSecrets>) -> String {
    let mut hash = Sha256::new();
    for field in ["type", "name", "namespace", "arguments", "input"] {
        let text = call.text_field(field).unwrap_or_default();
        let sealed = secrets.and_then(|secrets| secrets.seal(text, ""));
        let text = sealed.as_ref().map_or(text, |(sealed, _)| sealed);
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
