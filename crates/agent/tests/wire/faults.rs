//! Faults between a model and the client: each leads to a clear error, and never to an endless wait.

use std::time::Duration;

use sandbar_agent::{ModelEndpoint, ModelError, ModelRequest, Responses};
use sandbar_mock::{Fault, Malformed};

use crate::asking::{Notes, ask, chat, endpoint, hello, responses, saying, saying_as, server};

const GOOD: &str = "Hello, wörld.";

fn failed(code: &str) -> Fault {
    Fault::Failed { code: code.to_owned(), message: "it broke".to_owned() }
}

fn error_event(code: &str) -> Fault {
    Fault::ErrorEvent { code: code.to_owned(), message: "it broke".to_owned() }
}

fn in_a_hurry() -> ModelRequest {
    let mut request = hello();
    request.settings.timeout = Some(Duration::from_millis(300));
    request
}

/// Faults, one per attempt; what comes of them; how long was waited between attempts.
fn table() -> Vec<(Vec<Fault>, &'static str, Vec<u128>)> {
    let locked =
        || Fault::status(400).body(serde_json::json!({ "error": { "message": "m", "code": "conversation_locked" } }));
    vec![
        (vec![], GOOD, vec![]),
        (vec![Fault::status(401)], "Status 401", vec![]),
        (vec![Fault::status(403)], "Status 403", vec![]),
        (vec![Fault::status(404)], "Status 404", vec![]),
        (vec![Fault::status(307).header("location", "http://127.0.0.1:1/")], "Status 307", vec![]),
        (vec![Fault::status(429).header("retry-after", "3")], GOOD, vec![3000]),
        (vec![Fault::status(429).header("retry-after-ms", "30")], GOOD, vec![30]),
        (vec![Fault::status(429).header("retry-after", "300")], "Status 429", vec![]),
        (vec![Fault::status(500), Fault::status(500)], GOOD, vec![500, 1000]),
        (vec![Fault::status(502), Fault::status(503), Fault::status(504)], "Status 504", vec![500, 1000]),
        (vec![Fault::status(503).header("x-should-retry", "false")], "Status 503", vec![]),
        (vec![Fault::status(422).header("x-should-retry", "true")], GOOD, vec![500]),
        (vec![Fault::status(408), Fault::status(409)], GOOD, vec![500, 1000]),
        (vec![locked(), locked(), locked()], GOOD, vec![1000, 2000, 4000]),
        (vec![locked(), locked(), locked(), locked()], "Status 400", vec![1000, 2000, 4000]),
        (vec![Fault::Empty], GOOD, vec![500]),
        (vec![Fault::Empty, Fault::Empty, Fault::Empty], "Network", vec![500, 1000]),
        (vec![Fault::CutAfterEvents(0)], GOOD, vec![500]),
        (vec![Fault::CutAfterEvents(1), Fault::status(500)], GOOD, vec![500, 1000]),
        (vec![Fault::CutAfterBytes(10)], GOOD, vec![500]),
        (vec![Fault::CutAfterEvents(6)], "AfterOutput Network", vec![]),
        (vec![failed("server_error")], "Failed server_error", vec![]),
        (vec![failed("invalid_prompt")], "Failed invalid_prompt", vec![]),
        (vec![error_event("rate_limit_exceeded")], "Failed rate_limit_exceeded", vec![]),
        (vec![Fault::Incomplete { reason: "max_output_tokens".to_owned() }], "Failed max_output_tokens", vec![]),
        (vec![Fault::Incomplete { reason: "content_filter".to_owned() }], "Failed content_filter", vec![]),
        (vec![Fault::ContentType("text/html".to_owned())], "Malformed", vec![]),
        (vec![Fault::ContentType("text/event-stream; charset=utf-8".to_owned())], GOOD, vec![]),
        (vec![Fault::Malformed(Malformed::InvalidJson)], "Malformed", vec![]),
        (vec![Fault::Malformed(Malformed::InvalidUtf8)], "Malformed", vec![]),
        (vec![Fault::Malformed(Malformed::GarbageLine)], GOOD, vec![]),
        (vec![Fault::Malformed(Malformed::Split)], GOOD, vec![]),
        (vec![Fault::Malformed(Malformed::Crlf)], GOOD, vec![]),
        (vec![Fault::Malformed(Malformed::Comments)], GOOD, vec![]),
        (vec![Fault::Malformed(Malformed::NoFinalBlank)], GOOD, vec![]),
        (vec![Fault::Malformed(Malformed::OversizedLine(1 << 20))], GOOD, vec![]),
        (vec![Fault::Malformed(Malformed::OversizedLine(33 << 20))], "Malformed", vec![]),
        (vec![Fault::Slow { bytes: 50, every: Duration::from_millis(1) }], GOOD, vec![]),
    ]
}

