//! Messages from the guest to the host. Untrusted: a command inside may have taken the guest over.

use super::{
    WireError, frame,
    wire::{self, Tagged, Wire},
};

/// Message of a start failure that is about the working directory.
pub const CWD: &str = "cwd";

/// Frame kinds of bulk bytes.
const DATA: u8 = 66;
const ERROR_DATA: u8 = 67;

wire! {
    /// How strongly a limit is enforced.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Strength {
        /// Not enforced, or not requested.
        #[default]
        None = 0,
        /// The guest measures usage and ends what exceeds the limit.
        Soft = 1,
        /// The kernel refuses to exceed it.
        Hard = 2,
    }
    unknown "a choice is unknown";
}

wire! {
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
}

wire! {
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
}

wire! {
    /// Why a request failed, in a form that the host can match on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum FailKind {
        /// A system call failed; see `errno`.
        Errno = 0,
        /// A symbolic link is where none may be followed.
        Symlink = 1,
        /// The file is of the wrong type (for example a FIFO to read).
        WrongKind = 2,
        /// The user does not exist on this machine, or the machine has only one.
        User = 3,
        /// The archive contains a member that must not be unpacked.
        Archive = 4,
        /// The request is invalid in this state (data for a closed input, port 0).
        Invalid = 5,
        /// The file is not in the expected state.
        Changed = 6,
        /// The command does not exist, or no longer.
        NoProcess = 7,
        /// Another host is attached to the command.
        Held = 8,
        /// The machine has reached a limit.
        Full = 9,
    }
    unknown "a choice is unknown";
}

wire! {
    /// How a command ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ExitKind {
        /// It exited.
        Exited = 0,
        /// A signal ended it.
        Signaled = 1,
        /// Its deadline passed.
        Deadline = 2,
        /// The machine's memory was used up.
        Memory = 3,
        /// The machine's disk was used up.
        Disk = 4,
    }
    unknown "a choice is unknown";
}

wire! {
    /// Everything the guest sends.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Event<'a> {
        /// The machine is ready.
        Hello(hello: Hello) = 64,
        /// The command runs, or the connection is established.
        Started = 65,
        /// The command runs and survives its host: its id, and whether it takes input.
        Kept(process: u64, input: bool) = 72,
        /// Number of bytes before the following output that were dropped while no host was attached.
        Omitted(count: u64) = 73,
        /// Bulk bytes: standard output, a terminal, a file, records.
        Data(bytes: &'a [u8]) = DATA,
        /// Bulk bytes of standard error.
        ErrorData(bytes: &'a [u8]) = ERROR_DATA,
        /// Number of bulk bytes that the host may send in addition.
        Credit(more: u32) = 68,
        /// The command ended with this exit code.
        Exit(code: i32, how: ExitKind) = 69,
        /// The request is complete; nothing follows on this channel.
        Done = 70,
        /// The request failed; nothing follows on this channel.
        Fail(kind: FailKind, errno: i32, message: String) = 71,
    }
    unknown "its kind is unknown";
}

impl<'a> Event<'a> {
    /// Whether a frame of this kind carries bulk bytes, which a reader can store without copying; `true` means standard
    /// error.
    #[must_use]
    pub fn bulk(kind: u8) -> Option<bool> {
        match kind {
            DATA => Some(false),
            ERROR_DATA => Some(true),
            _ => None,
        }
    }

    /// Header of a bulk frame, for senders that write the payload themselves.
    #[must_use]
    pub fn bulk_header(channel: u32, length: u32, error: bool) -> [u8; super::FRAME_HEADER] {
        let kind = if error { ERROR_DATA } else { DATA };
        super::FrameHeader { length, channel, kind }.encode()
    }

    /// Appends this event as a frame.
    pub fn encode(&self, channel: u32, out: &mut Vec<u8>) {
        frame::append(out, channel, self.tag(), |out| self.write_fields(out));
    }

    /// Decodes a frame's payload.
    ///
    /// # Errors
    /// When the bytes are not exactly one event.
    pub fn decode(kind: u8, mut payload: &'a [u8]) -> Result<Self, WireError> {
        let event = Self::read_fields(kind, &mut payload)?;
        wire::end(payload).map(|()| event)
    }
}

wire! {
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
}

/// The setup step that fails when a machine cannot have its accounts.
pub const USERS_STAGE: &str = "make the machine's users";

impl BootFailure {
    /// Encodes the message. The end of the stream ends it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        wire::encode(self)
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// When the bytes are not exactly one message.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        wire::decode(bytes)
    }
}
