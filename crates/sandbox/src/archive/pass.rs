//! Passes through an archive: one to look, one to pass it on, or one for both.

use std::{
    fmt,
    future::Future,
    io::{BufReader, Read, Seek},
    pin::Pin,
};

use futures::{StreamExt, stream};
use sandbar_machine::{ByteStream, MachineError};
use tempfile::SpooledTempFile;
use tokio::{sync::oneshot, task::spawn_blocking};

use super::{
    ArchiveLimits, Format, Policy, Summary, broken,
    cleaner::Cleaner,
    out::{Out, Use},
    spool::{Fed, feed, spool},
    tarball, zip,
};
use crate::{Result, SandboxError};

const BUFFER: usize = 64 << 10;
/// The largest window a Zstandard stream may ask for, as a power of two: what its programs use without `--long`.
const WINDOW: u32 = 27;

/// An archive of which every member was looked at and found good.
pub struct Checked {
    spool: SpooledTempFile,
    job: Job,
    summary: Summary,
}

/// What a pass needs to know.
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

/// Keeps the whole archive and looks at all of it, contents included, before any of it can be passed on. `name` is what
/// errors call it. Give it a deadline: it waits for the input as long as the input takes.
///
/// # Errors
/// `archive_refused`, `limit_exceeded`, or `workspace_archive_read_error` when the input breaks off.
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
    let looked = spawn_blocking(move || {
        let summary = through_spool(&mut spool, format, &mut cleaner)?;
        Ok(Checked { spool, job, summary })
    });
    let checked = looked.await.map_err(|error| broken(name, "made its reader fail").because(error))?;
    // Held until here: when this future is dropped, the pass ends.
    drop(pieces);
    checked
}

impl Checked {
    /// What is in it.
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

/// How a cleaned stream ended.
#[derive(Debug)]
pub struct Outcome {
    name: String,
    report: oneshot::Receiver<Result<Summary>>,
}

impl Outcome {
    /// What was in the archive, or why its stream ended early. Comes once the stream has ended or was dropped.
    ///
    /// # Errors
    /// As [`check`].
    pub async fn wait(self) -> Result<Summary> {
        let gone = |_dropped| {
            let reason = "nobody waited for all of it";
            Err(SandboxError::workspace_archive_read_error(self.name, reason))
        };
        self.report.await.unwrap_or_else(gone)
    }
}

/// Passes a clean tar stream on while the archive is still arriving; a fault found late ends a stream that has begun. A
/// zip archive is kept and checked as a whole first, as its directory comes last. The stream's errors carry only text;
/// the [`Outcome`] has the real one.
#[must_use]
pub fn clean(
    input: ByteStream,
    format: Format,
    limits: &ArchiveLimits,
    policy: &Policy,
    name: &str,
) -> (ByteStream, Outcome) {
    let job = Job { format, limits: *limits, policy: policy.clone(), name: name.to_owned() };
    let (report, outcome) = oneshot::channel();
    let outcome = Outcome { name: name.to_owned(), report: outcome };
    let begin = async move {
        if format == Format::Zip { whole(input, job, report).await } else { piecewise(input, job, report) }
    };
    (Box::pin(stream::once(begin).flatten()), outcome)
}

/// A stream that begins after everything was checked.
async fn whole(input: ByteStream, job: Job, report: oneshot::Sender<Result<Summary>>) -> ByteStream {
    let checked = check(input, job.format, &job.limits, &job.policy, &job.name).await;
    let (stream, result): (ByteStream, _) = match checked {
        Ok(checked) => {
            let summary = checked.summary;
            (checked.into_tar(), Ok(summary))
        }
        Err(error) => {
            let shown = MachineError::invalid(job.name, error.full_message());
            (Box::pin(stream::iter([Err(shown)])), Err(error))
        }
    };
    let _nobody_asks = report.send(result);
    stream
}

/// A stream that is fed while it is read.
fn piecewise(input: ByteStream, job: Job, report: oneshot::Sender<Result<Summary>>) -> ByteStream {
    let (out, mut pieces) = Out::new(Use::Send);
    let (sender, fed) = Fed::new();
    let mut cleaner = job.cleaner(out);
    drop(spawn_blocking(move || {
        let result = through(fed, job.format, &mut cleaner);
        if let Err(error) = &result {
            cleaner.fail(error);
        }
        let _nobody_asks = report.send(result);
    }));
    let (limits, name) = (job.limits, job.name);
    let mut feeding: Option<Pin<Box<dyn Future<Output = ()> + Send>>> =
        Some(Box::pin(async move { feed(input, &limits, name, sender).await }));
    Box::pin(stream::poll_fn(move |task| {
        if feeding.as_mut().is_some_and(|feeding| feeding.as_mut().poll(task).is_ready()) {
            feeding = None;
        }
        pieces.poll_recv(task)
    }))
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