#[tokio::test]
async fn every_fault_is_survived_or_said() {
    for (faults, expected, waits) in table() {
        let server = server(faults.clone());
        let (model, notes) = responses(&server);
        let heard = ask(&model, hello()).await;
        assert_eq!(heard.summary(), expected, "{faults:?}: {:?}", heard.end);
        assert_eq!(notes.millis(), waits, "{faults:?}");
        assert_eq!(server.requests().len(), waits.len() + 1, "{faults:?}");
        if let Ok(reply) = heard.end {
            assert_eq!(reply.usage.requests, waits.len() as u64 + 1, "failed attempts count");
            assert!(reply.request_id.is_some_and(|id| !id.is_empty()));
        }
    }
}

#[tokio::test]
async fn every_fault_is_survived_or_said_by_chat_too() {
    for (faults, expected, waits) in table() {
        let server = server(faults.clone());
        let (model, notes) = chat(&server);
        let heard = ask(&model, hello()).await;
        // Other events, so the places of some cuts differ; nothing is ever shown twice all the same.
        let cut_elsewhere = matches!(faults.first(), Some(Fault::CutAfterEvents(1..)));
        if !cut_elsewhere {
            assert_eq!(heard.summary(), expected, "{faults:?}: {:?}", heard.end);
            assert_eq!(notes.millis(), waits, "{faults:?}");
        }
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let server = server([Fault::Hang, Fault::Hang, Fault::Hang]);
    let (model, notes) = responses(&server);
    let heard = ask(&model, in_a_hurry()).await;
    assert_eq!(heard.summary(), "Timeout");
    assert_eq!(notes.millis(), [500, 1000]);
}

#[tokio::test]
async fn a_server_that_falls_silent_is_given_up() {
    let slow = || Fault::Slow { bytes: 100_000, every: Duration::from_secs(600) };
    let mut heard = Vec::new();
    // A busy machine may be silent for longer than that itself.
    for idle in [100, 3_000, 20_000] {
        let server = server([slow(), slow()]);
        let (endpoint, notes) = endpoint(&server);
        let model = Responses::new("m").at(endpoint.idle_timeout(Duration::from_millis(idle)));
        heard.push((ask(&model, hello()).await.summary(), notes.millis()));
        if heard.last().is_some_and(|(summary, _)| summary == GOOD) {
            break;
        }
    }
    assert_eq!(heard.last(), Some(&(GOOD.to_owned(), vec![500, 1000])), "the third attempt is fine: {heard:?}");
}

#[tokio::test]
async fn an_unreachable_server_is_a_lost_connection() {
    let notes = Notes::default();
    let model = Responses::new("m").at(ModelEndpoint::new("http://127.0.0.1:1/v1").patience(notes.clone()));
    let heard = ask(&model, hello()).await;
    let Err(ModelError::Network { host, reason }) = &heard.end else { panic!("{:?}", heard.end) };
    assert_eq!(host, "http://127.0.0.1:1");
    assert!(reason.to_lowercase().contains("refused"), "{reason}");
    assert_eq!(notes.millis(), [500, 1000]);
}

#[tokio::test]
async fn a_failure_after_part_of_an_answer_says_so_if_it_might_have_passed() {
    for (code, expected) in [("server_error", "AfterOutput Failed server_error"), ("bad", "Failed bad")] {
        let body = format!(
            "data: {{\"type\":\"response.output_text.delta\",\"delta\":\"Hel\"}}\n\n\
             data: {{\"type\":\"error\",\"code\":\"{code}\",\"message\":\"it broke\"}}\n\n"
        );
        let model = Responses::new("m").at(ModelEndpoint::new(saying(body)).patience(Notes::default()));
        let heard = ask(&model, hello()).await;
        assert_eq!((heard.summary().as_str(), heard.events.len()), (expected, 2));
    }
}

#[tokio::test]
async fn what_is_no_stream_is_read_for_what_it_says_about_an_error() {
    for (kind, body, expected) in [
        ("application/json", r#"{"error":{"code":"overloaded","message":"later"}}"#, "Failed overloaded"),
        ("application/json", r#"{"object":"response"}"#, "Malformed"),
        ("text/html", "<h1>Sign in</h1>", "Malformed"),
    ] {
        let model = Responses::new("m").at(ModelEndpoint::new(saying_as(kind, body)).patience(Notes::default()));
        assert_eq!(ask(&model, hello()).await.summary(), expected, "{body}");
    }
}

#[tokio::test]
async fn the_longest_timeout_there_is_overflows_nothing() {
    let server = server([]);
    let (endpoint, _) = endpoint(&server);
    let mut request = hello();
    request.settings.timeout = Some(Duration::MAX);
    let model = Responses::new("m").at(endpoint.idle_timeout(Duration::MAX));
    assert_eq!(ask(&model, request).await.summary(), GOOD);
}

#[tokio::test]
async fn what_was_shown_before_a_cut_is_shown_once() {
    let server = server([Fault::CutAfterEvents(1)]);
    let (model, _) = responses(&server);
    let heard = ask(&model, hello()).await;
    let text: String = heard.events.iter().filter_map(|event| event.text_delta()).collect();
    assert_eq!(text, GOOD);
    assert_eq!(heard.kinds().iter().filter(|kind| **kind == "response.completed").count(), 1);
}
