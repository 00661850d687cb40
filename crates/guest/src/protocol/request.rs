//! Requests of the host to the guest.

use super::{
    MAX_DATA, WireError, frame,
    wire::{Reader, Writer},
};

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

/// Required state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The file does not exist.
    Nothing,
    /// A regular file with this size in bytes, these permission bits and this modification time in nanoseconds.
    File(u64, u32, i64),
}

impl Expected {
    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        if !from.flag()? {
            return Ok(Self::Nothing);
        }
        Ok(Self::File(from.u64()?, from.u32()?, from.i64()?))
    }

    fn write(self, to: &mut Writer<'_>) {
        to.flag(matches!(self, Self::File(..)));
        if let Self::File(size, mode, modified_ns) = self {
            to.u64(size);
            to.u32(mode);
            to.i64(modified_ns);
        }
    }
}

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

/// Requests that open a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Open {
    /// Start a command.
    Spawn(Spawn),
    /// Send the bytes of a regular file.
    Read(At),
    /// Replace a file with the bytes that follow.
    Write(At),
    /// Describe one path.
    Stat(At),
    /// Describe a directory's entries.
    List(At),
    /// Create a directory and its missing parents.
    MakeDir(At),
    /// Remove a file or a tree.
    Remove(At),
    /// Rename the first to the second.
    Rename(At, At),
    /// Send the metadata of a tree, without these paths; the flag asks for digests.
    Scan(At, Vec<Vec<u8>>, bool),
    /// Send a tree as a tar archive, without these paths.
    Pack(At, Vec<Vec<u8>>),
    /// Unpack the tar archive that follows.
    Unpack(At),
    /// Connect to a port of the machine's loopback interface.
    Connect(u16),
    /// List the commands.
    Processes,
    /// Attach to a command that no host is attached to.
    Adopt(u64),
    /// Send a signal to a command, attached or not.
    Signal(u64, u8),
    /// End every process and the guest itself.
    Stop,
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
    pub(super) const SPAWN: u8 = 1;
    pub(super) const READ: u8 = 2;
    pub(super) const WRITE: u8 = 3;
    pub(super) const STAT: u8 = 4;
    pub(super) const LIST: u8 = 5;
    pub(super) const MAKE_DIR: u8 = 6;
    pub(super) const REMOVE: u8 = 7;
    pub(super) const RENAME: u8 = 8;
    pub(super) const SCAN: u8 = 9;
    pub(super) const PACK: u8 = 10;
    pub(super) const UNPACK: u8 = 11;
    pub(super) const CONNECT: u8 = 12;
    pub(super) const STOP: u8 = 13;
    pub(super) const PROCESSES: u8 = 14;
    pub(super) const ADOPT: u8 = 15;
    pub(super) const SIGNAL_TO: u8 = 16;
    pub(super) const DATA: u8 = 32;
    pub(super) const END: u8 = 33;
    pub(super) const CREDIT: u8 = 34;
    pub(super) const SIGNAL: u8 = 35;
    pub(super) const RESIZE: u8 = 36;
    pub(super) const CLOSE: u8 = 37;
    pub(super) const LEAVE: u8 = 38;
}

impl At {
    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let at = Self {
            path: from.string()?,
            user: from.option(Reader::string)?,
            group: from.option(Reader::string)?,
            beneath: from.option(Reader::string)?,
            mode: from.option(Reader::u32)?,
            expected: from.option(Expected::read)?,
        };
        let absolute = |path: &[u8]| path.starts_with(b"/");
        if absolute(&at.path) && at.beneath.as_deref().is_none_or(absolute) {
            Ok(at)
        } else {
            Err(WireError("a path is not absolute"))
        }
    }

    fn write(&self, to: &mut Writer<'_>) {
        to.bytes(&self.path);
        to.option(self.user.as_ref(), |to, user| to.bytes(user));
        to.option(self.group.as_ref(), |to, group| to.bytes(group));
        to.option(self.beneath.as_ref(), |to, root| to.bytes(root));
        to.option(self.mode.as_ref(), |to, mode| to.u32(*mode));
        to.option(self.expected.as_ref(), |to, expected| expected.write(to));
    }
}

impl Spawn {
    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            argv: from.list(Reader::string)?,
            env: from.list(Reader::string)?,
            cwd: from.string()?,
            user: from.option(Reader::string)?,
            tty: from.option(|from| Ok((from.u16()?, from.u16()?)))?,
            stdin: from.flag()?,
            deadline_ms: from.u64()?,
            rlimits: from.list(|from| Ok((from.u32()?, from.u64()?)))?,
            keep: from.flag()?,
            joined: from.flag()?,
        })
    }

    fn write(&self, to: &mut Writer<'_>) {
        to.list(&self.argv, |to, argument| to.bytes(argument));
        to.list(&self.env, |to, variable| to.bytes(variable));
        to.bytes(&self.cwd);
        to.option(self.user.as_ref(), |to, user| to.bytes(user));
        to.option(self.tty.as_ref(), |to, (rows, cols)| {
            to.u16(*rows);
            to.u16(*cols);
        });
        to.flag(self.stdin);
        to.u64(self.deadline_ms);
        to.list(&self.rlimits, |to, (resource, value)| {
            to.u32(*resource);
            to.u64(*value);
        });
        to.flag(self.keep);
        to.flag(self.joined);
    }
}

