//! An event stream as a model's server sends it: the first byte is the size of its pieces, which must make no difference.

use sandbar_agent::{ModelError, RawEvent, SseDecoder, SseEvent};

const LIMIT: usize = 4096;

type Found = (Vec<(Option<String>, Vec<u8>)>, Option<String>);

fn note(found: &mut Found, event: Result<Option<SseEvent<'_>>, ModelError>) -> bool {
    match event {
        Ok(Some(event)) => {
            let _any_answer_but_a_panic = serde_json::from_slice::<RawEvent>(event.data);
            found.0.push((event.name.map(str::to_owned), event.data.to_vec()));
            true
        }
        Ok(None) => false,
        Err(error) => {
            found.1 = Some(error.to_string());
            false
        }
    }
}

fn read(stream: &[u8], size: usize) -> Found {
    let mut decoder = SseDecoder::with_limits(LIMIT, 2 * LIMIT);
    let mut found = Found::default();
    for piece in stream.chunks(size) {
        decoder.push(piece);
        while note(&mut found, decoder.next_event()) {}
        if found.1.is_some() {
            return found;
        }
        assert!(decoder.held() <= 4 * LIMIT + size, "{} bytes are held", decoder.held());
    }
    while note(&mut found, decoder.finish()) {}
    found
}

/// Whether the bytes were read to the end.
pub fn accepts(bytes: &[u8]) -> bool {
    let Some((size, stream)) = bytes.split_first() else { return false };
    let whole = read(stream, stream.len().max(1));
    assert_eq!(read(stream, usize::from(*size).max(1)), whole);
    whole.1.is_none() && !whole.0.is_empty()
}
