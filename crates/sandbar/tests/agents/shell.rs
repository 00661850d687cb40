//! The tools `exec_command` and `write_stdin`.

use sandbar::{
    mock::{Script, Turn},
    prelude::*,
};
use serde_json::{Value, json};

use crate::rig::{Rig, call, done, exec, exited, news, patiently, workspace};

#[tokio::test]
async fn the_schemas_of_the_shell_tools_match_the_reference_exactly() {
    let rig = Rig::turns([done()]);
    rig.run(&rig.agent()).await;
    assert_eq!(rig.tool_names(0), ["view_image", "apply_patch", "exec_command", "write_stdin"]);
    let exec_command = rig.tool(0, "exec_command");
    assert_eq!(
        exec_command["parameters"].to_string(),
        r#"{"type":"object","required":["cmd"],"properties":{"cmd":{"type":"string","minLength":1},"workdir":{"type":["string","null"],"default":null},"shell":{"type":["string","null"],"default":null},"login":{"type":"boolean","default":true},"tty":{"type":"boolean","default":false},"yield_time_ms":{"type":"integer","minimum":0,"default":10000},"max_output_tokens":{"type":["integer","null"],"minimum":1,"default":null}}}"#
    );
    assert_eq!((&exec_command["type"], &exec_command["strict"]), (&json!("function"), &json!(false)));
    assert_eq!(
        rig.tool(0, "write_stdin")["parameters"].to_string(),
        r#"{"type":"object","required":["session_id"],"properties":{"session_id":{"type":"integer"},"chars":{"type":"string","default":""},"yield_time_ms":{"type":"integer","minimum":0,"default":250},"max_output_tokens":{"type":["integer","null"],"minimum":1,"default":null}}}"#
    );
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn the_output_of_a_command_has_the_reference_format() {
    let (root, sub) = (workspace(), format!("{}/sub dir", workspace()));
    let table = [
        (json!({ "cmd": "echo hello" }), exited(0, "hello\n")),
        (json!({ "cmd": "printf out; echo err >&2; exit 3" }), exited(3, "outerr\n")),
        (json!({ "cmd": "kill -9 $$" }), exited(137, "")),
        (json!({ "cmd": "pwd", "workdir": "sub dir" }), exited(0, &format!("{sub}\n"))),
        (json!({ "cmd": "pwd", "workdir": sub }), exited(0, &format!("{sub}\n"))),
        (json!({ "cmd": "pwd", "workdir": "  " }), exited(0, &format!("{root}\n"))),
        (
            json!({ "cmd": "echo a || echo b", "workdir": null, "shell": null, "max_output_tokens": null }),
            exited(0, "a\n"),
        ),
        (json!({ "cmd": "shopt -q login_shell; echo $?", "shell": "bash", "login": false }), exited(0, "1\n")),
        (json!({ "cmd": "shopt -q login_shell; echo $?", "shell": "bash", "login": true }), exited(0, "0\n")),
        (json!({ "cmd": "test -t 0 && test -t 1 && echo terminal", "tty": true }), exited(0, "terminal\r\n")),
        (json!({ "cmd": "test -t 0 || echo none; cat", "tty": false }), exited(0, "none\n")),
        (json!({ "cmd": "echo $GREETING $NO_COLOR $TERM" }), exited(0, "hello 1 dumb\n")),
        (json!({ "cmd": "sh -c 'sleep 300 &' ; echo left" }), exited(0, "left\n")),
    ];
    let patient = |arguments: &Value| {
        let mut arguments = arguments.clone();
        arguments["yield_time_ms"] = json!(30000);
        call("exec_command", arguments)
    };
    let rig = Rig::turns(table.iter().map(|(arguments, _)| patient(arguments)).chain([done()]));
    let manifest = Manifest::new().entry("sub dir", Dir::new()).env("GREETING", "hello");
    run(rig.agent().manifest(manifest), "Go.").sandbox(rig.sandbox()).max_turns(50).await.expect("it ends well");
    for ((arguments, expected), output) in table.iter().zip(rig.texts()) {
        assert_eq!(news(&output), expected, "{arguments}");
    }
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn long_output_is_cut_in_the_middle_and_reports_its_length() {
    let rig = Rig::turns([
        call("exec_command", json!({ "cmd": "seq 1 100000", "max_output_tokens": 50, "yield_time_ms": 30000 })),
        exec("seq 1 100000"),
        call("exec_command", json!({ "cmd": "printf 12345678", "max_output_tokens": 2, "yield_time_ms": 30000 })),
        done(),
    ]);
    rig.run(&rig.agent()).await;
    let outputs = rig.texts();
    // The whole output has 588,895 bytes.
    let head =
        "Process exited with code 0\nOriginal token count: 147224\nOutput:\nTotal output lines: 100000\n\n1\n2\n";
    for text in &outputs[..2] {
        assert!(news(text).starts_with(head), "{text}");
        assert!(text.contains(" tokens truncated…") && text.ends_with("99999\n100000\n"), "{text}");
    }
    let output = |text: &str| text.split_once("Output:\n").expect("output").1.len();
    assert!(output(&outputs[0]) <= 200 && output(&outputs[0]) > 150, "{}", outputs[0]);
    assert!(output(&outputs[1]) <= 40_000 && output(&outputs[1]) > 39_000, "{}", output(&outputs[1]));
    assert_eq!(news(&outputs[2]), exited(0, "12345678"));
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_running_command_gets_input_is_polled_and_interrupted() {
    let outputs = patiently([0, 0, 2_000, 8_000, 25_000], async |time| {
        let rig = Rig::turns([
            call(
                "exec_command",
                json!({ "cmd": "while read line; do echo got $line; done", "tty": true, "yield_time_ms": time }),
            ),
            call("write_stdin", json!({ "session_id": 1000, "chars": "one\n", "yield_time_ms": 30000 })),
            call("write_stdin", json!({ "session_id": 1000, "chars": "\u{3}", "yield_time_ms": 30000 })),
            call("write_stdin", json!({ "session_id": 1000, "chars": "two\n" })),
            done(),
        ]);
        rig.run(&rig.agent()).await;
        let outputs = rig.texts();
        rig.leaves_nothing().await;
        // The echo of the terminal is output too; if the command is slow, only the echo arrives.
        let is_whole = news(&outputs[1]) == "Process running with session ID 1000\nOutput:\none\r\ngot one\r\n";
        if is_whole { Ok(outputs) } else { Err(outputs[1].clone()) }
    })
    .await;
    assert_eq!(news(&outputs[0]), "Process running with session ID 1000\nOutput:\n");
    assert!(news(&outputs[2]).starts_with("Process exited with code 130\nOutput:\n"), "{}", outputs[2]);
    assert_eq!(news(&outputs[3]), exited(1, "write_stdin failed: PTY session not found: 1000"));
}

#[tokio::test]
async fn a_command_without_a_terminal_takes_no_input_but_can_be_polled_and_interrupted() {
    let outputs = patiently([250, 2_000, 8_000, 25_000], async |time| {
        let rig = Rig::turns([
            call("exec_command", json!({ "cmd": "echo begun; sleep 300", "yield_time_ms": time })),
            call("write_stdin", json!({ "session_id": 1000, "chars": "hello\n" })),
            call("write_stdin", json!({ "session_id": 1000, "chars": "\u{3}", "yield_time_ms": 30000 })),
            call("write_stdin", json!({ "session_id": 4242 })),
            done(),
        ]);
        rig.run(&rig.agent()).await;
        let outputs = rig.texts();
        rig.leaves_nothing().await;
        let is_whole = news(&outputs[0]) == "Process running with session ID 1000\nOutput:\nbegun\n";
        if is_whole { Ok(outputs) } else { Err(outputs[0].clone()) }
    })
    .await;
    assert!(
        news(&outputs[1]).starts_with("Process exited with code 1\nOutput:\nwrite_stdin failed: "),
        "{}",
        outputs[1]
    );
    assert!(outputs[1].contains("tty=true"), "{}", outputs[1]);
    assert!(news(&outputs[2]).starts_with("Process exited with code 130\nOutput:\n"), "{}", outputs[2]);
    assert_eq!(news(&outputs[3]), exited(1, "write_stdin failed: PTY session not found: 4242"));
}

#[tokio::test]
async fn a_poll_waits_for_the_end_and_returns_output_once() {
    // Duration of the command, and the waiting times of the two calls.
    patiently([(1, 300, 0), (6, 3_000, 30_000), (24, 12_000, 60_000)], async |(sleep, begin, end)| {
        let rig = Rig::turns([
            call(
                "exec_command",
                json!({ "cmd": format!("echo one; sleep {sleep}; echo two"), "yield_time_ms": begin }),
            ),
            call("write_stdin", json!({ "session_id": 1000, "yield_time_ms": end })),
            done(),
        ]);
        rig.run(&rig.agent()).await;
        let outputs = rig.texts();
        rig.leaves_nothing().await;
        let is_first = news(&outputs[0]) == "Process running with session ID 1000\nOutput:\none\n";
        if is_first && news(&outputs[1]) == exited(0, "two\n") { Ok(()) } else { Err(outputs.join("\n")) }
    })
    .await;
}

#[tokio::test]
async fn calls_of_one_reply_run_concurrently_and_are_answered_in_order() {
    let calls = Turn::new([exec("sleep 0.5; echo one"), exec("echo two"), exec("sleep 0.2; echo three")]);
    let rig = Rig::new(Script::new().turn(calls).turn(done()));
    rig.run(&rig.agent()).await;
    let output: Vec<String> = rig.texts().iter().map(|text| news(text).to_owned()).collect();
    assert_eq!(output, ["one\n", "two\n", "three\n"].map(|output| exited(0, output)));
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_patch_in_a_command_line_is_applied_by_the_engine() {
    let heredoc = |dir: &str, path: &str| {
        format!("{dir}apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: {path}\n+hello\n*** End Patch\nEOF\n")
    };
    let rig = Rig::turns([
        exec(&heredoc("", "a.txt")),
        exec(&heredoc("cd sub && ", "b.txt")),
        call("exec_command", json!({ "cmd": heredoc("cd deep && ", "c.txt"), "workdir": "sub" })),
        exec("apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: missing\n@@\n-a\n+b\n*** End Patch\nEOF\n"),
        exec(&heredoc("cd .. && ", "d.txt")),
        exec(&format!("cat a.txt sub/b.txt sub/deep/c.txt; ls {}", workspace())),
        done(),
    ]);
    rig.run(&rig.agent().manifest(Manifest::new().entry("sub/deep", Dir::new()))).await;
    let outputs = rig.texts();
    assert_eq!(news(&outputs[0]), exited(0, "Success. Updated the following files:\nA a.txt\n"));
    assert_eq!(news(&outputs[1]), exited(0, "Success. Updated the following files:\nA b.txt\n"));
    assert_eq!(news(&outputs[2]), exited(0, "Success. Updated the following files:\nA c.txt\n"));
    assert!(news(&outputs[3]).starts_with("Process exited with code 1\nOutput:\n"), "{}", outputs[3]);
    assert!(outputs[3].contains("missing"), "{}", outputs[3]);
    assert!(news(&outputs[4]).starts_with("Process exited with code 1\nOutput:\n"), "{}", outputs[4]);
    assert_eq!(news(&outputs[5]), exited(0, "hello\nhello\nhello\na.txt\nsub\n"));
    rig.leaves_nothing().await;
}
