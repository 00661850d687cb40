//! Progress events: the output of a command while it runs.

use sandbar::{RunEvent, RunItemKind, prelude::*};
use serde_json::json;

use crate::rig::{Rig, call, done, exec, patiently};

/// Progress events and tool outputs of a run, in order.
async fn events(rig: &Rig) -> Vec<(&'static str, String)> {
    let mut stream = run(rig.agent(), "Go.").sandbox(rig.sandbox()).stream();
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            RunEvent::Progress { text, .. } => events.push(("printed", text)),
            RunEvent::Item { item, .. } if item.kind == RunItemKind::ToolOutput => {
                events.push(("answer", String::new()))
            }
            _ => {}
        }
    }
    stream.result().await.expect("it ends well");
    events
}

fn printed(events: &[(&str, String)]) -> String {
    events.iter().filter(|(kind, _)| *kind == "printed").map(|(_, text)| text.as_str()).collect()
}

#[tokio::test]
async fn output_arrives_in_pieces_in_order_and_before_the_answer() {
    patiently(["0.1", "1", "5"], async |pause| {
        let rig = Rig::turns([exec(&format!("for n in 1 2 3 4; do echo line $n; sleep {pause}; done")), done()]);
        let events = events(&rig).await;
        assert_eq!(printed(&events), "line 1\nline 2\nline 3\nline 4\n");
        assert_eq!(events.last().map(|(kind, _)| *kind), Some("answer"));
        rig.leaves_nothing().await;
        if events.len() >= 3 { Ok(()) } else { Err(format!("the output did not arrive in pieces: {events:?}")) }
    })
    .await;
}

#[tokio::test]
async fn no_output_of_a_quick_command_is_lost() {
    let rig = Rig::turns((0..10).map(|number| exec(&format!("echo quick {number}"))).chain([done()]));
    let mut stream = run(rig.agent(), "Go.").sandbox(rig.sandbox()).max_turns(20).stream();
    let mut text = String::new();
    while let Some(event) = stream.next().await {
        if let RunEvent::Progress { text: piece, .. } = event {
            text += &piece;
        }
    }
    let expected: String = (0..10).map(|number| format!("quick {number}\n")).collect();
    assert_eq!(text, expected);
    drop(stream);
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn characters_are_never_split() {
    let rig = Rig::turns([exec(r"printf '\303'; sleep 0.2; printf '\244 and \377\n'"), done()]);
    let events = events(&rig).await;
    assert_eq!(printed(&events), "ä and \u{fffd}\n");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn output_after_input_is_emitted_too() {
    patiently([0, 0, 2_000, 8_000, 25_000], async |time| {
        let rig = Rig::turns([
            call(
                "exec_command",
                json!({ "cmd": "while read line; do echo got $line; done", "tty": true, "yield_time_ms": time }),
            ),
            call("write_stdin", json!({ "session_id": 1000, "chars": "one\n", "yield_time_ms": 30000 })),
            done(),
        ]);
        let events = printed(&events(&rig).await);
        rig.leaves_nothing().await;
        // If the command is slow, only the echo of the terminal arrives.
        if events == "one\r\ngot one\r\n" { Ok(()) } else { Err(events) }
    })
    .await;
}
