//! A whole connection: frames one after the other, each read as either side would read it.

use sandbar_guest::protocol::{Event, FRAME_HEADER, FrameHeader, MAX_PAYLOAD, Request};

/// Whether the bytes were read to the end.
pub fn accepts(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Ok(Some(header)) = FrameHeader::decode(rest) {
        assert_eq!(header.encode(), rest[..FRAME_HEADER]);
        let length = header.length as usize;
        assert!(length <= MAX_PAYLOAD);
        let Some((payload, after)) = rest[FRAME_HEADER..].split_at_checked(length) else { return false };
        // No kind means one thing to the guest and another to the host.
        let request = Request::decode(header.kind, payload);
        let event = Event::decode(header.kind, payload);
        assert!(request.is_err() || event.is_err());
        rest = after;
    }
    rest.is_empty() && !bytes.is_empty()
}
