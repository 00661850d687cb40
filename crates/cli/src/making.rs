//! Machines and sessions in the making: a signal ends that at any point, and nothing is left then.

use std::{pin::pin, sync::Arc, time::Duration};

use sandbar::{
    Machine, MachineSpec, Materialised, SandboxClient, SandboxError, SandboxSession, SessionOptions, SessionState,
    Signal,
};
use tokio::time::{Instant, timeout};

use crate::{failure::Failure, signals::Signals};

/// How long a machine that nobody wants any more may take to come up and be removed.
const REGRET: Duration = Duration::from_secs(5);

/// How long a session that nobody wants any more may take to be removed: its supervisor has a tree to delete.
const REMOVAL: Duration = Duration::from_secs(60);

/// Writes down a session that is being made.
pub(crate) type Record<'a> = dyn Fn(&SessionState) -> Result<(), SandboxError> + Send + Sync + 'a;

/// Why nothing was made.
#[derive(Debug)]
pub(crate) enum Halt {
    /// Somebody changed their mind.
    Signal(Signal),
    /// It could not be.
    Failed(Box<Failure>),
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

impl From<SandboxError> for Halt {
    fn from(error: SandboxError) -> Self {
        Failure::from(error).into()
    }
}

/// Makes the machine, unless a signal comes first. Then it is still waited for, which is quick, so that everything it
/// had is seen to be gone before this process is.
pub(crate) async fn machine(
    client: Arc<dyn SandboxClient>,
    spec: MachineSpec,
    signals: &mut Signals,
) -> Result<Arc<dyn Machine>, Halt> {
    let begun = Instant::now();
    let mut making = pin!(client.create(spec));
    let signal = tokio::select! {
        made = &mut making => {
            let machine = made.map_err(Failure::from)?;
            report(machine.as_ref(), begun);
            return Ok(machine);
        }
        signal = signals.next() => signal,
    };
    let regret = async {
        if let Ok(machine) = making.await {
            let _best_effort = machine.stop().await;
        }
    };
    tokio::select! {
        _removed = timeout(REGRET, regret) => {}
        _again = signals.next() => {}
    }
    Err(Halt::Signal(signal))
}

/// The same for a session, whose workspace is not yet filled. It may outlive this process, so a second signal does not
/// keep it from being removed.
pub(crate) async fn session(
    client: Arc<dyn SandboxClient>,
    options: SessionOptions,
    signals: &mut Signals,
) -> Result<SandboxSession, Halt> {
    recorded(client, options, &|_state| Ok(()), signals).await
}

/// The same for a session that is recorded before its machine can outlive this process.
pub(crate) async fn recorded(
    client: Arc<dyn SandboxClient>,
    options: SessionOptions,
    record: &Record<'_>,
    signals: &mut Signals,
) -> Result<SandboxSession, Halt> {
    let begun = Instant::now();
    let mut making = pin!(SandboxSession::create_recorded(client, options, record));
    let signal = tokio::select! {
        made = &mut making => {
            let session = made?;
            report(session.machine().as_ref(), begun);
            return Ok(session);
        }
        signal = signals.next() => signal,
    };
    let regret = async {
        if let Ok(session) = making.await {
            let _best_effort = session.delete().await;
        }
    };
    let _best_effort = timeout(REMOVAL, regret).await;
    Err(Halt::Signal(signal))
}

/// Fills the workspace of a session. If that cannot be, or a signal comes first, the session is deleted.
pub(crate) async fn fill(session: &SandboxSession, signals: &mut Signals) -> Result<Materialised, Halt> {
    let signal = tokio::select! {
        filled = session.start() => return Ok(filled?),
        signal = signals.next() => signal,
    };
    discard(session).await;
    Err(Halt::Signal(signal))
}

/// Does something that may simply be given up when a signal comes.
pub(crate) async fn unless_signalled<T>(
    work: impl Future<Output = Result<T, Failure>>,
    signals: &mut Signals,
) -> Result<T, Halt> {
    tokio::select! {
        done = work => Ok(done?),
        signal = signals.next() => Err(Halt::Signal(signal)),
    }
}

/// Deletes a session that nobody wants any more.
pub(crate) async fn discard(session: &SandboxSession) {
    match timeout(REMOVAL, session.delete()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "something of the session may be left"),
        Err(_) => tracing::warn!("something of the session may be left: it did not end in time"),
    }
}

fn report(machine: &dyn Machine, begun: Instant) {
    let features = machine.features();
    let (isolation, took) = (features.isolation, begun.elapsed());
    tracing::info!(%isolation, layers = features.layers.join(", "), ?took, "made the machine");
}
