//! The paths that an archive has used so far, to detect two members with one path.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
};

/// Number of paths that are stored; each takes about 64 bytes.
const LIMIT: usize = 4 << 20;

/// What an archive has at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// A directory without a member of its own so far.
    Implied,
    /// A directory.
    Dir,
    /// A file, with its size.
    File(u64),
    /// A symbolic link.
    Symlink,
}

/// Why a path cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clash {
    /// The path is already used.
    Twice,
    /// A parent of the path is a file or a link.
    Below,
    /// There are too many paths.
    Full,
}

/// 128-bit hash of a path. The keys are random for every archive, so an attacker cannot construct a collision.
type PathHash = (u64, u64);

/// Every path in use.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: HashMap<PathHash, Node>,
    keys: (RandomState, RandomState),
    limit: usize,
}

impl Tree {
    pub(super) const LIMIT: u64 = LIMIT as u64;

    pub(super) fn new() -> Self {
        Self::with_limit(LIMIT)
    }

    fn with_limit(limit: usize) -> Self {
        Self { nodes: HashMap::new(), keys: (RandomState::new(), RandomState::new()), limit }
    }

    /// Adds a path and its parent directories.
    pub(super) fn put(&mut self, parts: &[&[u8]], node: Node) -> Result<(), Clash> {
        let Some((last, above)) = parts.split_last() else { return Err(Clash::Twice) };
        let mut path = PathHash::default();
        for part in above {
            path = self.hash(path, part);
            match self.nodes.get(&path) {
                Some(Node::Dir | Node::Implied) => {}
                Some(Node::File(_) | Node::Symlink) => return Err(Clash::Below),
                None => self.insert(path, Node::Implied)?,
            }
        }
        path = self.hash(path, last);
        match self.nodes.get(&path) {
            None => self.insert(path, node),
            Some(Node::Implied) if node == Node::Dir => self.insert(path, node),
            Some(_) => Err(Clash::Twice),
        }
    }

    /// What is at a path.
    pub(super) fn get(&self, parts: &[&[u8]]) -> Option<Node> {
        let path = parts.iter().fold(PathHash::default(), |path, part| self.hash(path, part));
        self.nodes.get(&path).copied()
    }

    fn hash(&self, parent: PathHash, name: &[u8]) -> PathHash {
        (self.keys.0.hash_one((parent, name)), self.keys.1.hash_one((parent, name)))
    }

    fn insert(&mut self, path: PathHash, node: Node) -> Result<(), Clash> {
        self.nodes.insert(path, node);
        if self.nodes.len() > self.limit { Err(Clash::Full) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths that are added in order, and the result of the last one.
    type Row<'a> = (&'a [(&'a str, Node)], Result<(), Clash>);

    fn parts(path: &str) -> Vec<&[u8]> {
        path.split('/').map(str::as_bytes).collect()
    }

    #[test]
    fn a_path_is_used_once() {
        let table: &[Row<'_>] = &[
            (&[("a/b", Node::File(1)), ("a", Node::Dir)], Ok(())),
            (&[("a", Node::Dir), ("a/b/c", Node::File(1)), ("a/d", Node::Symlink)], Ok(())),
            (&[("a", Node::Dir), ("a", Node::Dir)], Err(Clash::Twice)),
            (&[("a/b", Node::File(1)), ("a", Node::Dir), ("a", Node::Dir)], Err(Clash::Twice)),
            (&[("a", Node::File(1)), ("a", Node::File(1))], Err(Clash::Twice)),
            (&[("a", Node::File(1)), ("a", Node::Dir)], Err(Clash::Twice)),
            (&[("a/b", Node::File(1)), ("a", Node::File(1))], Err(Clash::Twice)),
            (&[("a/b", Node::File(1)), ("a", Node::Symlink)], Err(Clash::Twice)),
            (&[("a", Node::File(1)), ("a/b", Node::File(1))], Err(Clash::Below)),
            (&[("a", Node::Symlink), ("a/b/c", Node::Dir)], Err(Clash::Below)),
        ];
        for (puts, expected) in table {
            let mut tree = Tree::new();
            let last = puts.iter().map(|(path, node)| tree.put(&parts(path), *node)).last();
            assert_eq!(last.as_ref(), Some(expected), "{puts:?}");
        }
    }

    #[test]
    fn the_number_of_paths_is_limited() {
        let mut tree = Tree::with_limit(10);
        let names: Vec<String> = (0..10).map(|at| at.to_string()).collect();
        for name in &names {
            assert_eq!(tree.put(&parts(name), Node::File(0)), Ok(()));
        }
        assert_eq!(tree.put(&parts("more"), Node::Dir), Err(Clash::Full));
        let mut tree = Tree::with_limit(10);
        assert_eq!(tree.put(&parts(&names.join("/")), Node::Dir), Ok(()));
        assert_eq!(tree.put(&parts("0/1/2"), Node::Dir), Ok(()), "it was counted already");
        assert_eq!(tree.put(&parts("0/1/more"), Node::Dir), Err(Clash::Full));
        assert_eq!((tree.get(&parts("0/1")), tree.get(&parts("1"))), (Some(Node::Implied), None));
    }
}
