//! Writes a response body to disk; size and hash are checked before the file can be used.

use std::{
    fs::File,
    io::{Seek, SeekFrom},
};

use bytes::{Bytes, BytesMut};
use futures::stream;
use sandbar_http::Response;
use sandbar_machine::{ByteStream, MachineError, Sha256};
use sha2::Digest;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter};

use super::{Fetch, failure::Failure};
use crate::SandboxError;

const PIECE: usize = 256 << 10;
/// Longest accepted content type; a longer one is ignored.
const LONGEST_TYPE: usize = 255;

/// A fetched file.
#[derive(Debug)]
pub struct Download {
    /// The file, at its start. It has no name and is removed when it is closed.
    pub file: File,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the content.
    pub sha256: Sha256,
    /// Content type that the server sent.
    pub content_type: Option<String>,
}

impl Download {
    /// The content as a stream for a machine.
    #[must_use]
    pub fn into_stream(self) -> ByteStream {
        Box::pin(stream::try_unfold(tokio::fs::File::from_std(self.file), |mut file| async move {
            let mut piece = BytesMut::with_capacity(PIECE);
            let read = file.read_buf(&mut piece).await;
            let read = read.map_err(|error| MachineError::transport("read the fetched file", error))?;
            Ok((read > 0).then(|| (Bytes::from(piece), file)))
        }))
    }
}

/// Writes a body to disk, and checks its size and hash.
pub(super) async fn spool(fetch: &Fetch<'_>, mut answer: Response) -> Result<Download, Failure> {
    let announced = answer.announced();
    check_size(fetch, announced.unwrap_or(0))?;
    let disk = |error| fetch.reporter.disk(error);
    let file = tokio::task::spawn_blocking(tempfile::tempfile).await.map_err(|error| disk(error.into()))?;
    let mut file = BufWriter::with_capacity(PIECE, tokio::fs::File::from_std(file.map_err(disk)?));
    let (mut bytes, mut hash) = (0_u64, sha2::Sha256::new());
    loop {
        let piece = answer.chunk().await.map_err(|error| fetch.reporter.failed("it ends too early", error))?;
        let Some(piece) = piece else { break };
        bytes = bytes.saturating_add(piece.len() as u64);
        check_size(fetch, bytes)?;
        hash.update(&piece);
        file.write_all(&piece).await.map_err(disk)?;
    }
    if announced.is_some_and(|announced| announced != bytes) {
        return Err(fetch.reporter.refuse("it does not have the announced length"));
    }
    let sha256 = Sha256(hash.finalize().into());
    check_hash(fetch, sha256)?;
    file.flush().await.map_err(disk)?;
    let mut file = file.into_inner().into_std().await;
    file.seek(SeekFrom::Start(0)).map_err(disk)?;
    let content_type = answer.header("content-type");
    let content_type = content_type.filter(|text| text.len() <= LONGEST_TYPE).map(str::to_owned);
    Ok(Download { file, bytes, sha256, content_type })
}

fn check_size(fetch: &Fetch<'_>, bytes: u64) -> Result<(), Failure> {
    let limit = fetch.request.max_bytes;
    if bytes <= limit {
        return Ok(());
    }
    Err(SandboxError::limit_exceeded(&fetch.reporter.shown, limit, bytes).into())
}

fn check_hash(fetch: &Fetch<'_>, actual: Sha256) -> Result<(), Failure> {
    match fetch.request.sha256 {
        Some(expected) if expected != actual => {
            let (expected, actual) = (expected.to_string(), actual.to_string());
            Err(SandboxError::local_checksum_error(&fetch.reporter.shown, expected, actual).into())
        }
        _ => Ok(()),
    }
}
