//! Directory entries from the guest's records, after checking that the records answer the request.

use std::{ffi::OsString, os::unix::ffi::OsStringExt};

use sandbar_guest::protocol::{Kind, Record, WireError};
use sandbar_machine::{DirEntry, EntryKind, MachinePath, Sha256, TreeEntry, TreeIndex};

/// The single record of a path. Its name is the requested one, not the one that the guest sent.
pub(super) fn single(mut records: Vec<Record>, path: &MachinePath) -> Result<DirEntry, WireError> {
    match (records.pop(), records.is_empty()) {
        (Some(record), true) => Ok(entry(record, path.name().unwrap_or(path.as_os_str()).to_owned())),
        _ => Err(WireError("not exactly one record")),
    }
}

/// The records of a directory, sorted by name.
pub(super) fn directory(records: Vec<Record>) -> Result<Vec<DirEntry>, WireError> {
    let mut entries = Vec::with_capacity(records.len());
    for mut record in records {
        if !plain(&record.path) {
            return Err(WireError("an entry's name is not a plain file name"));
        }
        let name = OsString::from_vec(std::mem::take(&mut record.path));
        entries.push(entry(record, name));
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    if entries.windows(2).any(|pair| matches!(pair, [a, b] if a.name == b.name)) {
        return Err(WireError("two entries have one name"));
    }
    Ok(entries)
}

/// The records of a tree: parents before children, siblings sorted by name.
pub(super) fn tree(mut records: Vec<Record>) -> Result<TreeIndex, WireError> {
    if !records.iter().all(|record| record.path.split(|byte| *byte == b'/').all(plain)) {
        return Err(WireError("an entry's path does not stay below the tree's root"));
    }
    let order = |a: &Record, b: &Record| parts(&a.path).cmp(parts(&b.path));
    if !records.is_sorted_by(|a, b| order(a, b).is_le()) {
        records.sort_by(order);
    }
    if records.windows(2).any(|pair| matches!(pair, [a, b] if a.path == b.path)) {
        return Err(WireError("two entries have one path"));
    }
    let entries = records.into_iter().map(|mut record| {
        let path = std::mem::take(&mut record.path);
        let name = parts(&path).next_back().unwrap_or_default().to_vec();
        let sha256 = record.sha256.map(Sha256);
        TreeEntry { path: OsString::from_vec(path), entry: entry(record, OsString::from_vec(name)), sha256 }
    });
    Ok(TreeIndex { entries: entries.collect() })
}

fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
}

fn plain(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/')
}

fn entry(record: Record, name: OsString) -> DirEntry {
    DirEntry {
        name,
        kind: match record.kind {
            Kind::File => EntryKind::File,
            Kind::Dir => EntryKind::Dir,
            Kind::Symlink => EntryKind::Symlink,
            Kind::Other => EntryKind::Other,
        },
        size: record.size,
        mode: record.mode,
        modified_ns: record.modified_ns,
        uid: record.uid,
        gid: record.gid,
        link: record.link.map(OsString::from_vec),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(paths: &[&str]) -> Vec<Record> {
        paths.iter().map(|path| Record { path: path.as_bytes().to_vec(), ..Record::default() }).collect()
    }

    #[test]
    fn a_tree_is_put_in_order_parents_first() {
        let index = tree(named(&["b", "a.txt", "a/x", "a", "a/b/c", "a/b"])).expect("tree");
        let paths: Vec<_> = index.entries.iter().map(|entry| entry.path.to_str().expect("text")).collect();
        assert_eq!(paths, ["a", "a/b", "a/b/c", "a/x", "a.txt", "b"]);
        assert_eq!(index.entries.get(2).expect("third").entry.name, "c");
    }

    #[test]
    fn paths_that_leave_the_tree_are_refused() {
        for bad in ["/etc/passwd", "..", "a/../../b", "", "a//b", "./a", "a/"] {
            assert!(tree(named(&[bad])).is_err(), "{bad:?}");
        }
        for bad in ["a/b", "..", ".", ""] {
            assert!(directory(named(&[bad])).is_err(), "{bad:?}");
        }
        assert!(directory(named(&["a", "a"])).is_err());
        assert!(tree(named(&["a", "b", "a"])).is_err());
    }
}
