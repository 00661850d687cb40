//! What the guest tells the host. Untrusted: whatever runs inside may have taken the guest over.

use super::{
    MAX_DATA, WireError, frame,
    wire::{Reader, Writer},
};

/// The message of a failure to start a command that is about its directory.
pub const CWD: &str = "cwd";

/// How strongly a limit is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strength {
    /// Not at all, or nobody asked for it.
    #[default]
    None,
    /// The guest watches, and acts after the fact.
    Soft,
    /// The kernel refuses to go past it.
    Hard,
}

/// How strongly the limits are held that differ from host to host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Memory of all processes together.
    pub memory: Strength,
    /// Processors of all processes together.
    pub cpu: Strength,
    /// Processes, of all users together.
    pub pids: Strength,
    /// What is in the workspace and the homes.
    pub disk: Strength,
}

/// The guest's first words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Must equal [`super::VERSION`].
    pub version: u32,
    /// The layers that confine commands, by name.
    pub layers: Vec<String>,
    /// Where the workspace is.
    pub workspace: Vec<u8>,
    /// The home of the default user.
    pub home: Vec<u8>,
    /// Whether commands can run as several users.
    pub users: bool,
    /// Which limits hold.
    pub held: Held,
}

/// Why a request failed, as the host can branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailKind {
    /// The system said no; `errno` says how.
    Errno,
    /// A symbolic link stands where none is followed.
    Symlink,
    /// The thing is not of the right kind (reading a FIFO, say).
    WrongKind,
    /// No such user, or this machine has only one.
    User,
    /// The archive holds something that must not be unpacked.
    Archive,
    /// The request makes no sense now (data for a closed input, a port that is 0).
    Invalid,
    /// What is there is not what was expected.
    Changed,
    /// There is no such command, or no longer.
    NoProcess,
    /// Another host holds the command.
    Held,
    /// The machine may not hold as much.
    Full,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitKind {
    /// It returned.
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
    /// The command runs, or the connection stands.
    Started,
    /// The command runs and outlives its holder: its number, and whether it takes input.
    Kept(u64, bool),
    /// So many bytes that came before what follows were dropped while nobody held the command.
    Omitted(u64),
    /// Bulk bytes: standard output, a terminal, a file, records.
    Data(&'a [u8]),
    /// Bulk bytes of standard error.
    ErrorData(&'a [u8]),
    /// The host may send this many more bulk bytes.
    Credit(u32),
    /// The command ended with this code.
    Exit(i32, ExitKind),
    /// The request is complete; nothing more comes on this channel.
    Done,
    /// The request failed; nothing more comes on this channel.
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
            held: Held {
                memory: numbered(&STRENGTHS, from.u8()?)?,
                cpu: numbered(&STRENGTHS, from.u8()?)?,
                pids: numbered(&STRENGTHS, from.u8()?)?,
                disk: numbered(&STRENGTHS, from.u8()?)?,
            },
        })
    }
}

impl<'a> Event<'a> {
    /// Whether a frame of this kind carries bulk bytes, which a reader can keep without copying; `true` is standard error.
    #[must_use]
    pub fn bulk(kind: u8) -> Option<bool> {
        match kind {
            kind::DATA => Some(false),
            kind::ERROR_DATA => Some(true),
            _ => None,
        }
    }

    /// The header of a bulk frame, for senders that write the bytes themselves.
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

    /// Reads a frame's payload.
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

/// Why a machine could not be set up, sent by the supervisor before it gives up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootFailure {
    /// The step that failed.
    pub stage: String,
    /// The system's number for why, or 0.
    pub errno: i32,
    /// The missing piece, when it is the host that lacks something; else empty.
    pub missing: String,
    /// What to do about it.
    pub fix: String,
}

/// The step at which a machine fails that cannot have the users it shall know.
pub const USERS_STAGE: &str = "make the machine's users";

impl BootFailure {
    /// The message's bytes; the end of the stream is its end.
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

    /// Reads the message.
    ///
    /// # Errors
    /// When the bytes are not exactly one.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader(bytes);
        let failure = Self { stage: from.text()?, errno: from.i32()?, missing: from.text()?, fix: from.text()? };
        from.end()?;
        Ok(failure)
    }
}
