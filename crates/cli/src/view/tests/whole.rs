//! Tests of the same run in every mode and width.

use super::*;

fn shown(columns: u16, color: Color) -> String {
    let mut view = terminal(columns.into(), color);
    let mut screen = Screen::new(columns);
    start(&mut view);
    for event in story() {
        view.event(&event);
        view.cost(Some(0.0123));
        view.tick(None);
        screen.play(&mut view);
    }
    finish(&mut view, ANSWER);
    assert_eq!(std::mem::take(&mut captured(&mut view).stdout), format!("{ANSWER}\n"));
    screen.play(&mut view).text()
}

const AT_80: &str = r#"run_7 · coder · gpt-5.5
copy of /home/ada/hello · own namespaces, no network
> fix the failing test

I'll run the tests first, to see what is wrong before I change anything at all
in here.

$ make test
  cc -o hello main.c
  ./hello | diff - expected.txt
  1c1
  < helo
  ---
  … 2 more lines
  make: *** [test] Error 1
  make: leaving
  end
  ✗ exit 2 · 0.4s · 10 lines
± apply_patch 2 files
  M main.c
  @@ int main(void) {
  -  return 1;
  +  return 0;
   }
  A notes/größe.md
  +# Größe
  ✓ applied
$ ./server --port 8080  (in build, tty)
  listening
  … still running as 1234 · 10s
~ write_stdin 1234 "q\n"
  bye
  ✓ exit 0 · 0.4s
▣ view_image shot.png
  ✓ 640×480 · 36B
• lookup {"word":"bug"}
  ✗ no such word
→ reviewer

The test passes now: main returned 1, and returns 0 after the patch.

✓ completed · 3 turns · 12s · 4,321 tokens in (1,200 cached), 321 out · $0.0123
  sandbar diff run_7
  sandbar apply run_7
"#;

#[test]
fn a_run_on_a_terminal() {
    assert_eq!(shown(80, Color::Never), AT_80.trim_end());
    assert_eq!(shown(80, Color::Always), AT_80.trim_end());
}

const AT_40: &str = r#"run_7 · coder · gpt-5.5
copy of /home/ada/hello · own
  namespaces, no network
> fix the failing test

I'll run the tests first, to see what
is wrong before I change anything at
all in here.

$ make test
  cc -o hello main.c
  ./hello | diff - expected.txt
  1c1
  < helo
  ---
  … 2 more lines
  make: *** [test] Error 1
  make: leaving
  end
  ✗ exit 2 · 0.4s · 10 lines
± apply_patch 2 files
  M main.c
  @@ int main(void) {
  -  return 1;
  +  return 0;
   }
  A notes/größe.md
  +# Größe
  ✓ applied
$ ./server --port 8080  (in build, tty)
  listening
  … still running as 1234 · 10s
~ write_stdin 1234 "q\n"
  bye
  ✓ exit 0 · 0.4s
▣ view_image shot.png
  ✓ 640×480 · 36B
• lookup {"word":"bug"}
  ✗ no such word
→ reviewer

The test passes now: main returned 1,
and returns 0 after the patch.

✓ completed · 3 turns · 12s · 4,321
  tokens in (1,200 cached), 321 out ·
  $0.0123
  sandbar diff run_7
  sandbar apply run_7
"#;

#[test]
fn a_run_on_half_a_terminal() {
    assert_eq!(shown(40, Color::Always), AT_40.trim_end());
}

#[test]
fn every_width_works_and_leaves_no_rows() {
    for columns in [1, 2, 3, 5, 8, 13, 20, 21, 39, 79, 200] {
        let text = shown(columns, Color::Always);
        assert!(!text.contains(['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏']), "{columns}: {text}");
        let tight: String = text.split_whitespace().collect();
        assert!(tight.contains("sandbarapplyrun_7"), "{columns}: {text}");
        assert!(tight.contains(&ANSWER.replace(' ', "")), "{columns}: {text}");
    }
}

#[test]
fn the_status_row_shows_the_facts_that_fit() {
    let rows = |columns: u16| {
        let mut view = terminal(columns.into(), Color::Never);
        let mut screen = Screen::new(columns);
        start(&mut view);
        view.event(&turn());
        view.event(&exec("c1", "make -C some/directory test CFLAGS=-Wall"));
        text_view(&mut view).status.elapsed = Duration::from_secs(75);
        view.cost(Some(0.5));
        view.tick(Some(&Usage { input_tokens: 12_345, output_tokens: 678, ..Usage::default() }));
        let text = screen.play(&mut view).text();
        text.lines().last().unwrap_or_default().to_owned()
    };
    assert_eq!(rows(80), "⠙ 1:15 · turn 1 · 12.3k in 678 out · $0.5000 · $ make -C some/directory test C…");
    assert_eq!(rows(40), "⠙ 1:15 · turn 1 · 12.3k in 678 out");
    assert_eq!(rows(20), "⠙ 1:15 · turn 1");
    assert_eq!(rows(8), "⠙ 1:15");
}

