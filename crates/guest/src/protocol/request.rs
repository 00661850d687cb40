//! Requests of the host to the guest.

use super::{
    WireError, frame,
    wire::{self, Tagged, Wire},
};

wire! {
    /// Target of a file operation.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct At {
        /// Absolute path inside the machine.
        pub path: Vec<u8>,
        /// The user to act as; `None` is the default user.
        pub user: Option<Vec<u8>>,
        /// Group of created files; `None` is the user's own.
        pub group: Option<Vec<u8>>,
        /// Directory that path resolution may not leave.
        pub beneath: Option<Vec<u8>>,
        /// Permission bits of created files.
        pub mode: Option<u32>,
        /// Required state of the file for a write; `None` means any.
        pub expected: Option<Expected>,
    }
    check At::check;
}

wire! {
    /// Required state of a file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Expected {
        /// The file does not exist.
        Nothing = 0,
        /// A regular file with this size in bytes, these permission bits and this modification time in nanoseconds.
        File(size: u64, mode: u32, modified_ns: i64) = 1,
    }
    unknown "a flag is neither 0 nor 1";
}

wire! {
    /// A command to start.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Spawn {
        /// The program and its arguments.
        pub argv: Vec<Vec<u8>>,
        /// `NAME=value`, the whole environment.
        pub env: Vec<Vec<u8>>,
        /// Working directory.
        pub cwd: Vec<u8>,
        /// The user to run as; `None` is the default user.
        pub user: Option<Vec<u8>>,
        /// Rows and columns of the terminal; `None` means pipes.
        pub tty: Option<(u16, u16)>,
        /// Whether standard input is a pipe from the host instead of empty.
        pub stdin: bool,
        /// Milliseconds until the process tree is killed; 0 means never.
        pub deadline_ms: u64,
        /// Resource limits in addition to the machine's: resource number and value.
        pub rlimits: Vec<(u32, u64)>,
        /// Whether the command survives its connection, if the machine outlives its maker.
        pub keep: bool,
        /// Whether standard output and standard error share one pipe.
        pub joined: bool,
    }
}

wire! {
    /// Requests that open a channel.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Open {
        /// Start a command.
        Spawn(spawn: Spawn) = 1,
        /// Send the bytes of a regular file.
        Read(at: At) = 2,
        /// Replace a file with the bytes that follow.
        Write(at: At) = 3,
        /// Describe one path.
        Stat(at: At) = 4,
        /// Describe a directory's entries.
        List(at: At) = 5,
        /// Create a directory and its missing parents.
        MakeDir(at: At) = 6,
        /// Remove a file or a tree.
        Remove(at: At) = 7,
        /// Rename the first to the second.
        Rename(from: At, to: At) = 8,
        /// Send the metadata of a tree, without these paths; the flag asks for digests.
        Scan(at: At, skip: Vec<Vec<u8>>, digests: bool) = 9,
        /// Send a tree as a tar archive, without these paths.
        Pack(at: At, skip: Vec<Vec<u8>>) = 10,
        /// Unpack the tar archive that follows.
        Unpack(at: At) = 11,
        /// Connect to a port of the machine's loopback interface.
        Connect(port: u16) = 12,
        /// List the commands.
        Processes = 14,
        /// Attach to a command that no host is attached to.
        Adopt(process: u64) = 15,
        /// Send a signal to a command, attached or not.
        Signal(process: u64, number: u8) = 16,
        /// End every process and the guest itself.
        Stop = 13,
    }
    unknown "its kind is unknown";
}

/// Everything the host sends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "one at a time is on the stack, and is taken apart at once")]
pub enum Request<'a> {
    /// Opens the channel; the number is how many bulk bytes the guest may send at first.
    Open(u32, Open),
    /// Bulk bytes to the guest.
    Data(&'a [u8]),
    /// No more bulk bytes will follow.
    End,
    /// Number of bulk bytes that the guest may send in addition.
    Credit(u32),
    /// Send this signal to the whole process tree of the command.
    Signal(u8),
    /// New size of the terminal: rows and columns.
    Resize(u16, u16),
    /// The host gives the channel up: kill the command, undo an unfinished write. For a surviving command that has
    /// ended: the host has received everything.
    Close,
    /// Detach from a surviving command; for anything else the same as `Close`.
    Leave,
}

mod kind {
    pub(super) const DATA: u8 = 32;
    pub(super) const END: u8 = 33;
    pub(super) const CREDIT: u8 = 34;
    pub(super) const SIGNAL: u8 = 35;
    pub(super) const RESIZE: u8 = 36;
    pub(super) const CLOSE: u8 = 37;
    pub(super) const LEAVE: u8 = 38;
}

impl At {
    fn check(&self) -> Result<(), WireError> {
        let absolute = |path: &[u8]| path.starts_with(b"/");
        if absolute(&self.path) && self.beneath.as_deref().is_none_or(absolute) {
            Ok(())
        } else {
            Err(WireError("a path is not absolute"))
        }
    }
}

impl<'a> Request<'a> {
    /// Whether the request needs only the file permissions of the requested user.
    #[must_use]
    pub fn is_about_files(&self) -> bool {
        match self {
            Self::Open(_, open) => matches!(
                open,
                Open::Read(_) | Open::Write(_) | Open::Stat(_) | Open::List(_) | Open::MakeDir(_) | Open::Rename(..)
            ),
            Self::Data(_) | Self::End | Self::Credit(_) => true,
            Self::Signal(_) | Self::Resize(..) | Self::Close | Self::Leave => false,
        }
    }

    /// Whether a frame of this kind carries bulk bytes, which a reader can pass on before the frame is complete.
    #[must_use]
    pub fn is_bulk(kind: u8) -> bool {
        kind == kind::DATA
    }

    /// Appends this request as a frame.
    pub fn encode(&self, channel: u32, out: &mut Vec<u8>) {
        match self {
            Self::Open(window, open) => frame::append(out, channel, open.tag(), |out| {
                window.write(out);
                open.write_fields(out);
            }),
            Self::Data(bytes) => frame::append(out, channel, kind::DATA, |out| bytes.write(out)),
            Self::End => frame::append(out, channel, kind::END, |_| {}),
            Self::Credit(more) => frame::append(out, channel, kind::CREDIT, |out| more.write(out)),
            Self::Signal(number) => frame::append(out, channel, kind::SIGNAL, |out| number.write(out)),
            Self::Resize(rows, cols) => frame::append(out, channel, kind::RESIZE, |out| (*rows, *cols).write(out)),
            Self::Close => frame::append(out, channel, kind::CLOSE, |_| {}),
            Self::Leave => frame::append(out, channel, kind::LEAVE, |_| {}),
        }
    }

    /// Decodes a frame's payload.
    ///
    /// # Errors
    /// When the bytes are not exactly one request.
    pub fn decode(kind: u8, mut payload: &'a [u8]) -> Result<Self, WireError> {
        let from = &mut payload;
        let request = match kind {
            kind::DATA => Self::Data(Wire::read(from)?),
            kind::END => Self::End,
            kind::CREDIT => Self::Credit(u32::read(from)?),
            kind::SIGNAL => Self::Signal(u8::read(from)?),
            kind::RESIZE => Self::Resize(u16::read(from)?, u16::read(from)?),
            kind::CLOSE => Self::Close,
            kind::LEAVE => Self::Leave,
            open => Self::Open(u32::read(from)?, Open::read_fields(open, from)?),
        };
        wire::end(payload).map(|()| request)
    }
}
