//! A list of items with shared storage. The last owner appends without a copy.

use std::{ops::Deref, sync::Arc};

use serde::{Serialize, Serializer};

use super::Item;

/// Items in order, cheap to clone. A change copies the list first if another clone exists.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Items(Arc<Vec<Item>>);

impl Items {
    /// Adds an item at the end.
    pub fn push(&mut self, item: Item) {
        Arc::make_mut(&mut self.0).push(item);
    }

    /// Replaces the item at an index; does nothing if the index is out of range.
    pub(crate) fn replace(&mut self, place: usize, item: Item) {
        if let Some(slot) = Arc::make_mut(&mut self.0).get_mut(place) {
            *slot = item;
        }
    }

    /// Keeps the items for which the function returns `true`.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&Item) -> bool) {
        Arc::make_mut(&mut self.0).retain(keep);
    }

    /// The items as a vector; copied if another clone exists.
    #[must_use]
    pub fn into_vec(self) -> Vec<Item> {
        Arc::unwrap_or_clone(self.0)
    }
}

impl Serialize for Items {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl Deref for Items {
    type Target = [Item];

    fn deref(&self) -> &[Item] {
        &self.0
    }
}

impl From<Vec<Item>> for Items {
    fn from(items: Vec<Item>) -> Self {
        Self(Arc::new(items))
    }
}

impl FromIterator<Item> for Items {
    fn from_iter<I: IntoIterator<Item = Item>>(items: I) -> Self {
        Vec::from_iter(items).into()
    }
}

impl<'a> IntoIterator for &'a Items {
    type Item = &'a Item;
    type IntoIter = std::slice::Iter<'a, Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
