//! The tree that the members of an archive would make, remembered to find two for one place.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
};

/// How many places are remembered; each takes about 64 bytes.
const LIMIT: usize = 4 << 20;

/// What is at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A directory that no member named yet.
    Implied,
    /// A directory.
    Dir,
    /// A file, with its size.
    File(u64),
    /// A symbolic link.
    Symlink,
}

/// Why something cannot be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clash {
    /// The place is taken.
    Twice,
    /// Something above it is a file or a link.
    Below,
    /// There are too many places.
    Full,
}

/// A path, as 128 bits. Their keys are new for every archive, so nobody can choose two paths that have the same.
type Mark = (u64, u64);

/// Every place a member took.
#[derive(Debug)]
pub(super) struct Tree {
    places: HashMap<Mark, Place>,
    keys: (RandomState, RandomState),
    limit: usize,
}

impl Tree {
    pub(super) const LIMIT: u64 = LIMIT as u64;

    pub(super) fn new() -> Self {
        Self::with_limit(LIMIT)
    }

    fn with_limit(limit: usize) -> Self {
        Self { places: HashMap::new(), keys: (RandomState::new(), RandomState::new()), limit }
    }

    /// Takes a place, and those of the directories above it.
    pub(super) fn put(&mut self, parts: &[&[u8]], place: Place) -> Result<(), Clash> {
        let Some((last, above)) = parts.split_last() else { return Err(Clash::Twice) };
        let mut here = Mark::default();
        for part in above {
            here = self.mark(here, part);
            match self.places.get(&here) {
                Some(Place::Dir | Place::Implied) => {}
                Some(Place::File(_) | Place::Symlink) => return Err(Clash::Below),
                None => self.take(here, Place::Implied)?,
            }
        }
        here = self.mark(here, last);
        match self.places.get(&here) {
            None => self.take(here, place),
            Some(Place::Implied) if place == Place::Dir => self.take(here, place),
            Some(_) => Err(Clash::Twice),
        }
    }

    /// What is at a place.
    pub(super) fn get(&self, parts: &[&[u8]]) -> Option<Place> {
        let here = parts.iter().fold(Mark::default(), |here, part| self.mark(here, part));
        self.places.get(&here).copied()
    }

    fn mark(&self, above: Mark, name: &[u8]) -> Mark {
        (self.keys.0.hash_one((above, name)), self.keys.1.hash_one((above, name)))
    }

    fn take(&mut self, here: Mark, place: Place) -> Result<(), Clash> {
        self.places.insert(here, place);
        if self.places.len() > self.limit { Err(Clash::Full) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is put in order, and how the last one goes.
    type Row<'a> = (&'a [(&'a str, Place)], Result<(), Clash>);

    fn parts(path: &str) -> Vec<&[u8]> {
        path.split('/').map(str::as_bytes).collect()
    }

    #[test]
    fn a_place_is_taken_once() {
        let table: &[Row<'_>] = &[
            (&[("a/b", Place::File(1)), ("a", Place::Dir)], Ok(())),
            (&[("a", Place::Dir), ("a/b/c", Place::File(1)), ("a/d", Place::Symlink)], Ok(())),
            (&[("a", Place::Dir), ("a", Place::Dir)], Err(Clash::Twice)),
            (&[("a/b", Place::File(1)), ("a", Place::Dir), ("a", Place::Dir)], Err(Clash::Twice)),
            (&[("a", Place::File(1)), ("a", Place::File(1))], Err(Clash::Twice)),
            (&[("a", Place::File(1)), ("a", Place::Dir)], Err(Clash::Twice)),
            (&[("a/b", Place::File(1)), ("a", Place::File(1))], Err(Clash::Twice)),
            (&[("a/b", Place::File(1)), ("a", Place::Symlink)], Err(Clash::Twice)),
            (&[("a", Place::File(1)), ("a/b", Place::File(1))], Err(Clash::Below)),
            (&[("a", Place::Symlink), ("a/b/c", Place::Dir)], Err(Clash::Below)),
        ];
        for (puts, expected) in table {
            let mut tree = Tree::new();
            let last = puts.iter().map(|(path, place)| tree.put(&parts(path), *place)).last();
            assert_eq!(last.as_ref(), Some(expected), "{puts:?}");
        }
    }

    #[test]
    fn places_are_remembered_only_so_far() {
        let mut tree = Tree::with_limit(10);
        let names: Vec<String> = (0..10).map(|at| at.to_string()).collect();
        for name in &names {
            assert_eq!(tree.put(&parts(name), Place::File(0)), Ok(()));
        }
        assert_eq!(tree.put(&parts("more"), Place::Dir), Err(Clash::Full));
        let mut tree = Tree::with_limit(10);
        assert_eq!(tree.put(&parts(&names.join("/")), Place::Dir), Ok(()));
        assert_eq!(tree.put(&parts("0/1/2"), Place::Dir), Ok(()), "it was counted already");
        assert_eq!(tree.put(&parts("0/1/more"), Place::Dir), Err(Clash::Full));
        assert_eq!((tree.get(&parts("0/1")), tree.get(&parts("1"))), (Some(Place::Implied), None));
    }
}
