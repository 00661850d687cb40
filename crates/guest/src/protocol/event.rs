//! Messages from the guest to the host. Untrusted: a command inside may have taken the guest over.

use super::{
    MAX_DATA, WireError, frame,
    wire::{Reader, Writer},
};

/// Message of a start failure that is about the working directory.
pub const CWD: &str = "cwd";

/// How strongly a limit is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strength {
    /// Not enforced, or not requested.
    #[default]
    None,
    /// The guest measures usage and ends what exceeds the limit.
    Soft,
    /// The kernel refuses to exceed it.
    Hard,
}

/// How strongly each limit is enforced that differs from host to host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitStrengths {
    /// Memory of all processes together.
    pub memory: Strength,
    /// Processors of all processes together.
    pub cpu: Strength,
    /// Processes, of all users together.
    pub pids: Strength,
    /// Bytes on disk in the workspace and the homes.
    pub disk: Strength,
}

/// First message of the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Must equal [`super::VERSION`].
    pub version: u32,
    /// Names of the layers that confine commands.
    pub layers: Vec<String>,
    /// Path of the workspace.
    pub workspace: Vec<u8>,
    /// Home directory of the default user.
    pub home: Vec<u8>,
    /// Whether commands can run as several users.
    pub users: bool,
    /// How strongly limits are enforced.
    pub held: LimitStrengths,
}

/// Why a request failed, in a form that the host can match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailKind {
    /// A system call failed; see `errno`.
    Errno,
    /// A symbolic link is where none may be followed.
    Symlink,
    /// The file is of the wrong type (for example a FIFO to read).
    WrongKind,
    /// The user does not exist on this machine, or the machine has only one.
    User,
    /// The archive contains a member that must not be unpacked.
    Archive,
    /// The request is invalid in this state (data for a closed input, port 0).
    Invalid,
    /// The file is not in the expected state.
    Changed,
    /// The command does not exist, or no longer.
    NoProcess,
    /// Another host is attached to the command.
    Held,
    /// The machine has reached a limit.
    Full,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitKind {
    /// It exited.
    Exited,
    /// A signal ended it.
    Signaled,
    /// Its deadline passed.
    Deadline,
    /// The machine's memory was used up.
    Memory,
    /// The machine's disk was used up.
    Disk,
}

/// Everything the guest sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The machine is ready.
    Hello(Hello),
    /// The command runs, or the connection is established.
    Started,
    /// The command runs and survives its host: its id, and whether it takes input.
    Kept(u64, bool),
    /// Number of bytes before the following output that were dropped while no host was attached.
    Omitted(u64),
    /// Bulk bytes: standard output, a terminal, a file, records.
    Data(&'a [u8]),
    /// Bulk bytes of standard error.
    ErrorData(&'a [u8]),
    /// Number of bulk bytes that the host may send in addition.
    Credit(u32),
    /// The command ended with this exit code.
    Exit(i32, ExitKind),
    /// The request is complete; nothing follows on this channel.
    Done,
    /// The request failed; nothing follows on this channel.
    Fail(FailKind, i32, String),
}

mod kind {
    pub(super) const HELLO: u8 = 64;
    pub(super) const STARTED: u8 = 65;
    pub(super) const DATA: u8 = 66;
    pub(super) const ERROR_DATA: u8 = 67;
    pub(super) const CREDIT: u8 = 68;
    pub(super) const EXIT: u8 = 69;
    pub(super) const DONE: u8 = 70;
    pub(super) const FAIL: u8 = 71;
    pub(super) const KEPT: u8 = 72;
    pub(super) const OMITTED: u8 = 73;
}

const FAILS: [FailKind; 10] = [
    FailKind::Errno,
    FailKind::Symlink,
    FailKind::WrongKind,
    FailKind::User,
    FailKind::Archive,
    FailKind::Invalid,
    FailKind::Changed,
    FailKind::NoProcess,
    FailKind::Held,
    FailKind::Full,
];
pub(super) const EXITS: [ExitKind; 5] =
    [ExitKind::Exited, ExitKind::Signaled, ExitKind::Deadline, ExitKind::Memory, ExitKind::Disk];
const STRENGTHS: [Strength; 3] = [Strength::None, Strength::Soft, Strength::Hard];

pub(super) fn number<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter().position(|known| known == one).and_then(|index| u8::try_from(index).ok()).unwrap_or_default()
}

pub(super) fn numbered<T: Copy>(all: &[T], number: u8) -> Result<T, WireError> {
    all.get(usize::from(number)).copied().ok_or(WireError("a choice is unknown"))
}

