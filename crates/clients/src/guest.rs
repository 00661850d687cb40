//! The host side of the guest protocol: any byte stream with a guest at its far end is a machine.
//!
//! ```text
//!  Machine methods ─► Channel ─► Outbox ═══► guest
//!        ▲               ▲
//!        └── Process /   └── Lane ◄── Link (routes) ◄═══ guest
//!            ByteStream
//! ```
//!
//! One reader task routes frames into lanes and never waits for a consumer: what may arrive on a lane is bounded by the
//! credit it was given. Everything the guest says is untrusted; the first frame that should not be ends the connection.

mod channel;
mod ending;
mod entries;
mod environment;
mod failure;
#[cfg(test)]
mod fake;
mod files;
#[cfg(test)]
mod hostile_tests;
mod kept;
mod lane;
mod link;
mod machine;
#[cfg(test)]
mod noise_tests;
mod outbox;
mod process;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use sandbar_guest::protocol::{Held, Hello, Strength};
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

/// What a client knows of a machine before its guest speaks.
pub struct GuestSetup {
    /// What finds the machine again.
    pub handle: MachineHandle,
    /// The level its client set up; a guest that could not reach it never says hello.
    pub isolation: Isolation,
    /// How strongly each limit is held, as far as the client knows; the guest adds what it and its host do.
    pub limits: LimitReport,
    /// Variables every command gets.
    pub env: BTreeMap<String, String>,
    /// Ports that may be reached from the host.
    pub ports: Vec<u16>,
    /// Bytes of one process's output that may wait for a reader.
    pub output_buffer: u32,
    /// How long a command without its own deadline may run.
    pub deadline: Option<Duration>,
}

/// What a client waits for after the guest was told to stop: that nothing of the machine is left.
pub trait Farewell: Send {
    /// Waits until everything is gone, for a bounded time. May be called again after an error.
    fn wait(&mut self) -> BoxFuture<'_, Result<()>>;
}

/// A machine with a guest in it.
pub struct GuestMachine {
    link: Arc<Link>,
    about: About,
    ports: Option<Mappings>,
    tasks: [AbortHandle; 2],
    end: Arc<MachineEnd>,
}

/// What commands and reports need to know of a machine.
struct About {
    handle: MachineHandle,
    features: Features,
    home: MachinePath,
    env: BTreeMap<String, String>,
    output_buffer: u32,
    deadline: Option<Duration>,
}

impl GuestMachine {
    /// Waits for the guest's first words, at most 30 seconds, and starts to speak with it.
    ///
    /// # Errors
    /// [`MachineError::Gone`] when the stream ends first, [`MachineError::Transport`] when the guest says something else.
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
        let end = Arc::new(MachineEnd { link: link.clone(), farewell: tokio::sync::Mutex::new(None) });
        Ok(Self { link, about, ports, tasks, end })
    }

    /// What stopping the machine waits for.
    #[must_use]
    pub fn farewell(mut self, farewell: impl Farewell + 'static) -> Self {
        let farewell = tokio::sync::Mutex::new(Some(Box::new(farewell) as Box<dyn Farewell>));
        self.end = Arc::new(MachineEnd { link: self.link.clone(), farewell });
        self
    }

    /// The same machine where nothing can listen, and so no port can be reached.
    #[must_use]
    pub fn without_ports(mut self) -> Self {
        self.ports = None;
        self
    }

    /// Whether the machine has stopped, for whatever reason.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.link.ended().is_some()
    }
}

impl About {
    /// The guest's words are checked here, once.
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

/// What holds each limit more strongly: the client or the guest.
fn limits(mut known: LimitReport, guests: Held) -> LimitReport {
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

/// Without the variables' values, which may be secret.
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

/// Nothing here panics while it holds a lock, and a poisoned one would still hold sound data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
