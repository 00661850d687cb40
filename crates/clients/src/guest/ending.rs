//! How a machine ends although its guest does not answer: whatever holds it from outside removes it.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use sandbar_machine::Result;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::{
    Farewell, kept,
    link::{End, Link},
};

/// How long a guest may take to end a command that is out of time, and then to answer anything at all. A machine is removed
/// with all it holds if it does not, so that a busy host must not be taken for a guest without a processor.
const OVERDUE: Duration = Duration::from_secs(3);
const SILENCE: Duration = Duration::from_secs(15);

/// The connection to a guest, and what removes its machine without it.
pub(super) struct MachineEnd {
    pub(super) link: Arc<Link>,
    pub(super) farewell: Mutex<Option<Box<dyn Farewell>>>,
}

impl MachineEnd {
    /// Ends the connection and waits until nothing of the machine is left.
    pub(super) async fn remove(&self) -> Result<()> {
        let mut farewell = self.farewell.lock().await;
        self.link.end(End::Gone);
        if let Some(waiting) = farewell.as_mut() {
            waiting.wait().await?;
            *farewell = None;
        }
        Ok(())
    }
}

/// A command's deadline as its owner keeps it, in case the guest, which keeps it too, gets no processor to do so.
pub(super) struct Deadline {
    at: Instant,
    machine: Weak<MachineEnd>,
}

impl Deadline {
    pub(super) fn new(limit: Duration, machine: &Arc<MachineEnd>) -> Option<Self> {
        let at = Instant::now().checked_add(limit)?.checked_add(OVERDUE)?;
        Some(Self { at, machine: Arc::downgrade(machine) })
    }

    /// Waits until the guest has broken it: the command has not ended, and the guest does not answer. Never ends where the
    /// guest answers: then it has kept the deadline, and only the command's output is not read.
    pub(super) async fn broken(&self) {
        tokio::time::sleep_until(self.at).await;
        let answers = match self.machine.upgrade() {
            Some(machine) => matches!(timeout(SILENCE, kept::list(&machine.link)).await, Ok(Ok(_processes))),
            None => true,
        };
        if answers {
            std::future::pending::<()>().await;
        }
    }

    /// Removes the machine of a guest that has broken it.
    pub(super) async fn enforce(&self) {
        tracing::warn!("the guest did not keep a deadline and does not answer; its machine is removed");
        if let Some(machine) = self.machine.upgrade()
            && let Err(error) = machine.remove().await
        {
            tracing::warn!(%error, "something of the machine may be left");
        }
    }
}