#[test]
fn the_status_row_shows_the_activity_before_the_first_turn() {
    let mut view = terminal(80, Color::Never);
    let mut screen = Screen::new(80);
    let mut last = |view: &mut View| screen.play(view).text().lines().last().unwrap_or_default().to_owned();
    start(&mut view);
    assert_eq!(last(&mut view), "⠋ 0s · starting");
    view.event(&turn());
    assert_eq!(last(&mut view), "⠋ 0s · turn 1 · thinking");
}

#[test]
fn plain_lines_have_no_colour_and_the_answer_once() {
    let mut view = plain();
    start(&mut view);
    for event in story() {
        view.event(&event);
        view.tick(None);
    }
    finish(&mut view, ANSWER);
    let Captured { stdout, stderr } = std::mem::take(captured(&mut view));
    assert_eq!(stdout, format!("{ANSWER}\n"));
    assert_eq!(stderr, PLAIN);
}

const PLAIN: &str = r#"run_7 · coder · gpt-5.5
copy of /home/ada/hello · own namespaces, no network
> fix the failing test

I'll run the tests first, to see what is wrong before I change anything at all in here.

$ make test
  cc -o hello main.c
  ./hello | diff - expected.txt
  1c1
  < helo
  ---
  > hello
  2 of 2 failed
  make: *** [test] Error 1
  make: leaving
  end
  ✗ exit 2 · 0.4s
± apply_patch 2 files
  M main.c
  @@ int main(void) {
  -  return 1;
  +  return 0;
   }
  A notes/größe.md
  +# Größe
  ✓ applied
$ ./server --port 8080  (in build, tty)
  listening
  … still running as 1234 · 10s
~ write_stdin 1234 "q\n"
  bye
  ✓ exit 0 · 0.4s
▣ view_image shot.png
  ✓ 640×480 · 36B
• lookup {"word":"bug"}
  ✗ no such word
→ reviewer

✓ completed · 3 turns · 12s · 4,321 tokens in (1,200 cached), 321 out · $0.0123
  sandbar diff run_7
  sandbar apply run_7
"#;

#[test]
fn every_json_line_is_complete_and_the_last_one_is_the_end() {
    let mut view = programs();
    start(&mut view);
    for event in story() {
        view.event(&event);
        view.tick(None);
    }
    view.notice("stopping");
    finish(&mut view, ANSWER);
    let Captured { stdout, stderr } = std::mem::take(captured(&mut view));
    assert_eq!(stderr, "");
    assert_eq!(stdout, JSON);
}

const JSON: &str = r#"{"type":"run_started","id":"run_7","prompt":"fix the failing test","agent":"coder","model":"gpt-5.5","scripted":false,"workspace":"copy of /home/ada/hello","isolation":"own namespaces, no network"}
{"type":"turn_started","turn":1}
{"type":"message_delta","text":"I'll run the tests first, to see what is wrong "}
{"type":"message_delta","text":"before I change anything at all in here."}
{"type":"message","text":"I'll run the tests first, to see what is wrong before I change anything at all in here.","agent":"coder"}
{"type":"tool_called","call_id":"c1","tool":"exec_command","arguments":"{\"cmd\":\"make test\"}","agent":"coder"}
{"type":"tool_progress","call_id":"c1","text":"cc -o hello main.c\n./hello | diff - expected.txt\n1c1\n< helo\n---\n> hello\n2 of 2 failed\nmake: *** [test] Error 1\nmake: leaving\nend\n"}
{"type":"tool_output","call_id":"c1","output":"Chunk ID: 00beef\nWall time: 0.4213 seconds\nProcess exited with code 2\nOutput:\ncc -o hello main.c\n./hello | diff - expected.txt\n1c1\n< helo\n---\n> hello\n2 of 2 failed\nmake: *** [test] Error 1\nmake: leaving\nend\n","agent":"coder"}
{"type":"turn_started","turn":2}
{"type":"tool_called","call_id":"c2","tool":"apply_patch","arguments":"*** Begin Patch\n*** Update File: main.c\n@@ int main(void) {\n-  return 1;\n+  return 0;\n }\n*** Add File: notes/größe.md\n+# Größe\n*** End Patch\n","agent":"coder"}
{"type":"tool_output","call_id":"c2","output":"Updated main.c\nCreated notes/größe.md","agent":"coder"}
{"type":"tool_called","call_id":"c3","tool":"exec_command","arguments":"{\"cmd\":\"./server --port 8080\",\"tty\":true,\"workdir\":\"build\"}","agent":"coder"}
{"type":"tool_progress","call_id":"c3","text":"listening\r\n"}
{"type":"tool_output","call_id":"c3","output":"Chunk ID: 00beef\nWall time: 10.0001 seconds\nProcess running with session ID 1234\nOutput:\nlistening\n","agent":"coder"}
{"type":"tool_called","call_id":"c4","tool":"write_stdin","arguments":"{\"session_id\":1234,\"chars\":\"q\\n\"}","agent":"coder"}
{"type":"tool_output","call_id":"c4","output":"Chunk ID: 00beef\nWall time: 0.4213 seconds\nProcess exited with code 0\nOutput:\nbye\n","agent":"coder"}
{"type":"tool_called","call_id":"c5","tool":"view_image","arguments":"{\"path\":\"shot.png\"}","agent":"coder"}
{"type":"tool_output","call_id":"c5","output":[{"type":"input_image","bytes":36}],"agent":"coder"}
{"type":"tool_called","call_id":"c6","tool":"lookup","arguments":"{\"word\":\"bug\"}","agent":"coder"}
{"type":"tool_output","call_id":"c6","output":"no such word","agent":"coder"}
{"type":"agent_changed","agent":"reviewer"}
{"type":"turn_started","turn":3}
{"type":"message_delta","text":"The test passes now: main returned 1, and returns 0 after the patch."}
{"type":"message","text":"The test passes now: main returned 1, and returns 0 after the patch.","agent":"coder"}
{"type":"notice","text":"stopping"}
{"type":"run_finished","status":"completed","final_output":"The test passes now: main returned 1, and returns 0 after the patch.","id":"run_7","session_id":"ses_1","usage":{"requests":0,"input_tokens":4321,"cached_tokens":1200,"cache_write_tokens":0,"output_tokens":321,"reasoning_tokens":0,"total_tokens":0},"message":null,"cost_usd":0.01234,"elapsed_seconds":12.0,"turns":3,"next_steps":["sandbar diff run_7","sandbar apply run_7"]}
"#;

