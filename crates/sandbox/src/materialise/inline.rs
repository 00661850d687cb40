//! Entries whose bytes the manifest itself holds, as one tar stream, however many they are.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::stream;
use sandbar_machine::{
    ByteStream, Sha256,
    tar::{Kind, Member, end, padding},
};
use sha2::Digest;

use super::Receipt;
use crate::{Entry, WorkspacePath};

/// Members are put together until they are this long, as a message each would cost more than their bytes.
const BATCH: usize = 256 << 10;

/// A stream of all of them, in order, to be unpacked at the root, made as it is taken; and their receipts, when it is.
pub(super) fn archive(entries: &[(WorkspacePath, &Entry)]) -> (ByteStream, Arc<Mutex<Vec<Receipt>>>) {
    let receipts = Arc::new(Mutex::new(Vec::with_capacity(entries.len())));
    let mut members = Vec::with_capacity(entries.len());
    for (path, entry) in entries {
        let mode = entry.attributes().permissions.mode() & 0o777;
        let content = if let Entry::File(file) = entry { Some(file.content.bytes().clone()) } else { None };
        members.push((path.as_str().to_owned(), mode, content));
    }
    let book = receipts.clone();
    let batches = stream::unfold(Some(members.into_iter()), move |left| {
        let book = book.clone();
        async move {
            let mut left = left?;
            let mut batch = Vec::with_capacity(BATCH);
            for (path, mode, content) in left.by_ref() {
                let receipt = add(&mut batch, path, mode, content);
                book.lock().unwrap_or_else(PoisonError::into_inner).extend(receipt);
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