impl Hello {
    fn write(&self, to: &mut Writer<'_>) {
        to.u32(self.version);
        to.list(&self.layers, |to, layer| to.bytes(layer.as_bytes()));
        to.bytes(&self.workspace);
        to.bytes(&self.home);
        to.flag(self.users);
        for strength in [self.held.memory, self.held.cpu, self.held.pids, self.held.disk] {
            to.u8(number(&STRENGTHS, &strength));
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            version: from.u32()?,
            layers: from.list(Reader::text)?,
            workspace: from.string()?,
            home: from.string()?,
            users: from.flag()?,
            held: LimitStrengths {
                memory: numbered(&STRENGTHS, from.u8()?)?,
                cpu: numbered(&STRENGTHS, from.u8()?)?,
                pids: numbered(&STRENGTHS, from.u8()?)?,
                disk: numbered(&STRENGTHS, from.u8()?)?,
            },
        })
    }
}

impl<'a> Event<'a> {
    /// Whether a frame of this kind carries bulk bytes, which a reader can store without copying; `true` means standard
    /// error.
    #[must_use]
    pub fn bulk(kind: u8) -> Option<bool> {
        match kind {
            kind::DATA => Some(false),
            kind::ERROR_DATA => Some(true),
            _ => None,
        }
    }

    /// Header of a bulk frame, for senders that write the payload themselves.
    #[must_use]
    pub fn bulk_header(channel: u32, length: u32, error: bool) -> [u8; super::FRAME_HEADER] {
        let kind = if error { kind::ERROR_DATA } else { kind::DATA };
        super::FrameHeader { length, channel, kind }.encode()
    }

    /// Appends this event as a frame.
    pub fn encode(&self, channel: u32, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => frame::append(out, channel, kind::HELLO, |out| hello.write(&mut Writer(out))),
            Self::Started => frame::append(out, channel, kind::STARTED, |_| {}),
            Self::Kept(process, input) => frame::append(out, channel, kind::KEPT, |out| {
                let mut to = Writer(out);
                to.u64(*process);
                to.flag(*input);
            }),
            Self::Omitted(count) => frame::append(out, channel, kind::OMITTED, |out| Writer(out).u64(*count)),
            Self::Data(bytes) => frame::append(out, channel, kind::DATA, |out| out.extend_from_slice(bytes)),
            Self::ErrorData(bytes) => frame::append(out, channel, kind::ERROR_DATA, |out| out.extend_from_slice(bytes)),
            Self::Credit(more) => frame::append(out, channel, kind::CREDIT, |out| Writer(out).u32(*more)),
            Self::Exit(code, how) => frame::append(out, channel, kind::EXIT, |out| {
                let mut to = Writer(out);
                to.i32(*code);
                to.u8(number(&EXITS, how));
            }),
            Self::Done => frame::append(out, channel, kind::DONE, |_| {}),
            Self::Fail(fail, errno, message) => frame::append(out, channel, kind::FAIL, |out| {
                let mut to = Writer(out);
                to.u8(number(&FAILS, fail));
                to.i32(*errno);
                to.bytes(message.as_bytes());
            }),
        }
    }

    /// Decodes a frame's payload.
    ///
    /// # Errors
    /// When the bytes are not exactly one event.
    pub fn decode(kind: u8, payload: &'a [u8]) -> Result<Self, WireError> {
        if let Some(error) = Self::bulk(kind) {
            if payload.is_empty() || payload.len() > MAX_DATA {
                return Err(WireError("its data is empty or too long"));
            }
            return Ok(if error { Self::ErrorData(payload) } else { Self::Data(payload) });
        }
        let mut from = Reader(payload);
        let event = match kind {
            kind::HELLO => Self::Hello(Hello::read(&mut from)?),
            kind::STARTED => Self::Started,
            kind::KEPT => Self::Kept(from.u64()?, from.flag()?),
            kind::OMITTED => Self::Omitted(from.u64()?),
            kind::CREDIT => Self::Credit(from.u32()?),
            kind::EXIT => Self::Exit(from.i32()?, numbered(&EXITS, from.u8()?)?),
            kind::DONE => Self::Done,
            kind::FAIL => Self::Fail(numbered(&FAILS, from.u8()?)?, from.i32()?, from.text()?),
            _ => return Err(WireError("its kind is unknown")),
        };
        from.end()?;
        Ok(event)
    }
}

/// Why a machine could not be set up, sent by the supervisor before it exits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootFailure {
    /// The step that failed.
    pub stage: String,
    /// `errno`, or 0.
    pub errno: i32,
    /// What the host lacks; empty if the host lacks nothing.
    pub missing: String,
    /// How to fix it; may be empty.
    pub fix: String,
}

/// The setup step that fails when a machine cannot have its accounts.
pub const USERS_STAGE: &str = "make the machine's users";

impl BootFailure {
    /// Encodes the message. The end of the stream ends it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut to = Writer(&mut out);
        to.bytes(self.stage.as_bytes());
        to.i32(self.errno);
        to.bytes(self.missing.as_bytes());
        to.bytes(self.fix.as_bytes());
        out
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// When the bytes are not exactly one message.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader(bytes);
        let failure = Self { stage: from.text()?, errno: from.i32()?, missing: from.text()?, fix: from.text()? };
        from.end()?;
        Ok(failure)
    }
}
