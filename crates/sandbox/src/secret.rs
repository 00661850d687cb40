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
    /// Values that a merge has left without a name. They stay hidden.
    nameless: Vec<Secret>,
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

    /// Everything of both. Of two secrets with one name the other's is found; the values of both are hidden.
    #[must_use]
    pub fn merged(&self, other: &Self) -> Self {
        let mut merged = self.clone();
        merged.nameless.extend(other.nameless.iter().cloned());
        for (name, secret) in &other.known {
            let before = merged.known.insert(name.clone(), secret.clone());
            merged.nameless.extend(before.filter(|before| before != secret));
        }
        merged
    }

    /// The secret of this name.
    ///
    /// # Errors
    /// `secret_not_found`, naming it and where it can come from; values are never part of a message.
    pub fn get(&self, name: &str) -> Result<&Secret> {
        self.known.get(name).ok_or_else(|| SandboxError::secret_not_found(name))
    }

    /// Hides every known value in a text that is about to be shown. Values shorter than 4 bytes are not hidden: they are
    /// parts of so many other words that the text would be lost, and would give them away by its holes.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        let mut values: Vec<&str> =
            self.known.values().chain(&self.nameless).map(Secret::expose).filter(|value| value.len() >= 4).collect();
        // A secret may be a part of another one, whose rest would stay visible.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.into_iter().fold(text.to_owned(), |text, value| text.replace(value, "[secret]"))
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
        let nested = store.with("A", "hunter22-and-more");
        assert_eq!(nested.redact("hunter22-and-more"), "[secret]");
    }

    #[test]
    fn two_stores_become_one_that_hides_the_values_of_both() {
        let one = SecretStore::new().with("TOKEN", "hunter22").with("A", "only-here").with("B", "same-one");
        let other = SecretStore::new().with("TOKEN", "swordfish").with("B", "same-one").with("SHORT", "abc");
        let both = one.merged(&other);
        assert_eq!(both.get("TOKEN").unwrap().expose(), "swordfish");
        assert_eq!(both.get("A").unwrap().expose(), "only-here");
        let text = "hunter22 swordfish only-here same-one abc";
        assert_eq!(both.redact(text), "[secret] [secret] [secret] [secret] abc");
        assert_eq!(both.merged(&SecretStore::new()).redact(text), both.redact(text));
        assert_eq!(SecretStore::new().merged(&both).redact(text), both.redact(text));
    }

    #[test]
    fn a_missing_secret_is_named() {
        let error = SecretStore::new().get("TOKEN").unwrap_err();
        assert_eq!(error.code(), "secret_not_found");
        assert!(error.to_string().contains("TOKEN"));
    }
}
