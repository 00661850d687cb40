//! Retries of the transport and of the run, and the reuse of connections.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use sandbar_agent::{Item, ModelRequest, Responses, Retry};
use sandbar_mock::{Fault, MockServer, Script, Turn, item};

use crate::asking::{ask, hello, responses, server};

fn policy(max_retries: u32) -> Option<Retry> {
    Some(Retry { max_retries, ..Retry::default() })
}

#[tokio::test]
async fn the_transport_asks_once_where_the_run_asks_again_itself() {
    for (attempt, retry, expected) in [(0, None, 3), (0, policy(5), 3), (1, policy(5), 1), (0, policy(0), 1)] {
        let server = server([Fault::status(500), Fault::status(500)]);
        let (model, _) = responses(&server);
        let mut request = ModelRequest { attempt, ..hello() };
        request.settings.retry = retry;
        ask(&model, request).await;
        assert_eq!(server.requests().len(), expected, "attempt {attempt}");
    }
}

#[tokio::test]
async fn a_conversation_the_server_keeps_is_not_asked_twice_once_it_was_taken() {
    for (fault, expected, requests) in
        [(Fault::CutAfterEvents(1), "Network", 2), (Fault::Empty, "Network", 2), (Fault::status(500), "Bye.", 3)]
    {
        let script = Script::new().turn(item::text("Hi.")).turn(Turn::new([item::text("Bye.")]).fault(fault.clone()));
        let server = MockServer::start(script).expect("a server");
        let (model, _) = responses(&server);
        let first = ask(&model, hello()).await.reply();
        let request = ModelRequest {
            previous_response_id: first.response_id,
            input: vec![Item::user("And?")].into(),
            ..ModelRequest::default()
        };
        assert_eq!(ask(&model, request).await.summary(), expected, "{fault:?}");
        assert_eq!(server.requests().len(), requests, "{fault:?}");
        assert_eq!(server.problems(), []);
    }
}

/// Answers requests one after the other. What ends an answer comes a little after its last event.
fn lag(connection: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    let mut writer = connection;
    loop {
        let (mut line, mut length) = (String::new(), 0);
        while reader.read_line(&mut line)? > 2 {
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            line.clear();
        }
        if line.is_empty() {
            return Ok(());
        }
        reader.read_exact(&mut vec![0; length])?;
        let event = "data: {\"type\":\"response.completed\",\"response\":{\"output\":[]}}\n\n";
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        write!(writer, "{head}{:x}\r\n{event}\r\n", event.len())?;
        writer.flush()?;
        thread::sleep(Duration::from_millis(2));
        write!(writer, "0\r\n\r\n")?;
    }
}

#[tokio::test]
async fn one_connection_carries_many_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
            thread::spawn(move || lag(connection));
        }
    });
    let model = Responses::new("m").base_url(format!("http://{address}/v1"));
    let mut counts = Vec::new();
    // The end of an answer is waited for, but not for as long as a busy machine may take.
    while counts.len() < 10 && counts.iter().all(|count| *count >= 5) {
        let before = connections.load(Ordering::SeqCst);
        for _ in 0..20 {
            ask(&model, hello()).await.reply();
        }
        counts.push(connections.load(Ordering::SeqCst) - before);
    }
    assert!(counts.iter().any(|count| *count < 5), "connections for twenty answers: {counts:?}");
}
