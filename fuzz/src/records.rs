//! Records off a stream: the first byte is the size of the pieces it arrives in, which must make no difference.

use sandbar_guest::protocol::{Record, Records, WireError};

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Record>, Result<bool, WireError>) {
    let mut records = Records::default();
    let mut found = Vec::new();
    for piece in pieces {
        if let Err(error) = records.feed(piece, &mut found) {
            return (found, Err(error));
        }
    }
    (found, Ok(records.is_complete()))
}

/// Whether the bytes were read to the end.
pub fn accepts(bytes: &[u8]) -> bool {
    let Some((size, stream)) = bytes.split_first() else { return false };
    let whole = read(std::iter::once(stream));
    assert_eq!(read(stream.chunks(usize::from(*size).max(1))), whole);
    let mut again = Vec::new();
    whole.0.iter().for_each(|record| record.encode(&mut again));
    assert_eq!(read(std::iter::once(again.as_slice())), (whole.0, Ok(true)));
    whole.1 == Ok(true)
}
