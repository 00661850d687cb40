//! Machines that outlive their creator, of all clients: the memo that is stored for later clients, and the protocol at
//! the door.

use std::{collections::BTreeMap, io, time::Duration};

use sandbar_guest::protocol::{Detached, Knock, MAX_MEMO, Nonce, VERSION, Welcome, Wish};
use sandbar_machine::{Isolation, Lifetime, LimitReport, MachineError, MachineHandle, Result};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::{GuestMachine, GuestSetup};

/// How long the process behind a door may take to answer.
pub(crate) const ANSWER: Duration = Duration::from_secs(20);

/// The shortest lease: with less, its holder could not attach again in time.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);

/// Whether a program inside the machine can listen on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Listening {
    Possible,
    Impossible,
}

/// What a client that attaches later has to know. Stored only in the memory of the process behind the door.
#[derive(Serialize, Deserialize)]
pub(crate) struct Memo {
    isolation: Isolation,
    limits: LimitReport,
    listening: Listening,
    env: BTreeMap<String, String>,
    ports: Vec<u16>,
    output_buffer: u32,
    deadline: Option<Duration>,
}

/// The launch data of a detached machine.
pub(crate) fn detached_launch(
    nonce: Nonce,
    setup: &GuestSetup,
    listening: Listening,
    lifetime: Lifetime,
) -> Result<Detached> {
    let memo = Memo {
        isolation: setup.isolation,
        limits: setup.limits,
        listening,
        env: setup.env.clone(),
        ports: setup.ports.clone(),
        output_buffer: setup.output_buffer,
        deadline: setup.deadline,
    };
    let memo = serde_json::to_vec(&memo)
        .map_err(|error| MachineError::Start { stage: "detaching it".to_owned(), source: error.into() })?;
    if memo.len() > MAX_MEMO {
        return Err(MachineError::invalid("environment", "is longer than 2 MiB"));
    }
    Ok(Detached { nonce, memo, lease_ms: lease(lifetime)? })
}

/// Milliseconds that a machine lives without a client; 0 means for ever.
fn lease(lifetime: Lifetime) -> Result<u64> {
    match lifetime {
        Lifetime::WithOwner | Lifetime::Detached => Ok(0),
        Lifetime::Leased(length) if length < SHORTEST_LEASE => {
            Err(MachineError::invalid(format!("lease of {length:?}"), "is shorter than a tenth of a second"))
        }
        Lifetime::Leased(length) => Ok(u64::try_from(length.as_millis()).unwrap_or(u64::MAX)),
        _ => Err(MachineError::Unsupported("keep a machine for such a lifetime")),
    }
}

impl Memo {
    /// Sends the nonce and reads the memo. `None` if the other side closes the connection instead: the nonce is not
    /// that machine's, or the machine is ending.
    pub(crate) async fn ask(
        reader: &mut (impl AsyncRead + Unpin),
        writer: &mut (impl AsyncWrite + Unpin),
        nonce: Nonce,
    ) -> Result<Option<Self>> {
        let sent = async {
            writer.write_all(&Knock::new(Wish::Attach, nonce).encode()).await?;
            writer.flush().await
        };
        let mut header = [0; Welcome::LENGTH];
        if !is_open(sent.await)? || !is_open(reader.read_exact(&mut header).await)? {
            return Ok(None);
        }
        let welcome = Welcome::decode(&header).map_err(|error| MachineError::transport("reach it", error))?;
        if welcome.version != VERSION {
            let reason = "was made by another version of sandbar; delete it and make a new one";
            return Err(MachineError::invalid("the machine", reason));
        }
        let mut memo = vec![0; welcome.length as usize];
        if !is_open(reader.read_exact(&mut memo).await)? {
            return Ok(None);
        }
        let memo = serde_json::from_slice(&memo).map_err(|error| MachineError::transport("reach it", error))?;
        Ok(Some(memo))
    }

    /// Starts the guest protocol on the connection.
    pub(crate) async fn connect(
        self,
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        handle: MachineHandle,
    ) -> Result<GuestMachine> {
        let setup = GuestSetup {
            handle,
            isolation: self.isolation,
            limits: self.limits,
            env: self.env,
            ports: self.ports,
            output_buffer: self.output_buffer,
            deadline: self.deadline,
        };
        let machine = GuestMachine::connect(reader, writer, setup).await?;
        Ok(self.listening.apply_to(machine))
    }
}

impl Listening {
    /// Removes the ports of a machine in which no program can listen.
    pub(crate) fn apply_to(self, machine: GuestMachine) -> GuestMachine {
        match self {
            Self::Possible => machine,
            Self::Impossible => machine.without_ports(),
        }
    }
}

/// Whether a stream is still open; `false` if the other side closed it.
fn is_open<T>(outcome: io::Result<T>) -> Result<bool> {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    match outcome {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) => Ok(false),
        Err(error) => Err(MachineError::transport("reach it", error)),
    }
}

/// The error for a machine that runs but closes new connections: it accepts no more of them.
pub(crate) fn too_many_clients() -> MachineError {
    let reason = "too many processes are attached to the machine".to_owned();
    MachineError::Exhausted { what: "connections".to_owned(), reason }
}

/// Reads the nonce of a handle.
pub(crate) fn read_nonce(text: &str) -> Result<Nonce> {
    let bad = || MachineError::invalid("handle of a detached machine", "has no nonce of 32 digits");
    let digit = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let mut nonce = Nonce::default();
    for (index, byte) in nonce.iter_mut().enumerate() {
        *byte = digit(index * 2).ok_or_else(bad)?;
    }
    if text.len() == 2 * nonce.len() { Ok(nonce) } else { Err(bad()) }
}
