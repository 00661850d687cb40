//! The system calls that need `unsafe`, each behind a safe function; everything else goes through `rustix`.

pub(crate) mod exec;
pub(crate) mod files;
pub(crate) mod process;
pub(crate) mod security;

use std::io;

/// Result of a raw call: its value, or the error in `errno`.
pub(crate) fn check(value: libc::c_long) -> io::Result<libc::c_long> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}
