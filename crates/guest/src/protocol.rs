//! One framed, multiplexed protocol over one byte stream, the same for every machine that has a guest.
//!
//! A frame is nine bytes (payload length, channel, kind) and a payload. The host opens a channel with a request; the
//! guest answers on it with [`Event`]s. Bulk bytes flow under per-channel credit in both directions, so a channel
//! without a reader never blocks another. Both sides treat the other's bytes as hostile: sizes are checked before
//! anything is stored.

#[macro_use]
mod definition;

mod accounts;
mod door;
mod event;
mod frame;
mod launch;
mod process;
mod record;
mod request;
mod wire;

pub use accounts::{AccountGroup, Accounts, MAX_ACCOUNTS};
pub use door::{DOOR, Detached, Knock, LET_GO, MARK, MAX_MEMO, Nonce, Welcome, Wish};
pub use event::{BootFailure, CWD, Event, ExitKind, FailKind, Hello, LimitStrengths, Strength, USERS_STAGE};
pub use frame::{FRAME_HEADER, FrameHeader, MAX_DATA, MAX_PAYLOAD};
pub use launch::{HostPath, Launch, LaunchMount, Level};
pub use process::{MAX_WORDS, ProcessRecord, ProcessState};
pub use record::{Kind, Record, Records};
pub use request::{At, Expected, Open, Request, Spawn};
pub use wire::WireError;

/// Version of everything in this module. Both sides must agree exactly: the guest ships inside the host's library, and
/// a machine that outlives its maker may be attached to by another version of that library.
pub const VERSION: u32 = 6;

/// Bytes that the host may send on a new channel before the guest grants more.
pub const INPUT_WINDOW: u32 = 256 * 1024;
