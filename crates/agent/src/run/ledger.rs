//! Ledger of all calls of a run, by id: no call is made twice, and an id that is reused for another call is detected.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{Item, environment::KnownSecrets};

/// All calls by id.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Ledger(BTreeMap<String, Entry>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    fingerprint: String,
    completed: bool,
}

/// What the ledger knows about a new call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LedgerMatch {
    /// The id is new.
    New,
    /// The same call was answered.
    Completed,
    /// The same call is not answered yet.
    Open,
    /// The id belongs to a different call.
    Clash,
}

impl Ledger {
    pub(crate) fn lookup(&self, call_id: &str, call: &Item, secrets: Option<&dyn KnownSecrets>) -> LedgerMatch {
        match self.0.get(call_id) {
            None => LedgerMatch::New,
            Some(entry) if entry.fingerprint != fingerprint(call, secrets) => LedgerMatch::Clash,
            Some(Entry { completed: true, .. }) => LedgerMatch::Completed,
            Some(Entry { completed: false, .. }) => LedgerMatch::Open,
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

/// Fingerprint of a call: kind, name and arguments, without the server's id and status. Because it is saved, secrets are
/// replaced by their names: a digest of their values could be used to check guesses.
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