impl Open {
    fn kind(&self) -> u8 {
        match self {
            Self::Spawn(_) => kind::SPAWN,
            Self::Read(_) => kind::READ,
            Self::Write(_) => kind::WRITE,
            Self::Stat(_) => kind::STAT,
            Self::List(_) => kind::LIST,
            Self::MakeDir(_) => kind::MAKE_DIR,
            Self::Remove(_) => kind::REMOVE,
            Self::Rename(..) => kind::RENAME,
            Self::Scan(..) => kind::SCAN,
            Self::Pack(..) => kind::PACK,
            Self::Unpack(_) => kind::UNPACK,
            Self::Connect(_) => kind::CONNECT,
            Self::Processes => kind::PROCESSES,
            Self::Adopt(_) => kind::ADOPT,
            Self::Signal(..) => kind::SIGNAL_TO,
            Self::Stop => kind::STOP,
        }
    }

    fn write(&self, to: &mut Writer<'_>) {
        match self {
            Self::Spawn(spawn) => spawn.write(to),
            Self::Read(at)
            | Self::Write(at)
            | Self::Stat(at)
            | Self::List(at)
            | Self::MakeDir(at)
            | Self::Remove(at)
            | Self::Unpack(at) => at.write(to),
            Self::Rename(from, onto) => {
                from.write(to);
                onto.write(to);
            }
            Self::Scan(at, skip, hashes) => {
                at.write(to);
                to.list(skip, |to, path| to.bytes(path));
                to.flag(*hashes);
            }
            Self::Pack(at, skip) => {
                at.write(to);
                to.list(skip, |to, path| to.bytes(path));
            }
            Self::Connect(port) => to.u16(*port),
            Self::Adopt(process) => to.u64(*process),
            Self::Signal(process, number) => {
                to.u64(*process);
                to.u8(*number);
            }
            Self::Processes | Self::Stop => {}
        }
    }

    fn read(kind: u8, from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            kind::SPAWN => Self::Spawn(Spawn::read(from)?),
            kind::READ => Self::Read(At::read(from)?),
            kind::WRITE => Self::Write(At::read(from)?),
            kind::STAT => Self::Stat(At::read(from)?),
            kind::LIST => Self::List(At::read(from)?),
            kind::MAKE_DIR => Self::MakeDir(At::read(from)?),
            kind::REMOVE => Self::Remove(At::read(from)?),
            kind::RENAME => Self::Rename(At::read(from)?, At::read(from)?),
            kind::SCAN => Self::Scan(At::read(from)?, from.list(Reader::string)?, from.flag()?),
            kind::PACK => Self::Pack(At::read(from)?, from.list(Reader::string)?),
            kind::UNPACK => Self::Unpack(At::read(from)?),
            kind::CONNECT => Self::Connect(from.u16()?),
            kind::PROCESSES => Self::Processes,
            kind::ADOPT => Self::Adopt(from.u64()?),
            kind::SIGNAL_TO => Self::Signal(from.u64()?, from.u8()?),
            kind::STOP => Self::Stop,
            _ => return Err(WireError("its kind is unknown")),
        })
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
            Self::Open(window, open) => frame::append(out, channel, open.kind(), |out| {
                let mut to = Writer(out);
                to.u32(*window);
                open.write(&mut to);
            }),
            Self::Data(bytes) => frame::append(out, channel, kind::DATA, |out| out.extend_from_slice(bytes)),
            Self::End => frame::append(out, channel, kind::END, |_| {}),
            Self::Credit(more) => frame::append(out, channel, kind::CREDIT, |out| Writer(out).u32(*more)),
            Self::Signal(number) => frame::append(out, channel, kind::SIGNAL, |out| Writer(out).u8(*number)),
            Self::Resize(rows, cols) => frame::append(out, channel, kind::RESIZE, |out| {
                let mut to = Writer(out);
                to.u16(*rows);
                to.u16(*cols);
            }),
            Self::Close => frame::append(out, channel, kind::CLOSE, |_| {}),
            Self::Leave => frame::append(out, channel, kind::LEAVE, |_| {}),
        }
    }

    /// Decodes a frame's payload.
    ///
    /// # Errors
    /// When the bytes are not exactly one request.
    pub fn decode(kind: u8, payload: &'a [u8]) -> Result<Self, WireError> {
        let mut from = Reader(payload);
        let request = match kind {
            kind::DATA if payload.is_empty() || payload.len() > MAX_DATA => {
                return Err(WireError("its data is empty or too long"));
            }
            kind::DATA => return Ok(Self::Data(payload)),
            kind::END => Self::End,
            kind::CREDIT => Self::Credit(from.u32()?),
            kind::SIGNAL => Self::Signal(from.u8()?),
            kind::RESIZE => Self::Resize(from.u16()?, from.u16()?),
            kind::CLOSE => Self::Close,
            kind::LEAVE => Self::Leave,
            open => {
                let window = from.u32()?;
                Self::Open(window, Open::read(open, &mut from)?)
            }
        };
        from.end()?;
        Ok(request)
    }
}
