//! Tests with hostile output, and with concurrent calls.

use super::*;

/// The screen after a command with this output.
fn after(text: &str, columns: u16) -> String {
    let mut view = terminal(columns.into(), Color::Always);
    let mut screen = Screen::new(columns);
    view.event(&turn());
    view.event(&exec("c1", "evil"));
    let pieces: Vec<char> = text.chars().collect();
    for piece in pieces.chunks(1000) {
        view.event(&printed("c1", &piece.iter().collect::<String>()));
        view.tick(None);
        screen.play(&mut view);
    }
    view.event(&exited("c1", 0, text));
    view.clear();
    screen.play(&mut view).text()
}

#[test]
fn output_cannot_leave_its_rows() {
    let table = [
        ("\x1b[2J\x1b[H\x1b[31mgone\x1b[0m\n", "  gone\n"),
        ("\x1b]0;title\x07\x1b[?1049h\x1bcquiet\n", "  quiet\n"),
        ("0%\r50%\r100%\ndone\n", "  100%\n  done\n"),
        ("a\u{202e}txt.exe\n", "  a?txt.exe\n"),
        ("z\u{300}\u{301}\u{302}\u{303}\u{304}\u{305}\n", "  z\u{300}\u{301}\u{302}\n"),
        ("日本語日本語日本語日本語日本語\n", "  日本語日本語日本語日本語日…\n"),
        ("no end", "  no end\n"),
        ("", ""),
    ];
    for (text, expected) in table {
        assert_eq!(after(text, 30), format!("$ evil\n{expected}  ✓ exit 0 · 0.4s"), "{text:?}");
    }
}

#[test]
fn a_megabyte_without_a_line_is_one_row() {
    assert_eq!(after(&"x".repeat(1 << 20), 30), format!("$ evil\n  {}…\n  ✓ exit 0 · 0.4s", "x".repeat(26)));
}

#[test]
fn the_first_and_last_of_many_lines_are_shown() {
    let text: String = (1..=1234).map(|number| format!("line {number}\n")).collect();
    let expected = "$ evil\n  line 1\n  line 2\n  line 3\n  line 4\n  line 5\n  … 1,226 more lines\n  line 1232\n  line 1233\n  line 1234\n  ✓ exit 0 · 0.4s · 1,234 lines";
    assert_eq!(after(&text, 40), expected);
}

#[test]
fn no_control_bytes_of_a_guest_reach_a_terminal() {
    let evil = "\x1b]52;c;Zm9v\x07\x1b[2J\u{9b}2J\u{202e}\x08\r\x7f\u{90}q";
    let mut view = terminal(60, Color::Never);
    view.started(&Started {
        id: evil,
        prompt: evil,
        agent: evil,
        model: evil,
        workspace: evil,
        isolation: evil,
        scripted: true,
    });
    view.event(&turn());
    view.event(&delta(evil));
    view.event(&RunEvent::Agent(evil.to_owned()));
    view.event(&called("c1", evil, json!({ "x": evil })));
    view.event(&exec("c2", evil));
    view.event(&called("c3", "view_image", json!({ "path": evil })));
    view.event(&called("c4", "write_stdin", json!({ "session_id": 1, "chars": evil })));
    view.event(&patched("c5", &format!("*** Begin Patch\n*** Add File: {evil}\n+{evil}\n*** End Patch")));
    for id in ["c1", "c2", "c3", "c4", "c5"] {
        view.event(&printed(id, evil));
        view.tick(None);
        view.event(&output(id, ToolOutput::Failure(evil.to_owned())));
    }
    view.notice(evil);
    view.answered(&Verdict { call_id: "c", decision: Decision::Rejected, by: evil, reason: Some(evil) });
    finish(&mut view, "x");
    let text = std::mem::take(&mut captured(&mut view).stderr);
    // Only the control sequences of the surface are left.
    let mut rest = text.replace("\r\n", "").replace("\x1b[K", "").replace("\x1b[J\r", "").replace("\r\x1b[J", "");
    for rows in 1..9 {
        rest = rest.replace(&format!("\x1b[{rows}A"), "");
    }
    let orders: Vec<char> =
        rest.chars().filter(|c| (c.is_control() && *c != '\r') || ('\u{202a}'..='\u{202e}').contains(c)).collect();
    assert!(orders.is_empty(), "{orders:?}");
}

#[test]
fn concurrent_calls_are_shown_one_after_another() {
    let mut view = terminal(60, Color::Never);
    let mut screen = Screen::new(60);
    view.event(&turn());
    view.event(&exec("a", "make"));
    view.event(&exec("b", "make test"));
    for number in 1..=7 {
        view.event(&printed("b", &format!("test {number}\n")));
        view.event(&printed("a", &format!("cc {number}.c\n")));
    }
    view.tick(None);
    let live = "$ make\n  cc 1.c\n  cc 2.c\n  cc 3.c\n  cc 4.c\n  cc 5.c\n  cc 7.c\n$ make test  test 7\n⠙ 0s · turn 1 · $ make";
    assert_eq!(screen.play(&mut view).text(), live);
    view.event(&exited("b", 1, ""));
    view.event(&exited("a", 0, ""));
    view.clear();
    let told = "$ make\n  cc 1.c\n  cc 2.c\n  cc 3.c\n  cc 4.c\n  cc 5.c\n  cc 6.c\n  cc 7.c\n  ✓ exit 0 · 0.4s\n$ make test\n  test 1\n  test 2\n  test 3\n  test 4\n  test 5\n  test 6\n  test 7\n  ✗ exit 1 · 0.4s";
    assert_eq!(screen.play(&mut view).text(), told);
}

#[test]
fn echoed_keys_are_overwritten() {
    let mut view = terminal(40, Color::Never);
    let mut screen = Screen::new(40);
    view.event(&turn());
    view.event(&exec("c1", "sleep 9"));
    screen.play(&mut view);
    screen.0.process(b"^C");
    view.notice("stopping after this step");
    screen.play(&mut view);
    screen.0.process(b"^C^C");
    view.tick(None);
    let told = "$ sleep 9\nsandbar: stopping after this step\n⠙ 0s · turn 1 · $ sleep 9";
    assert_eq!(screen.play(&mut view).text(), told);
}

#[test]
fn a_resized_terminal_shows_one_status_row() {
    let mut view = terminal(80, Color::Never);
    let mut screen = Screen::new(80);
    start(&mut view);
    view.event(&turn());
    view.event(&delta("Some words that are long enough to need more than a row of forty columns."));
    view.tick(None);
    screen.play(&mut view);
    for columns in [40, 100, 20, 60] {
        screen.0.screen_mut().set_size(400, columns);
        resize(&mut view, columns.into());
        view.tick(None);
        let text = screen.play(&mut view).text();
        assert_eq!(text.matches("turn 1").count(), 1, "{columns}: {text}");
        assert_eq!(text.matches("Some words").count(), 1, "{columns}: {text}");
    }
}
