//! One framed, multiplexed protocol over one byte stream, the same for every machine that has a guest.
//!
//! A frame is nine bytes (payload length, channel, kind) and a payload. The host opens a channel with a request; the
//! guest answers on it with [`Event`]s. Bulk bytes flow under per-channel credit in both directions, so a channel nobody
//! reads never blocks another. Both sides treat what arrives as hostile: sizes are checked before anything is kept.

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
pub use event::{BootFailure, CWD, Event, ExitKind, FailKind, Held, Hello, Strength, USERS_STAGE};
pub use frame::{FRAME_HEADER, FrameHeader, MAX_DATA, MAX_PAYLOAD};
pub use launch::{HostPath, Launch, LaunchMount, Level};
pub use process::{MAX_WORDS, ProcessRecord, ProcessState};
pub use record::{Kind, Record, Records};
pub use request::{At, Expected, Open, Request, Spawn};
pub use wire::WireError;

/// Version of everything in this module. Both sides must agree exactly: the guest ships inside the host's library, and a
/// machine that outlives its maker may meet another version of it.
pub const VERSION: u32 = 6;

/// Bytes a peer may send on a new channel towards the guest before it has been granted more.
pub const INPUT_WINDOW: u32 = 256 * 1024;
