//! Random bytes for ids and nonces, and their hexadecimal form.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

pub(crate) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let count = getrandom(bytes.as_mut_slice(), GetRandomFlags::empty())?;
    if count < bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
