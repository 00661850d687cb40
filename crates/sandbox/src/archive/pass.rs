//! The two passes through an archive: the first checks it, the second sends it on.

use std::{
    fmt,
    io::{BufReader, Read, Seek},
};

use futures::{StreamExt, stream};
use sandbar_machine::ByteStream;
use tempfile::SpooledTempFile;
use tokio::task::spawn_blocking;

use super::{
    ArchiveLimits, Format, Policy, Summary, broken,
    cleaner::Cleaner,
    out::{Out, Use},
    spool::spool,
    tarball, zip,
};
use crate::{Result, SandboxError};

const BUFFER: usize = 64 << 10;
/// Largest window a Zstandard stream may request, as a power of two: the limit of the `zstd` program without `--long`.
const WINDOW: u32 = 27;

/// An archive whose members have all been checked.
pub struct Checked {
    spool: SpooledTempFile,
    job: Job,
    summary: Summary,
}

/// Parameters of a pass.
#[derive(Clone, Debug)]
struct Job {
    format: Format,
    limits: ArchiveLimits,
    policy: Policy,
    name: String,
}

impl Job {
    fn cleaner(&self, out: Out) -> Cleaner {
        Cleaner::new(&self.name, &self.limits, &self.policy, out)
    }
}

/// Stores the whole archive and checks all of it, contents included, before any of it can be passed on. Errors call the
/// archive `name`. The caller sets the deadline: this function waits for the input without a limit.
///
/// # Errors
/// `archive_refused`, `limit_exceeded`, or `workspace_archive_read_error` if the input breaks off.
pub async fn check(
    input: ByteStream,
    format: Format,
    limits: &ArchiveLimits,
    policy: &Policy,
    name: &str,
) -> Result<Checked> {
    let job = Job { format, limits: *limits, policy: policy.clone(), name: name.to_owned() };
    let mut spool = spool(input, limits, name).await?;
    let (out, pieces) = Out::new(Use::Drop);
    let mut cleaner = job.cleaner(out);
    let pass = spawn_blocking(move || {
        let summary = through_spool(&mut spool, format, &mut cleaner)?;
        Ok(Checked { spool, job, summary })
    });
    let checked = pass.await.map_err(|error| broken(name, "made its reader fail").because(error))?;
    // Kept alive until here: if this future is dropped, the receiver closes and the pass ends.
    drop(pieces);
    checked
}

impl Checked {
    /// Totals of its members.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// The archive as a clean tar stream. Dropping the stream ends the work behind it.
    #[must_use]
    pub fn into_tar(self) -> ByteStream {
        let Self { mut spool, job, .. } = self;
        let begin = async move {
            let (out, mut pieces) = Out::new(Use::Send);
            let mut cleaner = job.cleaner(out);
            drop(spawn_blocking(move || {
                if let Err(error) = through_spool(&mut spool, job.format, &mut cleaner) {
                    cleaner.fail(&error);
                }
            }));
            stream::poll_fn(move |task| pieces.poll_recv(task))
        };
        Box::pin(stream::once(begin).flatten())
    }
}

impl fmt::Debug for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checked").field("name", &self.job.name).field("summary", &self.summary).finish()
    }
}

fn through_spool(spool: &mut SpooledTempFile, format: Format, cleaner: &mut Cleaner) -> Result<Summary> {
    spool.rewind().map_err(|error| tarball::unreadable(cleaner.archive(), error))?;
    match format {
        Format::Zip => zip::pass(spool, cleaner),
        other => through(spool, other, cleaner),
    }
}

fn through(input: impl Read, format: Format, cleaner: &mut Cleaner) -> Result<Summary> {
    let input = BufReader::with_capacity(BUFFER, input);
    match format {
        Format::Tar => tarball::pass(input, cleaner),
        Format::TarGz => {
            tarball::pass(BufReader::with_capacity(BUFFER, flate2::bufread::MultiGzDecoder::new(input)), cleaner)
        }
        Format::TarZst => {
            let decoder = zstd::Decoder::with_buffer(input).and_then(|mut decoder| {
                decoder.window_log_max(WINDOW)?;
                Ok(decoder)
            });
            let decoder = decoder.map_err(|error| tarball::unreadable(cleaner.archive(), error))?;
            tarball::pass(BufReader::with_capacity(BUFFER, decoder), cleaner)
        }
        Format::Zip => Err(SandboxError::invalid_compression_scheme(cleaner.archive(), "zip")),
    }
}
