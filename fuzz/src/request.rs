//! A request as the guest reads it: the first byte is the frame's kind, the rest its payload.

use sandbar_guest::protocol::{FRAME_HEADER, FrameHeader, Request};

/// Whether the bytes were read to the end.
pub fn accepts(bytes: &[u8]) -> bool {
    let Some((kind, payload)) = bytes.split_first() else { return false };
    let Ok(request) = Request::decode(*kind, payload) else { return false };
    let mut frame = Vec::new();
    request.encode(7, &mut frame);
    let header = FrameHeader::decode(&frame).expect("our own frame").expect("a whole header");
    assert_eq!((header.channel, header.length as usize), (7, frame.len() - FRAME_HEADER));
    assert_eq!(Request::decode(header.kind, &frame[FRAME_HEADER..]), Ok(request));
    true
}
