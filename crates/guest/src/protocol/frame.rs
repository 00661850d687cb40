//! The nine-byte header of every frame.

use super::WireError;

/// Bytes of a frame before its payload.
pub const FRAME_HEADER: usize = 9;

/// The longest payload of bulk bytes.
pub const MAX_DATA: usize = 256 * 1024;

/// The longest payload of any kind: room for the longest argument list a kernel takes by default.
pub const MAX_PAYLOAD: usize = 2 * 1024 * 1024 + 64 * 1024;

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes that follow.
    pub length: u32,
    /// The channel; 0 is the connection itself.
    pub channel: u32,
    /// Kind of the payload.
    pub kind: u8,
}

impl FrameHeader {
    /// Encodes the header.
    #[must_use]
    pub fn encode(self) -> [u8; FRAME_HEADER] {
        let [a, b, c, d] = self.length.to_le_bytes();
        let [e, f, g, h] = self.channel.to_le_bytes();
        [a, b, c, d, e, f, g, h, self.kind]
    }

    /// Decodes a header if `bytes` is long enough.
    ///
    /// # Errors
    /// When the announced payload is longer than [`MAX_PAYLOAD`].
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, WireError> {
        let Some([a, b, c, d, e, f, g, h, kind]) = bytes.first_chunk::<FRAME_HEADER>().copied() else {
            return Ok(None);
        };
        let header = Self { length: u32::from_le_bytes([a, b, c, d]), channel: u32::from_le_bytes([e, f, g, h]), kind };
        if header.length as usize > MAX_PAYLOAD {
            return Err(WireError("its payload is longer than any frame's may be"));
        }
        Ok(Some(header))
    }
}

/// Appends a frame whose payload is written by `fill`.
pub(super) fn append(out: &mut Vec<u8>, channel: u32, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_HEADER]);
    fill(out);
    let length = u32::try_from(out.len() - start - FRAME_HEADER).unwrap_or(u32::MAX);
    let header = FrameHeader { length, channel, kind }.encode();
    if let Some(space) = out.get_mut(start..start + FRAME_HEADER) {
        space.copy_from_slice(&header);
    }
}
