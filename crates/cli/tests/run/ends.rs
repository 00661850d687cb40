//! The end of a run: exit code, last line, record and leftovers.

use serde_json::json;

use super::{
    play::{call, count, listed, run, say, script, shell},
    rig::{Sandbar, each},
};

#[test]
fn every_end_has_a_code_a_last_line_and_a_status_in_the_list() {
    each(|sandbar| {
        let done = script(sandbar, "done.json", [vec![shell("true")], vec![say("done")]]);
        let short = script(sandbar, "short.json", [vec![shell("true")]]);
        let ask: &[&str] = &["--ask", "always"];
        let money: &[&str] = &["--max-cost", "0.0001", "--price", "scripted=1/1"];
        for (model, options, code, status, message) in [
            (&done, [].as_slice(), 0, "completed", ""),
            (&short, &[], 1, "failed", "the script of the model has no turn 2"),
            (&done, ask, 3, "interrupted", "an approval is needed for exec_command"),
            (&done, &["--max-turns", "1"], 4, "max_turns", "--max-turns"),
            (&done, &["--max-tokens", "100"], 4, "budget", "110 of 100 tokens"),
            (&done, money, 4, "budget", "$0.000110 of $0.0001"),
        ] {
            let words: Vec<&str> = ["--model", model].iter().chain(options).copied().collect();
            let told = run(sandbar, &words);
            assert_eq!((told.run.code, told.status(), told.run.stderr.as_str()), (code, status, ""), "{told:?}");
            assert!(told.message().contains(message), "{told:?}");
            let answer = if status == "completed" { json!("done") } else { json!(null) };
            let end = told.end();
            assert_eq!(end["final_output"], answer, "{end}");
            assert!(end["session_id"].as_str().is_some_and(|id| id.len() > 8), "{end}");
            assert!(end["usage"]["total_tokens"].as_u64() >= Some(110), "{end}");
            assert_eq!(listed(sandbar, told.id()), status);
            sandbar.leaves_nothing("no such words");
        }
    });
}

#[test]
fn a_run_that_never_began_has_a_last_line_and_no_record() {
    let sandbar = Sandbar::own();
    let good = script(&sandbar, "good.json", [vec![say("done")]]);
    sandbar.make_file("bad.json", "{\"turns\": 3}");
    sandbar.make_file("agent.toml", "nmae = \"x\"");
    for (words, code, message) in [
        (["--model", "script:bad.json"].as_slice(), 1, "cannot use the script bad.json; the script of the model is wr"),
        (&["--model", "script:none.json"], 1, "cannot use the script none.json; No such file"),
        (&["--model", &good, "--agent", "agent.toml"], 1, "cannot use the agent file agent.toml; unknown field `nmae`"),
        (&["--model", &good, "--workspace", "none"], 1, "cannot use --workspace none; No such file or directory"),
        (&["--model", &good, "--workspace", "bad.json"], 1, "cannot use --workspace bad.json; not a directory"),
        (&["--model", &good, "--workspace", ".:ro"], 1, "a copy need not be read-only"),
        (&["--model", &good, "--manifest", "none.yaml"], 1, "none.yaml"),
        (&["--model", "unknown/x"], 1, "unknown model prefix \"unknown\""),
        (&["--model", "gpt-5.5"], 1, "`sandbar demo` shows everything without a key"),
        (&["--base-url", "nonsense"], 1, "not a URL"),
        (
            &["--base-url", "http://127.0.0.1:9/v1", "--model", "x", "--max-cost", "1"],
            2,
            "set it with --price x=IN/OUT",
        ),
        (&["--model", ""], 2, "standard error says how"),
        (&["--max-turns", "0"], 2, "standard error says how"),
        (&["--in-place"], 2, "standard error says how"),
        (&["--nonsense"], 2, "standard error says how"),
        (&["--config", "none.toml"], 2, "cannot read none.toml; No such file or directory"),
    ] {
        let told = run(&sandbar, words);
        assert_eq!((told.run.code, told.status(), told.lines.len()), (code, "failed", 1), "{words:?}: {told:?}");
        assert!(told.message().contains(message), "{words:?}: {told:?}");
        assert_eq!((count(&sandbar), sandbar.left().len()), (0, 0), "{words:?}");
    }
}

#[test]
fn a_failed_or_unknown_tool_is_reported_to_the_model() {
    let sandbar = Sandbar::own();
    let broken = json!({"type": "function_call", "call_id": "b", "name": "exec_command", "arguments": "{\"cmd\": 3"});
    let turns = [
        vec![call("no_such_tool", &json!({})), broken, call("view_image", &json!({"path": "/etc/shadow"}))],
        vec![shell("exit 9"), shell("/no/such/program")],
        vec![say("done")],
    ];
    let told = run(&sandbar, &["--model", &script(&sandbar, "odd.json", turns)]);
    assert_eq!((told.run.code, told.status()), (0, "completed"), "{told:?}");
    assert_eq!(told.of("tool_output").len(), 5, "{told:?}");
    assert!(told.outputs().contains("Process exited with code 9"), "{told:?}");
}
