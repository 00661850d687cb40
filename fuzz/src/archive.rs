//! An archive from anywhere: the first byte is its format, the rest its bytes; what is passed on must be good itself.

use std::{num::NonZeroU64, sync::LazyLock};

use bytes::Bytes;
use futures::{StreamExt, stream};
use sandbar_sandbox::archive::{self, ArchiveLimits, Format, Links, Policy, Summary};
use tokio::runtime::{Builder, Runtime};

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_time().build().expect("a runtime"));

/// Checks an archive, and gives what it becomes.
async fn checked(bytes: &[u8], format: Format, policy: &Policy) -> Option<(Summary, Vec<u8>)> {
    let limits = ArchiveLimits { max_extracted_bytes: NonZeroU64::new(1 << 20), ..ArchiveLimits::default() };
    let input = stream::iter([Ok(Bytes::copy_from_slice(bytes))]).boxed();
    let checked = archive::check(input, format, &limits, policy, "archive").await.ok()?;
    let summary = checked.summary();
    let mut pieces = checked.into_tar();
    let mut tar = Vec::new();
    while let Some(piece) = pieces.next().await {
        tar.extend_from_slice(&piece.expect("what was checked can be read again"));
    }
    Some((summary, tar))
}

/// Whether the bytes were read to the end.
pub fn accepts(bytes: &[u8]) -> bool {
    let Some((kind, bytes)) = bytes.split_first() else { return false };
    let formats = [Format::Tar, Format::TarGz, Format::TarZst, Format::Zip];
    let links = [Links::Refuse, Links::KeepInside];
    let format = formats[usize::from(*kind) % formats.len()];
    let policy = Policy { links: links[usize::from(*kind) / formats.len() % links.len()], ..Policy::default() };
    RUNTIME.block_on(async {
        let Some((summary, tar)) = checked(bytes, format, &policy).await else { return false };
        let again = checked(&tar, Format::Tar, &policy).await.expect("what is passed on is good");
        assert_eq!(again.0, summary);
        true
    })
}
