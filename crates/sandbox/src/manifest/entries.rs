//! Entries by their paths, in the order they were given; what cannot be one is kept as a fault.

use std::ops::Deref;

use indexmap::{IndexMap, map::Entry as Slot};
use serde::{Serialize, Serializer};

use super::fault::{At, Fault, Faults};
use crate::{Entry, PathFault, WorkspacePath};

/// What is in a workspace or a directory, by path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entries {
    map: IndexMap<WorkspacePath, Entry>,
    faults: Faults,
}

impl Entries {
    /// Nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry. A path that cannot be, or that is there already, is kept as a fault of the manifest.
    pub fn insert(&mut self, path: impl AsRef<str>, entry: impl Into<Entry>) {
        let given = path.as_ref();
        match WorkspacePath::new(given) {
            Ok(path) => match self.map.entry(path) {
                Slot::Vacant(slot) => {
                    slot.insert(entry.into());
                }
                Slot::Occupied(_) => self.faults.push(Fault::path(&At::Here.key(given), given, PathFault::Duplicate)),
            },
            Err(error) => self.faults.push(Fault::of_path(&At::Here.key(given), given, &error)),
        }
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = (&WorkspacePath, &mut Entry)> {
        self.map.iter_mut()
    }

    /// What could not be added.
    pub(super) fn faults(&self) -> &Faults {
        &self.faults
    }

    pub(super) fn extend(&mut self, other: Self) {
        for (path, entry) in other.map {
            self.insert(path.as_str(), entry);
        }
        self.faults.extend(other.faults);
    }

    pub(super) fn flatten_into<'a>(
        &'a self,
        below: Option<&WorkspacePath>,
        flat: &mut Vec<(WorkspacePath, &'a Entry)>,
    ) {
        for (path, entry) in &self.map {
            let path = below.map_or_else(|| path.clone(), |below| below.join(path));
            let children = entry.as_dir().map(|dir| &dir.children);
            let inside = children.filter(|children| !children.is_empty()).map(|children| (children, path.clone()));
            flat.push((path, entry));
            if let Some((children, path)) = inside {
                children.flatten_into(Some(&path), flat);
            }
        }
    }
}

impl Deref for Entries {
    type Target = IndexMap<WorkspacePath, Entry>;

    fn deref(&self) -> &Self::Target {
        &self.map
    }
}

impl Serialize for Entries {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.map.serialize(serializer)
    }
}
