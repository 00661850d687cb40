//! The host side of the guest protocol: a byte stream with a guest at its far end becomes a machine.
//!
//! ```text
//!  Machine methods ─► Channel ─► Outbox ═══► guest
//!        ▲               ▲
//!        └── Process /   └── Lane ◄── Link (routes) ◄═══ guest
//!            ByteStream
//! ```
//!
//! One reader task routes frames into lanes and never waits for a consumer: the credit of a lane bounds what may arrive
//! on it. Everything that the guest sends is untrusted; the first frame that breaks the protocol ends the connection.

mod channel;
mod commands;
mod ending;
mod entries;
mod environment;
mod failure;
#[cfg(test)]
mod fake;
mod files;
#[cfg(test)]
mod hostile_tests;
mod lane;
mod link;
mod machine;
#[cfg(test)]
mod noise_tests;
mod outbox;
mod process;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt, future::poll_fn, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use sandbar_guest::protocol::{Hello, LimitStrengths, Strength};
use sandbar_machine::{
    Enforcement, Features, Isolation, LimitReport, MachineError, MachineHandle, MachinePath, Result,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::AbortHandle,
};

pub(crate) use self::{
    channel::Channel,
    environment::check_variable,
    lane::{Incoming, Shape},
    link::Link,
};
use self::{
    ending::MachineEnd,
    failure::printable,
    link::{End, Intake},
};
use crate::ports::Mappings;

/// What a client knows about a machine before its guest answers.
pub struct GuestSetup {
    /// The handle that finds the machine again.
    pub handle: MachineHandle,
    /// The isolation that the client set up; a guest that cannot reach it never sends its hello.
    pub isolation: Isolation,
    /// How strongly the client enforces each limit; the guest adds what it and its host enforce.
    pub limits: LimitReport,
    /// Variables that every command gets.
    pub env: BTreeMap<String, String>,
    /// Ports that can be reached from the host.
    pub ports: Vec<u16>,
    /// Bytes of one process's output that may wait for a reader.
    pub output_buffer: u32,
    /// How long a command without its own deadline may run.
    pub deadline: Option<Duration>,
}

/// What [`GuestMachine`] waits for after it told the guest to stop: the removal of the machine.
pub trait Teardown: Send {
    /// Waits, for a bounded time, until everything is removed. May be called again after an error.
    fn wait(&mut self) -> BoxFuture<'_, Result<()>>;
}

/// A machine that runs the guest.
pub struct GuestMachine {
    link: Arc<Link>,
    about: About,
    ports: Option<Mappings>,
    tasks: [AbortHandle; 2],
    end: Arc<MachineEnd>,
}

/// What commands and reports need to know about a machine.
struct About {
    handle: MachineHandle,
    features: Features,
    home: MachinePath,
    env: BTreeMap<String, String>,
    output_buffer: u32,
    deadline: Option<Duration>,
}

impl GuestMachine {
    /// Waits at most 30 seconds for the guest's hello, then starts the tasks of the connection.
    ///
    /// # Errors
    /// [`MachineError::Gone`] if the stream ends first, [`MachineError::Transport`] if the guest sends anything else.
    pub async fn connect(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        setup: GuestSetup,
    ) -> Result<Self> {
        let mut intake = Intake::new(Box::new(reader));
        let about = About::new(&intake.hello().await?, &setup)?;
        let link = Arc::new(Link::new(Box::new(writer)));
        let writing = {
            let link = link.clone();
            async move {
                let outcome = poll_fn(|cx| link.outbox.poll_write_out(cx)).await;
                if let Err(error) = outcome {
                    link.end(End::broken(error.to_string()));
                }
            }
        };
        let tasks = [tokio::spawn(intake.receive(link.clone())), tokio::spawn(writing)].map(|task| task.abort_handle());
        let ports = Some(Mappings::new(link.clone(), setup.ports));
        let end = Arc::new(MachineEnd { link: link.clone(), teardown: tokio::sync::Mutex::new(None) });
        Ok(Self { link, about, ports, tasks, end })
    }

    /// Sets what stopping the machine waits for.
    #[must_use]
    pub fn teardown(mut self, teardown: impl Teardown + 'static) -> Self {
        let teardown = tokio::sync::Mutex::new(Some(Box::new(teardown) as Box<dyn Teardown>));
        self.end = Arc::new(MachineEnd { link: self.link.clone(), teardown });
        self
    }

    /// Removes the ports of a machine in which no program can listen.
    #[must_use]
    pub fn without_ports(mut self) -> Self {
        self.ports = None;
        self
    }

    /// Whether the machine has stopped, for any reason.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.link.ended().is_some()
    }
}

impl About {
    /// Checks what the guest's hello says, once.
    fn new(hello: &Hello, setup: &GuestSetup) -> Result<Self> {
        let path = |bytes: &[u8]| {
            use std::os::unix::ffi::OsStrExt;
            MachinePath::new(std::ffi::OsStr::from_bytes(bytes))
                .map_err(|error| MachineError::transport("start it", error))
        };
        let mut features = Features::new(setup.isolation, path(&hello.workspace)?);
        features.layers = hello.layers.iter().take(64).map(|layer| printable(layer)).collect();
        (features.pty, features.stdin, features.users) = (true, true, hello.users);
        features.limits = limits(setup.limits, hello.held);
        Ok(Self {
            handle: setup.handle.clone(),
            features,
            home: path(&hello.home)?,
            env: setup.env.clone(),
            output_buffer: setup.output_buffer.clamp(4 << 10, 16 << 20),
            deadline: setup.deadline,
        })
    }
}

/// Chooses the stronger enforcement of each limit: the client's or the guest's.
fn limits(mut known: LimitReport, guests: LimitStrengths) -> LimitReport {
    let held = |strength| match strength {
        Strength::Hard => Enforcement::Hard,
        Strength::Soft => Enforcement::Soft,
        Strength::None => Enforcement::Unavailable,
    };
    known.memory = known.memory.or(held(guests.memory));
    known.cpu = known.cpu.or(held(guests.cpu));
    known.pids = known.pids.or(held(guests.pids));
    known.disk = known.disk.or(held(guests.disk));
    known
}

/// Without the values of the variables, which may be secret.
impl fmt::Debug for GuestSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestSetup").field("handle", &self.handle).field("ports", &self.ports).finish_non_exhaustive()
    }
}

impl fmt::Debug for GuestMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestMachine")
            .field("handle", &self.about.handle)
            .field("features", &self.about.features)
            .finish_non_exhaustive()
    }
}

impl Drop for GuestMachine {
    fn drop(&mut self) {
        self.link.end(End::Gone);
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
