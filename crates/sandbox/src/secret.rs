//! Secrets: values that this library neither prints nor saves, and the store that finds them by name.

mod forms;
mod mask;
mod seal;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::OnceLock,
};

pub use self::mask::{MaskStream, SecretMask};
use crate::{Result, SandboxError};

/// A secret value. It is never printed and never serialised; saved state holds the *name* of a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself.
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

/// Secrets by name, supplied by trusted code; a manifest contains only their names.
///
/// A value that a command prints is hidden in tool results, unless [`shown`](Self::shown) allows it.
///
/// ```
/// use sandbar_sandbox::SecretStore;
///
/// let secrets = SecretStore::new().with("TOKEN", "hunter22-hunter22").with("REGION", "eu-central-1").shown("REGION");
/// let mask = secrets.mask().expect("a secret that is hidden");
/// assert_eq!(mask.hide("hunter22-hunter22 in eu-central-1"), "[secret] in eu-central-1");
/// ```
#[derive(Clone, Debug, Default)]
pub struct SecretStore {
    known: BTreeMap<String, Secret>,
    /// Values whose name a merge gave to another value. They stay hidden.
    nameless: Vec<Secret>,
    /// Names of the secrets that tool results may show.
    shown: BTreeSet<String>,
    /// Built at first use.
    masks: OnceLock<Masks>,
}

#[derive(Clone, Debug)]
struct Masks {
    /// For tool results.
    answers: Option<SecretMask>,
    /// For audits and error messages.
    everything: Option<SecretMask>,
}

impl SecretStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a secret.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.known.insert(name.into(), Secret::new(value));
        self.masks = OnceLock::new();
        self
    }

    /// Allows the secret of this name in tool results: the model, the screen, the conversation and the trace then show
    /// it. Audits and error messages still hide it.
    #[must_use]
    pub fn shown(mut self, name: impl Into<String>) -> Self {
        self.shown.insert(name.into());
        self.masks = OnceLock::new();
        self
    }

    /// Whether there is a secret of this name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    /// The secrets of both stores. If both have a secret of one name, the name finds the value of `other`, and both
    /// values are hidden.
    #[must_use]
    pub fn merged(&self, other: &Self) -> Self {
        let mut merged = Self { masks: OnceLock::new(), ..self.clone() };
        merged.nameless.extend(other.nameless.iter().cloned());
        merged.shown.extend(other.shown.iter().cloned());
        for (name, secret) in &other.known {
            let before = merged.known.insert(name.clone(), secret.clone());
            merged.nameless.extend(before.filter(|before| before != secret));
        }
        merged
    }

    /// The secret of this name.
    ///
    /// # Errors
    /// `secret_not_found`, with the name and how to supply the secret; values are never part of a message.
    pub fn get(&self, name: &str) -> Result<&Secret> {
        self.known.get(name).ok_or_else(|| SandboxError::secret_not_found(name))
    }

    /// Names of the secrets that are too short to be hidden in tool results: fewer than 8 bytes.
    pub fn too_short(&self) -> impl Iterator<Item = &str> {
        let short = self.known.iter().filter(|(_, secret)| forms::parts(secret.expose()).is_empty());
        short.map(|(name, _)| name.as_str())
    }

    /// The mask for tool results; `None` if there is no value to hide and none to refer to.
    #[must_use]
    pub fn mask(&self) -> Option<SecretMask> {
        self.masks().answers.clone()
    }

    /// Hides every known value in a text, also those that tool results may show. Values shorter than 4 bytes are not
    /// hidden: they occur in so many other words that the text would be unreadable, and its gaps would reveal them.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        if self.known.is_empty() && self.nameless.is_empty() {
            return text.to_owned();
        }
        let text = match &self.masks().everything {
            Some(mask) => mask.hide(text).into_owned(),
            None => text.to_owned(),
        };
        let short = self.values().filter(|value| (4..forms::SHORTEST).contains(&value.len()));
        short.fold(text, |text, value| text.replace(value, "[secret]"))
    }

    fn values(&self) -> impl Iterator<Item = &str> {
        self.known.values().chain(&self.nameless).map(Secret::expose)
    }

    fn masks(&self) -> &Masks {
        self.masks.get_or_init(|| {
            let named = || self.known.iter().map(|(name, secret)| (name.as_str(), secret.expose()));
            let hidden = named().filter(|(name, _)| !self.shown.contains(*name)).map(|(_, value)| value);
            let hidden = hidden.chain(self.nameless.iter().map(Secret::expose));
            let answers = SecretMask::new(hidden, named());
            let everything =
                if self.shown.is_empty() { answers.clone() } else { SecretMask::new(self.values(), named()) };
            Masks { answers, everything }
        })
    }
}
