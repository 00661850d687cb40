//! Sends entries whose content is in the manifest as one tar stream.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use futures::stream;
use parking_lot::Mutex;
use sandbar_machine::{
    ByteStream, Sha256,
    tar::{Kind, Member, end, padding},
};
use sha2::Digest;

use super::Receipt;
use crate::{Entry, EntryGroup, WorkspacePath};

/// Members are collected until they have this many bytes: one message per member would cost more than its bytes.
const BATCH: usize = 256 << 10;

/// One member of an archive: its path, its permissions, and its content if it is a file.
pub(super) type Piece = (String, u32, Option<Bytes>);

/// Archives for the entries, in this order. One archive is enough for one group; for several groups there is one archive for
/// each, since an archive is unpacked with one group. Then more archives follow that set the group and permissions of
/// directories, after everything is in them.
pub(super) fn batches<'a>(entries: &[(WorkspacePath, &'a Entry)]) -> Vec<(Option<&'a str>, Vec<Piece>)> {
    let mut filling: BTreeMap<Option<&str>, Vec<Piece>> = BTreeMap::new();
    let mut closing: BTreeMap<Option<&str>, Vec<Piece>> = BTreeMap::new();
    for (path, entry) in entries {
        let group = entry.attributes().group.as_ref().map(EntryGroup::name);
        let mode = entry.attributes().permissions.mode() & 0o777;
        let content = if let Entry::File(file) = entry { Some(file.content.bytes().clone()) } else { None };
        if content.is_none() {
            closing.entry(group).or_default().push((path.as_str().to_owned(), mode, None));
        }
        filling.entry(group).or_default().push((path.as_str().to_owned(), mode, content));
    }
    if filling.len() <= 1 {
        return filling.into_iter().collect();
    }
    for (_, mode, content) in filling.values_mut().flatten() {
        if content.is_none() {
            *mode = 0o700;
        }
    }
    filling.into_iter().chain(closing).collect()
}

/// Puts receipts into the order of their entries.
pub(super) fn in_order(receipts: &mut [Receipt], entries: &[(WorkspacePath, &Entry)]) {
    let order: HashMap<&str, usize> = entries.iter().enumerate().map(|(at, (path, _))| (path.as_str(), at)).collect();
    receipts.sort_by_key(|receipt| order.get(receipt.path.as_str()).copied());
}

/// Tar stream of the members, in order, to be unpacked at the root. Receipts are added while the stream is read.
pub(super) fn archive(members: Vec<Piece>) -> (ByteStream, Arc<Mutex<Vec<Receipt>>>) {
    let receipts = Arc::new(Mutex::new(Vec::with_capacity(members.len())));
    let written = receipts.clone();
    let batches = stream::unfold(Some(members.into_iter()), move |left| {
        let written = written.clone();
        async move {
            let mut left = left?;
            let mut batch = Vec::with_capacity(BATCH);
            for (path, mode, content) in left.by_ref() {
                let receipt = add(&mut batch, path, mode, content);
                written.lock().extend(receipt);
                if batch.len() >= BATCH {
                    return Some((Ok(Bytes::from(batch)), Some(left)));
                }
            }
            batch.extend_from_slice(&end());
            Some((Ok(Bytes::from(batch)), None))
        }
    });
    (Box::pin(batches), receipts)
}

fn add(batch: &mut Vec<u8>, path: String, mode: u32, content: Option<Bytes>) -> Option<Receipt> {
    let kind = if content.is_some() { Kind::File } else { Kind::Dir };
    let mut member = Member::new(kind, path.as_bytes(), mode);
    member.size = content.as_ref().map_or(0, |content| content.len() as u64);
    batch.extend_from_slice(&member.encode());
    let content = content?;
    batch.extend_from_slice(&content);
    batch.resize(batch.len() + padding(member.size), 0);
    let sha256 = Sha256(sha2::Sha256::digest(&content).into());
    Some(Receipt { path, sha256, bytes: member.size, revision: None })
}
