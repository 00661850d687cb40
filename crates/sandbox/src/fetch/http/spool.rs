//! A body on its way to disk: counted, hashed, and checked before anyone sees it.

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

use super::{Errand, trouble::Trouble};
use crate::SandboxError;

const PIECE: usize = 256 << 10;
/// A longer name of a type is none.
const LONGEST_TYPE: usize = 255;

/// What was fetched.
#[derive(Debug)]
pub struct Download {
    /// Its bytes, from the start: a file without a name, gone when it is closed.
    pub file: File,
    /// How many there are.
    pub bytes: u64,
    /// Their digest.
    pub sha256: Sha256,
    /// What the server says it is.
    pub content_type: Option<String>,
}

impl Download {
    /// The bytes as a machine takes them.
    #[must_use]
    pub fn into_stream(self) -> ByteStream {
        Box::pin(stream::try_unfold(tokio::fs::File::from_std(self.file), |mut file| async move {
            let mut piece = BytesMut::with_capacity(PIECE);
            let read = file.read_buf(&mut piece).await;
            let read = read.map_err(|error| MachineError::transport("read what was fetched", error))?;
            Ok((read > 0).then(|| (Bytes::from(piece), file)))
        }))
    }
}

/// Writes a body to disk, if it is what was asked for.
pub(super) async fn spool(errand: &Errand<'_>, mut answer: Response) -> Result<Download, Trouble> {
    let announced = answer.announced();
    check_size(errand, announced.unwrap_or(0))?;
    let disk = |error| errand.voice.disk(error);
    let file = tokio::task::spawn_blocking(tempfile::tempfile).await.map_err(|error| disk(error.into()))?;
    let mut file = BufWriter::with_capacity(PIECE, tokio::fs::File::from_std(file.map_err(disk)?));
    let (mut bytes, mut hash) = (0_u64, sha2::Sha256::new());
    loop {
        let piece = answer.chunk().await.map_err(|error| errand.voice.failed("it ends too early", error))?;
        let Some(piece) = piece else { break };
        bytes = bytes.saturating_add(piece.len() as u64);
        check_size(errand, bytes)?;
        hash.update(&piece);
        file.write_all(&piece).await.map_err(disk)?;
    }
    if announced.is_some_and(|announced| announced != bytes) {
        return Err(errand.voice.refuse("it is not as long as announced"));
    }
    let sha256 = Sha256(hash.finalize().into());
    check_hash(errand, sha256)?;
    file.flush().await.map_err(disk)?;
    let mut file = file.into_inner().into_std().await;
    file.seek(SeekFrom::Start(0)).map_err(disk)?;
    let content_type = answer.header("content-type");
    let content_type = content_type.filter(|text| text.len() <= LONGEST_TYPE).map(str::to_owned);
    Ok(Download { file, bytes, sha256, content_type })
}

fn check_size(errand: &Errand<'_>, bytes: u64) -> Result<(), Trouble> {
    let limit = errand.request.max_bytes;
    if bytes <= limit {
        return Ok(());
    }
    Err(SandboxError::limit_exceeded(&errand.voice.shown, limit, bytes).into())
}

fn check_hash(errand: &Errand<'_>, actual: Sha256) -> Result<(), Trouble> {
    match errand.request.sha256 {
        Some(expected) if expected != actual => {
            let (expected, actual) = (expected.to_string(), actual.to_string());
            Err(SandboxError::local_checksum_error(&errand.voice.shown, expected, actual).into())
        }
        _ => Ok(()),
    }
}
