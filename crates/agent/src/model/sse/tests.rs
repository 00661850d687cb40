//! Tests of the decoder of server-sent events.

use std::time::Instant;

use proptest::prelude::*;

use super::*;

type Found = (Vec<(Option<String>, Vec<u8>)>, Option<String>);

fn read<'a>(mut decoder: SseDecoder, pieces: impl IntoIterator<Item = &'a [u8]>) -> Found {
    let mut found = Vec::new();
    let mut take = |event: SseEvent<'_>| found.push((event.name.map(str::to_owned), event.data.to_vec()));
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next_event() {
                Ok(Some(event)) => take(event),
                Ok(None) => break,
                Err(error) => return (found, Some(error.to_string())),
            }
        }
    }
    match decoder.finish() {
        Ok(Some(event)) => take(event),
        Ok(None) => {}
        Err(error) => return (found, Some(error.to_string())),
    }
    (found, None)
}

fn events(text: &str) -> Vec<(Option<String>, String)> {
    let (found, error) = read(SseDecoder::new(), [text.as_bytes()]);
    assert_eq!(error, None);
    found.into_iter().map(|(name, data)| (name, String::from_utf8(data).expect("text"))).collect()
}

#[test]
fn events_are_read_as_the_standard_says() {
    for (text, expected) in [
        ("data: a\n\n", vec![(None, "a")]),
        ("data:a\r\n\r\ndata: b\r\rdata:  c\n\n", vec![(None, "a"), (None, "b"), (None, " c")]),
        ("event: x\ndata: a\n\ndata: b\n\n", vec![(Some("x"), "a"), (None, "b")]),
        ("data: a\ndata: b\ndata\ndata: c\n\n", vec![(None, "a\nb\n\nc")]),
        (": ping\n\n:\n\ndata: a\n: in between\ndata: b\n\n", vec![(None, "a\nb")]),
        ("event: nothing\n\ndata: a\n\n", vec![(None, "a")]),
        ("\u{FEFF}data: a\n\n\u{FEFF}data: lost\n\n", vec![(None, "a")]),
        ("id: 7\nretry: 10\ndatum: x\ndata: a\n\n", vec![(None, "a")]),
        ("data: not closed", vec![(None, "not closed")]),
        ("data:\n\n", vec![(None, "")]),
        ("data: {\"a\":\"b: c\"}\n\n", vec![(None, "{\"a\":\"b: c\"}")]),
        ("", vec![]),
        ("\n\n\r\n", vec![]),
    ] {
        let expected: Vec<_> =
            expected.into_iter().map(|(name, data)| (name.map(str::to_owned), data.to_owned())).collect();
        assert_eq!(events(text), expected, "{text:?}");
    }
}

#[test]
fn the_mark_at_the_end_is_known() {
    for (data, expected) in [("[DONE]", true), (" [DONE] ", true), ("{}", false)] {
        assert_eq!(SseEvent { name: None, data: data.as_bytes() }.is_done_mark(), expected, "{data:?}");
    }
}

#[test]
fn too_long_a_line_or_event_is_refused_after_what_came_before() {
    let line = format!("data: ok\n\ndata: {}\n\n", "x".repeat(200));
    let lines = format!("data: ok\n\n{}\n", "data: 12345678\n".repeat(40));
    for (text, message) in [(line, "a line"), (lines, "an event")] {
        let (found, error) = read(SseDecoder::with_limits(100, 300), [text.as_bytes()]);
        assert_eq!(found.len(), 1);
        assert!(error.as_deref().is_some_and(|error| error.contains(message)), "{error:?}");
    }
}

#[test]
fn comments_without_end_cost_no_memory() {
    let mut decoder = SseDecoder::with_limits(100, 300);
    for _ in 0..10_000 {
        decoder.push(b": still here\n");
        assert_eq!(decoder.next_event().expect("a comment"), None);
        assert!(decoder.held() < 100);
    }
}

#[test]
fn a_line_that_never_ends_is_given_up() {
    let mut decoder = SseDecoder::with_limits(1000, 1000);
    let refused = (0..1000).any(|_| {
        decoder.push(b"data: xxxxxxxxxxxxxxx");
        decoder.next_event().is_err()
    });
    assert!(refused && decoder.held() < 2000);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn where_the_bytes_are_cut_makes_no_difference(
        lines in prop::collection::vec("(data: ?|event: ?|: |id: |\u{FEFF}data: )?[a-zé😀:]{0,6}(\r\n|\n|\r|\n\n|\r\n\r\n|\r\r)", 0..20),
        cuts in prop::collection::vec(1..9_usize, 0..200),
    ) {
        let text = lines.concat();
        let limits = || SseDecoder::with_limits(24, 48);
        let mut pieces = Vec::new();
        let mut rest = text.as_bytes();
        for cut in cuts {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        pieces.push(rest);
        prop_assert_eq!(read(limits(), pieces), read(limits(), [text.as_bytes()]));
        prop_assert_eq!(read(limits(), text.as_bytes().chunks(1)), read(limits(), [text.as_bytes()]));
    }
}

/// Ten times the duration on a slow machine without optimisation.
#[test]
fn many_events_and_one_long_one_take_time_in_proportion() {
    let delta = br#"data: {"type":"response.output_text.delta","delta":"word "}"#;
    let mut stream = Vec::new();
    for _ in 0..10_000 {
        stream.extend_from_slice(delta);
        stream.extend_from_slice(b"\n\n");
    }
    let mut long = b"data: ".to_vec();
    long.resize(8 << 20, b'x');
    long.extend_from_slice(b"\n\n");
    let began = Instant::now();
    assert_eq!(read(SseDecoder::new(), [stream.as_slice()]).0.len(), 10_000);
    assert_eq!(read(SseDecoder::new(), long.chunks(1400)).0.len(), 1);
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}
