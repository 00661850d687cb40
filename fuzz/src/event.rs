//! An event as the host reads it: the first byte is the frame's kind, the rest its payload.

use sandbar_guest::protocol::{Event, FRAME_HEADER, FrameHeader};

/// Whether the bytes were read to the end.
pub fn accepts(bytes: &[u8]) -> bool {
    let Some((kind, payload)) = bytes.split_first() else { return false };
    let Ok(event) = Event::decode(*kind, payload) else { return false };
    let mut frame = Vec::new();
    event.encode(7, &mut frame);
    let header = FrameHeader::decode(&frame).expect("our own frame").expect("a whole header");
    assert_eq!((header.channel, header.length as usize), (7, frame.len() - FRAME_HEADER));
    assert_eq!(Event::decode(header.kind, &frame[FRAME_HEADER..]), Ok(event));
    true
}
