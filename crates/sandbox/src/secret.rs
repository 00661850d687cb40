//! Secrets: values that are never printed and never saved, and the names by which they are found.

use std::{collections::BTreeMap, fmt};

use crate::{Result, SandboxError};

/// Never printed, never serialised. Saved state holds the *name* of a secret, not its value.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// Secrets by name, handed in by trusted code; manifests only ever name them.
#[derive(Clone, Debug, Default)]
pub struct SecretStore {
    known: BTreeMap<String, Secret>,
}

impl SecretStore {
    /// A store that knows nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same store with one more secret.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.known.insert(name.into(), Secret::new(value));
        self
    }

    /// The secret of this name.
    ///
    /// # Errors
    /// `secret_not_found`, naming it and where it can come from; values are never part of a message.
    pub fn get(&self, name: &str) -> Result<&Secret> {
        self.known.get(name).ok_or_else(|| SandboxError::secret_not_found(name))
    }

    /// Hides every known value in a text that is about to be shown.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        let values = self.known.values().filter(|secret| secret.0.len() >= 4);
        values.fold(text.to_owned(), |text, secret| text.replace(&secret.0, "[secret]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_printed() {
        let store = SecretStore::new().with("TOKEN", "hunter22");
        assert!(!format!("{store:?}").contains("hunter22"));
        assert_eq!(store.redact("git said: hunter22 is wrong"), "git said: [secret] is wrong");
        assert_eq!(store.get("TOKEN").unwrap().expose(), "hunter22");
    }

    #[test]
    fn a_missing_secret_is_named() {
        let error = SecretStore::new().get("TOKEN").unwrap_err();
        assert_eq!(error.code(), "secret_not_found");
        assert!(error.to_string().contains("TOKEN"));
    }
}
