//! Encoding of values: little-endian numbers and length-prefixed bytes; every length is checked before it is used.

use std::fmt;

use super::MAX_DATA;

/// Bytes that violate the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireError(pub &'static str);

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed frame: {}", self.0)
    }
}

impl std::error::Error for WireError {}

/// A value with an encoding. `'a` is the lifetime of the payload, which bulk bytes borrow.
pub(super) trait Wire<'a>: Sized {
    /// Appends the value to a payload.
    fn write(&self, to: &mut Vec<u8>);

    /// Removes the value from the front of a payload.
    fn read(from: &mut &'a [u8]) -> Result<Self, WireError>;

    /// Appends a list.
    fn write_list(items: &[Self], to: &mut Vec<u8>) {
        u32::try_from(items.len()).unwrap_or(u32::MAX).write(to);
        items.iter().for_each(|item| item.write(to));
    }

    /// Removes a list. Every item takes at least one byte, so a count above the remaining bytes is invalid.
    fn read_list(from: &mut &'a [u8]) -> Result<Vec<Self>, WireError> {
        let count = u32::read(from)? as usize;
        if count > from.len() {
            return Err(WireError("a list is longer than its frame"));
        }
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(Self::read(from)?);
        }
        Ok(items)
    }
}

/// An enum. Its encoding is the number of the variant and the variant's fields; in a frame, that number is the frame's
/// kind.
pub(super) trait Tagged<'a>: Sized {
    /// Number of the variant.
    fn tag(&self) -> u8;

    /// Appends the variant's fields.
    fn write_fields(&self, to: &mut Vec<u8>);

    /// Removes the fields of the variant with this number.
    fn read_fields(tag: u8, from: &mut &'a [u8]) -> Result<Self, WireError>;
}

impl<'a, T: Tagged<'a>> Wire<'a> for T {
    fn write(&self, to: &mut Vec<u8>) {
        self.tag().write(to);
        self.write_fields(to);
    }

    fn read(from: &mut &'a [u8]) -> Result<Self, WireError> {
        let tag = u8::read(from)?;
        T::read_fields(tag, from)
    }
}

/// Encodes a whole message.
pub(super) fn encode<'a>(message: &impl Wire<'a>) -> Vec<u8> {
    let mut out = Vec::new();
    message.write(&mut out);
    out
}

/// Decodes a whole message.
pub(super) fn decode<'a, T: Wire<'a>>(mut payload: &'a [u8]) -> Result<T, WireError> {
    let message = T::read(&mut payload)?;
    end(payload).map(|()| message)
}

/// Checks that nothing is left of a payload.
pub(super) fn end(rest: &[u8]) -> Result<(), WireError> {
    if rest.is_empty() { Ok(()) } else { Err(WireError("it has bytes left over")) }
}

/// Removes bytes that have their length in front.
pub(super) fn read_bytes<'a>(from: &mut &'a [u8]) -> Result<&'a [u8], WireError> {
    let length = u32::read(from)? as usize;
    let (bytes, rest) = from.split_at_checked(length).ok_or(TOO_SHORT)?;
    *from = rest;
    Ok(bytes)
}

const TOO_SHORT: WireError = WireError("it ends too early");

impl Wire<'_> for u8 {
    fn write(&self, to: &mut Vec<u8>) {
        to.push(*self);
    }

    fn read(from: &mut &[u8]) -> Result<Self, WireError> {
        let (byte, rest) = from.split_first().ok_or(TOO_SHORT)?;
        *from = rest;
        Ok(*byte)
    }

    fn write_list(bytes: &[Self], to: &mut Vec<u8>) {
        u32::try_from(bytes.len()).unwrap_or(u32::MAX).write(to);
        to.extend_from_slice(bytes);
    }

    /// A list of bytes becomes a C string: without NUL.
    fn read_list(from: &mut &[u8]) -> Result<Vec<Self>, WireError> {
        let bytes = read_bytes(from)?;
        if bytes.contains(&0) { Err(WireError("a string contains NUL")) } else { Ok(bytes.to_vec()) }
    }
}

macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl Wire<'_> for $number {
            fn write(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            fn read(from: &mut &[u8]) -> Result<Self, WireError> {
                let (bytes, rest) = from.split_first_chunk().ok_or(TOO_SHORT)?;
                *from = rest;
                Ok(Self::from_le_bytes(*bytes))
            }
        }
    )+};
}

numbers!(u16, u32, i32, u64, i64);

impl Wire<'_> for bool {
    fn write(&self, to: &mut Vec<u8>) {
        u8::from(*self).write(to);
    }

    fn read(from: &mut &[u8]) -> Result<Self, WireError> {
        match u8::read(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError("a flag is neither 0 nor 1")),
        }
    }
}

/// Text, in which bytes that are not UTF-8 are replaced.
impl Wire<'_> for String {
    fn write(&self, to: &mut Vec<u8>) {
        u8::write_list(self.as_bytes(), to);
    }

    fn read(from: &mut &[u8]) -> Result<Self, WireError> {
        Ok(Self::from_utf8_lossy(read_bytes(from)?).into_owned())
    }
}

/// Bulk bytes: the whole payload, without a length.
impl<'a> Wire<'a> for &'a [u8] {
    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self);
    }

    fn read(from: &mut &'a [u8]) -> Result<Self, WireError> {
        if from.is_empty() || from.len() > MAX_DATA {
            return Err(WireError("its data is empty or too long"));
        }
        Ok(std::mem::take(from))
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for Vec<T> {
    fn write(&self, to: &mut Vec<u8>) {
        T::write_list(self, to);
    }

    fn read(from: &mut &'a [u8]) -> Result<Self, WireError> {
        T::read_list(from)
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for Option<T> {
    fn write(&self, to: &mut Vec<u8>) {
        self.is_some().write(to);
        self.iter().for_each(|value| value.write(to));
    }

    fn read(from: &mut &'a [u8]) -> Result<Self, WireError> {
        if bool::read(from)? { T::read(from).map(Some) } else { Ok(None) }
    }
}

impl<'a, A: Wire<'a>, B: Wire<'a>> Wire<'a> for (A, B) {
    fn write(&self, to: &mut Vec<u8>) {
        self.0.write(to);
        self.1.write(to);
    }

    fn read(from: &mut &'a [u8]) -> Result<Self, WireError> {
        Ok((A::read(from)?, B::read(from)?))
    }
}
