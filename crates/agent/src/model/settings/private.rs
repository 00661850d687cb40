//! Headers and query parameters whose values may be secret: they are sent, but never printed or saved.

use std::{collections::BTreeMap, fmt, ops::Deref};

/// Names with values that may be secret. `Debug` prints only the names.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Private(BTreeMap<String, String>);

impl Private {
    /// Adds a name and its value.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// Merges two sets; values of `over` take precedence.
    pub(super) fn overlaid(&self, over: &Self) -> Self {
        Self(self.0.iter().chain(&over.0).map(|(name, value)| (name.clone(), value.clone())).collect())
    }
}

impl Deref for Private {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<const N: usize> From<[(String, String); N]> for Private {
    fn from(pairs: [(String, String); N]) -> Self {
        Self(pairs.into())
    }
}

impl fmt::Debug for Private {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