#[test]
fn an_answer_on_the_screen_is_not_repeated() {
    let mut view = terminal(80, Color::Never);
    text_view(&mut view).set_results_seen();
    view.event(&turn());
    view.event(&delta("Done."));
    view.event(&message("Done."));
    finish(&mut view, "Done.");
    assert_eq!(captured(&mut view).stdout, "");
    let mut view = terminal(80, Color::Never);
    text_view(&mut view).set_results_seen();
    finish(&mut view, "\x1b[2JElse.");
    assert_eq!(captured(&mut view).stdout, "\\u{1b}[2JElse.\n");
}

#[test]
fn the_screen_does_not_change_between_a_question_and_its_answer() {
    let mut view = terminal(60, Color::Never);
    let mut screen = Screen::new(60);
    start(&mut view);
    view.event(&turn());
    view.event(&exec("c1", "git push"));
    view.event(&exec("c2", "true"));
    view.event(&exited("c2", 0, ""));
    screen.play(&mut view);
    let call = Item::function_call("c1", "exec_command", r#"{"cmd":"git push"}"#);
    view.ask(&Interruption {
        agent: "coder".to_owned(),
        tool: "exec_command".to_owned(),
        call_id: "c1".to_owned(),
        arguments: r#"{"cmd":"git push"}"#.to_owned(),
        inside: Vec::new(),
        raw: call,
    });
    screen.play(&mut view);
    view.tick(None);
    assert_eq!(captured(&mut view).stderr, "");
    view.prompt("Allow it? [y/n] ");
    assert!(captured(&mut view).stderr.ends_with("Allow it? [y/n] "));
    // The echo of the typed answer.
    captured(&mut view).stderr += "y\r\n";
    view.answered(&Verdict { call_id: "c1", decision: Decision::Approved, by: "you", reason: None });
    view.event(&printed("c1", "pushed\n"));
    view.event(&exited("c1", 0, "pushed\n"));
    view.clear();
    assert_eq!(screen.play(&mut view).text(), ASKED_SCREEN.trim_end());
}

const ASKED_SCREEN: &str = "\
run_7 · coder · gpt-5.5
copy of /home/ada/hello · own namespaces, no network
> fix the failing test

$ git push
$ true
  ✓ exit 0 · 0.4s
? coder asks to use exec_command
  | git push
Allow it? [y/n] y
  ✓ approved by you
  pushed
  ✓ exit 0 · 0.4s
";

#[test]
fn a_terminal_that_only_prints_gets_lines_of_ascii() {
    let mut view = of(Surface::new(Render::new(Color::Never), DisplayKind::Printed, Charset::Ascii, &ASCII));
    start(&mut view);
    for event in story() {
        view.event(&event);
        view.tick(None);
    }
    finish(&mut view, ANSWER);
    let text = &captured(&mut view).stderr;
    assert!(text.is_ascii() && !text.contains('\x1b'), "{text}");
    assert!(text.contains("  failed exit 2 - 0.4s - 10 lines\r\n"), "{text}");
}

#[test]
fn removed_lines_are_red_and_added_lines_are_green() {
    let mut view = terminal(80, Color::Always);
    let mut screen = Screen::new(80);
    view.event(&turn());
    view.event(&patched("c1", PATCH));
    view.event(&output("c1", ToolOutput::Text("Done!".to_owned())));
    view.clear();
    let text = screen.play(&mut view).text();
    let colour = |start: &str| {
        let row = text.lines().position(|line| line.starts_with(start)).expect("a row");
        screen.0.screen().cell(u16::try_from(row).expect("few rows"), 3).expect("a cell").fgcolor()
    };
    assert_eq!(colour("  -  return"), vt100::Color::Idx(1));
    assert_eq!(colour("  +  return"), vt100::Color::Idx(2));
    assert_eq!(colour("   }"), vt100::Color::Default);
    assert!(text.ends_with("\n  ✓ applied"), "{text}");
}

#[test]
fn every_status_has_its_text_and_its_key() {
    let table = [
        (RunStatus::Completed, "completed", "✓ completed"),
        (RunStatus::Interrupted, "interrupted", "? waits for an approval"),
        (RunStatus::MaxTurns, "max_turns", "! stopped: no turns left"),
        (RunStatus::Budget, "budget", "! stopped: the budget is spent"),
        (RunStatus::Failed, "failed", "✗ failed"),
        (RunStatus::Cancelled, "cancelled", "! cancelled"),
    ];
    for (status, code, words) in table {
        for (mut view, expected) in [
            (plain(), format!("{words} · 0 turns · 0.5s\n  it is so\n")),
            (
                programs(),
                format!(
                    "{{\"type\":\"run_finished\",\"status\":\"{code}\",\"final_output\":null,\"id\":\"r\",\"session_id\":\"s\","
                ),
            ),
        ] {
            view.finished(&Finished {
                id: "r",
                session_id: "s",
                status,
                final_output: None,
                message: Some("it is so"),
                usage: &Usage::default(),
                cost: None,
                elapsed: Duration::from_millis(500),
                next_steps: &[],
            });
            let Captured { stdout, stderr } = std::mem::take(captured(&mut view));
            assert!((stdout + &stderr).starts_with(&expected), "{code}");
        }
    }
}

#[test]
fn json_contains_requests_and_decisions() {
    let mut view = programs();
    let raw = Item::function_call("c1", "deploy", "{}");
    let [agent, tool, call_id, arguments] = ["ops", "deploy", "c1", "{}"].map(str::to_owned);
    view.ask(&Interruption { agent, tool, call_id, arguments, inside: vec!["c0".to_owned()], raw });
    view.prompt("a question that JSON does not contain");
    view.answered(&Verdict { call_id: "c1", decision: Decision::ApprovedAlways, by: "a rule", reason: None });
    let expected = r#"{"type":"approval_requested","call_id":"c1","tool":"deploy","arguments":"{}","agent":"ops","inside":["c0"]}
{"type":"approval_decided","call_id":"c1","decision":"approved_always","by":"a rule","reason":null}
"#;
    assert_eq!(captured(&mut view).stdout, expected);
    assert!(!view.is_closed());
}

#[test]
fn each_mode_has_its_format() {
    let render = Render::new(Color::Never);
    assert_eq!(Mode::choose(&render, Reader::Program), Mode::Json);
    assert_ne!(Mode::choose(&render, Reader::Human), Mode::Json);
    assert!(matches!(View::new(&render, Mode::Json).format, Format::Json(_)));
    for (mode, reaches) in
        [(Mode::Plain, [DisplayKind::Lines; 2]), (Mode::Terminal, [DisplayKind::Redrawn, DisplayKind::Printed])]
    {
        let mut view = View::new(&render, mode);
        assert!(reaches.contains(&text_view(&mut view).surface_mut().reach), "{mode:?}");
    }
}

#[test]
fn a_long_command_is_cut_in_the_live_view() {
    let cmd = "x".repeat(2000);
    let mut view = terminal(81, Color::Never);
    let mut screen = Screen::new(81);
    view.event(&turn());
    view.event(&exec("c1", &cmd));
    view.clear();
    let text = screen.play(&mut view).text();
    assert_eq!(text.lines().count(), 7, "{text}");
    assert!(text.ends_with('…'), "{text}");
}

#[test]
fn utf8_is_recognized_by_the_name_of_the_locale() {
    assert!(is_utf8("en_US.UTF-8") && is_utf8("C.utf8"));
    assert!(!is_utf8("C") && !is_utf8("") && !is_utf8("de_DE.ISO-8859-1"));
}
