//! Creation of machines and sessions. A signal interrupts it at any point, and nothing is left then.

use std::{pin::pin, sync::Arc, time::Duration};

use sandbar::{
    Machine, MachineSpec, SandboxClient, SandboxError, SandboxSession, SessionOptions, SessionState, Signal,
    sandbox::Materialised,
};
use sandbar_runs::CancellationToken;
use tokio::time::{Instant, timeout};

use crate::{failure::Failure, streams::signals::Signals};

/// Time limit for the removal of a machine whose creation was interrupted.
const MACHINE_REMOVAL: Duration = Duration::from_secs(5);

/// Time limit for the removal of a session: its supervisor deletes a tree.
const REMOVAL: Duration = Duration::from_secs(60);

/// Callback that saves the record of a session before its machine can outlive this process.
pub(crate) type Record<'a> = dyn Fn(&SessionState) -> Result<(), SandboxError> + Send + Sync + 'a;

/// Why the creation ended early.
#[derive(Debug)]
pub(crate) enum Halt {
    /// A signal arrived.
    Signal(Signal),
    /// The creation failed.
    Failed(Box<Failure>),
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

impl From<sandbar_runs::Error> for Halt {
    fn from(error: sandbar_runs::Error) -> Self {
        Failure::from(error).into()
    }
}

impl From<SandboxError> for Halt {
    fn from(error: SandboxError) -> Self {
        Failure::from(error).into()
    }
}

/// Creates a machine. After a signal, the creation is still awaited, which is quick, so that the machine can be removed before
/// this process exits.
pub(crate) async fn machine(
    client: Arc<dyn SandboxClient>,
    spec: MachineSpec,
    signals: &mut Signals,
) -> Result<Arc<dyn Machine>, Halt> {
    let begun = Instant::now();
    let undo = |machine: Arc<dyn Machine>| async move { machine.stop().await.is_ok() };
    let making = async { client.create(spec).await.map_err(Failure::from) };
    let machine = made(making, undo, (MACHINE_REMOVAL, SecondSignal::Interrupts), signals).await?;
    report(machine.as_ref(), begun);
    Ok(machine)
}

/// What a second signal does while the result of an interrupted creation is removed.
enum SecondSignal {
    Waits,
    Interrupts,
}

/// Awaits a creation. After a signal, the creation is still awaited, and its result is removed.
async fn made<T, E: Into<Halt>, U: Future<Output = bool>>(
    making: impl Future<Output = Result<T, E>>,
    undo: impl FnOnce(T) -> U,
    (patience, second): (Duration, SecondSignal),
    signals: &mut Signals,
) -> Result<T, Halt> {
    let mut making = pin!(making);
    let signal = tokio::select! {
        made = &mut making => return made.map_err(E::into),
        signal = signals.next() => signal,
    };
    let removal = timeout(patience, async {
        match making.await {
            Ok(made) => undo(made).await,
            Err(_) => true,
        }
    });
    tokio::select! {
        _best_effort = removal => {}
        _again = signals.next(), if matches!(second, SecondSignal::Interrupts) => {}
    }
    Err(Halt::Signal(signal))
}

/// Creates a session, whose workspace is not filled yet. Its machine can outlive this process, so a second signal does not
/// interrupt the removal.
pub(crate) async fn session(
    client: Arc<dyn SandboxClient>,
    options: SessionOptions,
    signals: &mut Signals,
) -> Result<SandboxSession, Halt> {
    recorded(client, options, &|_state| Ok(()), signals).await
}

/// Creates a session whose record is saved before its machine can outlive this process.
pub(crate) async fn recorded(
    client: Arc<dyn SandboxClient>,
    options: SessionOptions,
    record: &Record<'_>,
    signals: &mut Signals,
) -> Result<SandboxSession, Halt> {
    let begun = Instant::now();
    let undo = |session: SandboxSession| async move { session.delete().await.is_ok() };
    let making = SandboxSession::create_recorded(client, options, record);
    let session = made(making, undo, (REMOVAL, SecondSignal::Waits), signals).await?;
    report(session.machine().as_ref(), begun);
    Ok(session)
}

/// Fills the workspace of a session. After an error or a signal, the session is deleted.
pub(crate) async fn fill(session: &SandboxSession, signals: &mut Signals) -> Result<Materialised, Halt> {
    let signal = tokio::select! {
        filled = session.start() => return Ok(filled?),
        signal = signals.next() => signal,
    };
    discard(session).await;
    Err(Halt::Signal(signal))
}

/// Does work that a signal can interrupt at any point.
pub(crate) async fn unless_signalled<T, E: Into<Halt>>(
    work: impl Future<Output = Result<T, E>>,
    signals: &mut Signals,
) -> Result<T, Halt> {
    tokio::select! {
        done = work => done.map_err(E::into),
        signal = signals.next() => Err(Halt::Signal(signal)),
    }
}

/// Does work that stops soon after its token is cancelled, which a signal does.
pub(crate) async fn until_signalled<T, E: Into<Halt>>(
    work: impl Future<Output = Result<T, E>>,
    cancel: &CancellationToken,
    signals: &mut Signals,
) -> Result<T, Halt> {
    let mut work = pin!(work);
    let signal = tokio::select! {
        done = &mut work => return done.map_err(E::into),
        signal = signals.next() => signal,
    };
    cancel.cancel();
    // Work that was done before it noticed is done, and has something to report.
    work.await.map_err(|_cancelled| Halt::Signal(signal))
}

/// Deletes a session after a failure; errors are only logged.
pub(crate) async fn discard(session: &SandboxSession) {
    match timeout(REMOVAL, session.delete()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "a part of the session may be left"),
        Err(_) => tracing::warn!("a part of the session may be left: the removal timed out"),
    }
}

fn report(machine: &dyn Machine, begun: Instant) {
    let features = machine.features();
    let (isolation, took) = (features.isolation, begun.elapsed());
    tracing::info!(%isolation, layers = features.layers.join(", "), ?took, "made the machine");
}
