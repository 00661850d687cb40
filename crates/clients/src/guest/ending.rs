//! How a machine is ended although its guest does not answer: from outside, by the process that runs the guest.

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
    Teardown, commands,
    link::{End, Link},
};

/// How long a guest may take to end a command after its deadline, and then to answer a request. If it does neither, its
/// machine is removed with everything in it. The times are long because a guest on a busy host also answers late.
const OVERDUE: Duration = Duration::from_secs(3);
const SILENCE: Duration = Duration::from_secs(15);

/// The connection to a guest, and the teardown that removes its machine without the guest.
pub(super) struct MachineEnd {
    pub(super) link: Arc<Link>,
    pub(super) teardown: Mutex<Option<Box<dyn Teardown>>>,
}

impl MachineEnd {
    /// Ends the connection and waits until the machine is removed.
    pub(super) async fn remove(&self) -> Result<()> {
        let mut teardown = self.teardown.lock().await;
        self.link.end(End::Gone);
        if let Some(waiting) = teardown.as_mut() {
            waiting.wait().await?;
            *teardown = None;
        }
        Ok(())
    }
}

/// A command's deadline on the host side, in case the guest, which enforces it too, gets no CPU time to do so.
pub(super) struct Deadline {
    at: Instant,
    machine: Weak<MachineEnd>,
}

impl Deadline {
    pub(super) fn new(limit: Duration, machine: &Arc<MachineEnd>) -> Option<Self> {
        let at = Instant::now().checked_add(limit)?.checked_add(OVERDUE)?;
        Some(Self { at, machine: Arc::downgrade(machine) })
    }

    /// Waits until the guest has missed the deadline: the command has not ended, and the guest does not answer. If the
    /// guest answers, this never returns: the guest has ended the command, and only its output was not read.
    pub(super) async fn broken(&self) {
        tokio::time::sleep_until(self.at).await;
        let answers = match self.machine.upgrade() {
            Some(machine) => matches!(timeout(SILENCE, commands::list(&machine.link)).await, Ok(Ok(_processes))),
            None => true,
        };
        if answers {
            std::future::pending::<()>().await;
        }
    }

    /// Removes the machine of a guest that has missed the deadline.
    pub(super) async fn enforce(&self) {
        tracing::warn!("the guest missed a deadline and does not answer; removing its machine");
        if let Some(machine) = self.machine.upgrade()
            && let Err(error) = machine.remove().await
        {
            tracing::warn!(%error, "parts of the machine may remain");
        }
    }
}
