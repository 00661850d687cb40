//! What a command prints is told while it does.

use sandbar::{RunEvent, RunItemKind, prelude::*};
use serde_json::json;

use crate::rig::{Rig, call, done, exec, patiently};

/// Everything a run tells: pieces of output by call, and answers.
async fn told(rig: &Rig) -> Vec<(&'static str, String)> {
    let mut stream = run(rig.agent(), "Go.").sandbox(rig.sandbox()).stream();
    let mut told = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            RunEvent::Progress { text, .. } => told.push(("printed", text)),
            RunEvent::Item { item, .. } if item.kind == RunItemKind::ToolOutput => told.push(("answer", String::new())),
            _ => {}
        }
    }
    stream.result().await.expect("it ends well");
    told
}

fn printed(told: &[(&str, String)]) -> String {
    told.iter().filter(|(kind, _)| *kind == "printed").map(|(_, text)| text.as_str()).collect()
}

#[tokio::test]
async fn output_arrives_in_pieces_in_order_and_before_the_answer() {
    patiently(["0.1", "1", "5"], async |pause| {
        let rig = Rig::turns([exec(&format!("for n in 1 2 3 4; do echo line $n; sleep {pause}; done")), done()]);
        let told = told(&rig).await;
        assert_eq!(printed(&told), "line 1\nline 2\nline 3\nline 4\n");
        assert_eq!(told.last().map(|(kind, _)| *kind), Some("answer"));
        rig.leaves_nothing().await;
        if told.len() >= 3 { Ok(()) } else { Err(format!("it did not come in pieces: {told:?}")) }
    })
    .await;
}

#[tokio::test]
async fn nothing_of_a_quick_commands_output_is_lost() {
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
async fn letters_are_never_cut_in_two() {
    let rig = Rig::turns([exec(r"printf '\303'; sleep 0.2; printf '\244 and \377\n'"), done()]);
    let told = told(&rig).await;
    assert_eq!(printed(&told), "ä and \u{fffd}\n");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn answers_to_what_is_typed_are_told_too() {
    patiently([0, 0, 2_000, 8_000, 25_000], async |time| {
        let rig = Rig::turns([
            call(
                "exec_command",
                json!({ "cmd": "while read line; do echo got $line; done", "tty": true, "yield_time_ms": time }),
            ),
            call("write_stdin", json!({ "session_id": 1000, "chars": "one\n", "yield_time_ms": 30000 })),
            done(),
        ]);
        let told = printed(&told(&rig).await);
        rig.leaves_nothing().await;
        // Where the command is slow, the terminal's echo is all of the answer.
        if told == "one\r\ngot one\r\n" { Ok(()) } else { Err(told) }
    })
    .await;
}
