//! Compressed answers: streamed, bounded like others, and refused if the encoding is not supported.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use futures::StreamExt;
use parking_lot::Mutex;
use sandbar_agent::{Model, ModelEndpoint, ModelEvent, Responses};

use crate::asking::{Notes, ask, hello, is_whole};

const PATIENCE: Duration = Duration::from_secs(60);

fn delta(word: &str) -> String {
    format!("data: {{\"type\":\"response.output_text.delta\",\"delta\":\"{word}\"}}\n\n")
}

fn completed() -> String {
    "data: {\"type\":\"response.completed\",\"response\":{\"output\":[]}}\n\n".to_owned()
}

/// Each text compressed and flushed, so that it can be read before the next is there.
fn gzip(texts: &[String]) -> Vec<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let mut pieces = Vec::new();
    for text in texts {
        encoder.write_all(text.as_bytes()).expect("compress");
        encoder.flush().expect("compress");
        pieces.push(std::mem::take(encoder.get_mut()));
    }
    pieces.push(encoder.finish().expect("compress"));
    pieces
}

/// The same as brotli, each text a block that is not compressed: the window's size, the blocks, and an empty one at the end.
fn brotli(texts: &[String]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        let size = u32::try_from(text.len()).expect("a short text") - 1;
        let bits = if at == 0 { size << 4 | 1 << 20 } else { size << 3 | 1 << 19 };
        pieces.push([&bits.to_le_bytes()[..3], text.as_bytes()].concat());
    }
    pieces.push(vec![3]);
    pieces
}

/// What a server heard.
#[derive(Clone, Default)]
struct Requests(Arc<Mutex<Vec<String>>>);

impl Requests {
    fn count(&self) -> usize {
        self.0.lock().len()
    }
}

/// A server that answers every request with this head and these pieces. With `turns`, each piece but the first waits for
/// one.
fn serve(head: &str, pieces: Vec<Vec<u8>>, turns: Option<Receiver<()>>) -> (Responses, Requests, Notes) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (requests, head) = (Requests::default(), format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n"));
    let heard = requests.clone();
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let _client_gone = answer(connection, &heard, &head, &pieces, turns.as_ref());
        }
    });
    let notes = Notes::default();
    let endpoint = ModelEndpoint::new(format!("http://{address}/v1")).patience(notes.clone());
    (Responses::new("m").at(endpoint), requests, notes)
}

fn answer(
    mut connection: TcpStream,
    requests: &Requests,
    head: &str,
    pieces: &[Vec<u8>],
    turns: Option<&Receiver<()>>,
) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let (mut request, mut piece) = (Vec::<u8>::new(), [0; 4096]);
    while !is_whole(&request)
        && let Ok(count @ 1..) = connection.read(&mut piece)
    {
        request.extend_from_slice(&piece[..count]);
    }
    requests.0.lock().push(String::from_utf8_lossy(&request).to_lowercase());
    connection.write_all(head.as_bytes())?;
    for (at, piece) in pieces.iter().enumerate() {
        if at > 0
            && let Some(turns) = turns
        {
            turns.recv_timeout(PATIENCE).map_err(io::Error::other)?;
        }
        connection.write_all(piece)?;
    }
    Ok(())
}

fn events(encoding: &str) -> String {
    format!("200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: {encoding}")
}

#[tokio::test]
async fn a_compressed_stream_is_delivered_event_by_event() {
    let texts = [delta("one"), delta("two"), delta("three"), completed()];
    for (encoding, pieces) in [("gzip", gzip(&texts)), ("br", brotli(&texts))] {
        let (turn, turns) = mpsc::channel();
        let (model, requests, notes) = serve(&events(encoding), pieces, Some(turns));
        let mut stream = model.stream(hello()).await.expect("a stream");
        let mut words = Vec::new();
        // The server sends nothing more before what it has sent was read here.
        while let Ok(Some(event)) = tokio::time::timeout(PATIENCE, stream.next()).await {
            match event.expect("an event") {
                ModelEvent::Raw(raw) => words.extend(raw.text_delta().map(str::to_owned)),
                ModelEvent::Done(_) => words.push("done".to_owned()),
                other => panic!("{other:?}"),
            }
            let _the_last_was_sent = turn.send(());
        }
        assert_eq!(words, ["one", "two", "three", "done"], "{encoding}");
        assert_eq!((requests.count(), notes.millis()), (1, vec![]), "{encoding}");
        assert!(requests.0.lock()[0].contains("accept-encoding: gzip, br\r\n"));
    }
}

#[tokio::test]
async fn an_encoding_that_is_not_known_is_named_and_not_asked_for_again() {
    for encoding in ["zstd", "gzip, gzip", "deflate"] {
        let (model, requests, _notes) = serve(&events(encoding), vec![completed().into_bytes()], None);
        let heard = ask(&model, hello()).await;
        let error = heard.end.expect_err("it cannot be read").to_string();
        assert!(error.contains(&format!("content encoding {encoding:?}")), "{error}");
        assert_eq!(requests.count(), 1, "{encoding}");
    }
}

#[tokio::test]
async fn what_is_damaged_or_too_large_is_an_error_at_once() {
    let bomb = format!("data: {}", "x".repeat(40 << 20));
    let table = [
        ("gzip", gzip(&[bomb]), "longer than 33554432 bytes"),
        ("gzip", vec![completed().into_bytes()], "no valid gzip"),
        ("br", vec![vec![0xff; 100]], "no valid br"),
    ];
    for (encoding, pieces, words) in table {
        let (model, requests, _notes) = serve(&events(encoding), pieces, None);
        let error = ask(&model, hello()).await.end.expect_err("it cannot be read").to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(requests.count(), 1, "{words}");
    }
}

#[tokio::test]
async fn what_a_server_says_about_an_error_is_decompressed_too() {
    let message = "no such model ".repeat(20);
    let said = [format!("{{\"error\":{{\"message\":\"{message}\",\"code\":\"missing\"}}}}")];
    let head =
        |encoding: &str| format!("404 Not Found\r\ncontent-type: application/json\r\ncontent-encoding: {encoding}");
    let table = [
        ("gzip", gzip(&said), "no such model"),
        ("br", brotli(&said), "no such model"),
        ("zstd", vec![vec![1, 2, 3]], "content encoding \"zstd\""),
        // As much of a bomb as of any other explanation.
        ("gzip", gzip(&["x".repeat(40 << 20)]), "xxx"),
    ];
    for (encoding, pieces, words) in table {
        let (model, requests, _notes) = serve(&head(encoding), pieces, None);
        let heard = ask(&model, hello()).await;
        assert_eq!((heard.summary().as_str(), requests.count()), ("Status 404", 1), "{encoding}");
        let error = heard.end.expect_err("an error").to_string();
        assert!(error.contains(words) && error.len() < 1 << 17, "{encoding}: {} bytes", error.len());
    }
}
