//! What a journal says about a patch: every file as it was and as it shall be, in a form that shows when it is damaged.

use bytes::Bytes;
use sandbar_machine::{Machine, MachinePath, Target};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Change, Content};
use crate::Paths;

const VERSION: u32 = 1;

/// The length of the digest at the end.
const DIGEST: usize = 32;

/// A patch that is being applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The number of the directory it changes.
    pub(super) inode: u64,
    /// Which start of the host it was written in.
    pub(super) boot: String,
    /// The machine that changes the files.
    pub(super) machine: Option<String>,
    pub(super) changes: Vec<RecordedChange>,
    /// Directories that it makes, parents first.
    pub(super) made: Vec<Vec<u8>>,
}

/// One file of it. Paths are relative to the workspace where they are inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordedChange {
    pub(super) path: Vec<u8>,
    pub(super) user: Option<String>,
    pub(super) before: Option<Content>,
    pub(super) after: Option<Content>,
}

impl Record {
    pub(super) fn new(machine: &dyn Machine, paths: &Paths, inode: u64, changes: &[Change], made: &[Target]) -> Self {
        let changes = changes.iter().map(|change| RecordedChange {
            path: relative(paths, &change.target.path),
            user: change.target.user.clone(),
            before: change.before.clone(),
            after: change.after.clone(),
        });
        let machine = machine.handle().state.get("id").and_then(|id| id.as_str()).map(str::to_owned);
        let made = made.iter().map(|target| relative(paths, &target.path)).collect();
        Self { inode, boot: boot(), machine, changes: changes.collect(), made }
    }

    pub(super) fn paths(&self) -> Vec<Vec<u8>> {
        self.changes.iter().map(|change| change.path.clone()).collect()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let content = |content: &Option<Content>| {
            content.as_ref().map(|content| WrittenContent { length: content.bytes.len(), mode: content.mode })
        };
        let header = Header {
            version: VERSION,
            inode: self.inode,
            boot: self.boot.clone(),
            machine: self.machine.clone(),
            changes: self
                .changes
                .iter()
                .map(|change| WrittenChange {
                    path: change.path.clone(),
                    user: change.user.clone(),
                    before: content(&change.before),
                    after: content(&change.after),
                })
                .collect(),
            made: self.made.clone(),
        };
        let header = serde_json::to_vec(&header).unwrap_or_default();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(&header);
        for content in self.changes.iter().flat_map(|change| [&change.before, &change.after]).flatten() {
            bytes.extend_from_slice(&content.bytes);
        }
        let digest = Sha256::digest(&bytes);
        bytes.extend_from_slice(&digest);
        bytes
    }

    /// Nothing if it is damaged.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (whole, digest) = bytes.split_at_checked(bytes.len().checked_sub(DIGEST)?)?;
        if Sha256::digest(whole).as_slice() != digest {
            return None;
        }
        let (length, rest) = whole.split_first_chunk::<8>()?;
        let (header, mut rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        let header: Header = serde_json::from_slice(header).ok().filter(|header: &Header| header.version == VERSION)?;
        let mut take = |written: Option<WrittenContent>| -> Option<Option<Content>> {
            let Some(WrittenContent { length, mode }) = written else { return Some(None) };
            let (bytes, after) = rest.split_at_checked(length)?;
            rest = after;
            Some(Some(Content { bytes: Bytes::copy_from_slice(bytes), mode }))
        };
        let mut changes = Vec::new();
        for WrittenChange { path, user, before, after } in header.changes {
            changes.push(RecordedChange { path, user, before: take(before)?, after: take(after)? });
        }
        let Header { inode, boot, machine, made, .. } = header;
        Some(Self { inode, boot, machine, changes, made })
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    inode: u64,
    boot: String,
    machine: Option<String>,
    changes: Vec<WrittenChange>,
    made: Vec<Vec<u8>>,
}

#[derive(Serialize, Deserialize)]
struct WrittenChange {
    path: Vec<u8>,
    user: Option<String>,
    before: Option<WrittenContent>,
    after: Option<WrittenContent>,
}

#[derive(Serialize, Deserialize)]
struct WrittenContent {
    length: usize,
    mode: u32,
}

/// The path below the workspace; the whole path where it is elsewhere.
fn relative(paths: &Paths, path: &MachinePath) -> Vec<u8> {
    let (root, bytes) = (paths.root().as_bytes(), path.as_bytes());
    let below = bytes.strip_prefix(root).map(|below| below.strip_prefix(b"/").unwrap_or(below));
    below.filter(|below| !below.is_empty() && path.is_within(paths.root())).unwrap_or(bytes).to_vec()
}

/// Which start of the host this is; nothing where it cannot be told.
pub(super) fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_never_when_it_is_damaged() {
        let content = |text: &'static str, mode| Some(Content { bytes: text.into(), mode });
        let change = |path: &[u8], before, after| RecordedChange { path: path.to_vec(), user: None, before, after };
        let record = Record {
            inode: 7,
            boot: "b".to_owned(),
            machine: Some("m".to_owned()),
            changes: vec![
                change(b"a/b", content("old", 0o600), content("new\n", 0o644)),
                change(b"\xff", None, content("", 0o644)),
                change(b"/data/x", content("gone", 0o755), None),
            ],
            made: vec![b"a".to_vec()],
        };
        let bytes = record.encode();
        assert_eq!(Record::decode(&bytes), Some(record));
        for cut in 0..bytes.len() {
            assert_eq!(Record::decode(&bytes[..cut]), None, "{cut}");
        }
        for place in (0..bytes.len()).step_by(7) {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0x20;
            assert_eq!(Record::decode(&damaged), None, "{place}");
        }
    }
}
