//! Tests of approvals: the complete call is shown, or the number of hidden lines.

use super::*;

fn request(tool: &str, arguments: String) -> Interruption {
    let raw = Item::function_call("c1", tool, arguments.as_str());
    let [agent, tool, call_id] = ["ops", tool, "c1"].map(str::to_owned);
    Interruption { agent, tool, call_id, arguments, inside: Vec::new(), raw }
}

fn command(cmd: &str) -> Interruption {
    request("exec_command", json!({ "cmd": cmd }).to_string())
}

/// The rows that are shown for a call that needs an approval.
fn rows(view: &mut View, request: &Interruption) -> Vec<String> {
    view.ask(request);
    std::mem::take(&mut captured(view).stderr).lines().map(str::to_owned).collect()
}

fn asked(request: &Interruption) -> Vec<String> {
    rows(&mut terminal(41, Color::Never), request)
}

/// The text behind the gutter, joined.
fn content(rows: &[String]) -> String {
    let mut text = String::new();
    for row in rows {
        match (row.strip_prefix("  | "), row.strip_prefix("  : ")) {
            (Some(line), _) => text = text + "\n" + line,
            (_, Some(more)) => text += more,
            _ => {}
        }
    }
    text.split_off(1.min(text.len()))
}

#[test]
fn every_line_of_a_command_is_shown_whole_behind_a_gutter() {
    for cmd in [
        "git push",
        "make -s test                                                              ; echo PWNED > x",
        "a\n\n\n? ops asks to use exec_command\n  | $ ls -la\n  : y",
        "  two  blanks   here  \nand a word that is longer than forty columns: abcdefghijklmnopqrstuvwxyz",
        "日本語日本語日本語日本語日本語日本語日本語日本語 ──────────────────────────────",
        "x\n",
    ] {
        let rows = asked(&command(cmd));
        assert_eq!(rows[0], "? ops asks to use exec_command");
        assert!(rows[1..].iter().all(|row| row.starts_with("  | ") || row.starts_with("  : ")), "{rows:?}");
        assert_eq!(content(&rows), cmd.strip_suffix('\n').unwrap_or(cmd), "{rows:?}");
        assert!(rows.iter().all(|row| unicode_width::UnicodeWidthStr::width(row.as_str()) <= 40), "{rows:?}");
    }
}

#[test]
fn every_line_of_a_patch_is_shown_whole() {
    let patch = format!("*** Begin Patch\n*** Add File: a.txt\n+ok{}evil()\n+\n*** End Patch", " ".repeat(100));
    let shown = content(&asked(&request("apply_patch", json!({ "patch": patch }).to_string())));
    assert_eq!(shown, format!("A a.txt\n+ok{}evil()\n+", " ".repeat(100)));
}

#[test]
fn invisible_characters_are_escaped() {
    let rows = asked(&command("a\u{a0}b\u{3164}\u{fe0f}\r\x1b[8m\n\u{301}e\u{301}"));
    assert_eq!(content(&rows), "a\\u{a0}b\\u{3164}\\u{fe0f}\\r\\u{1b}[8m\n\\u{301}e\u{301}");
    let mut view = of(Surface::new(Render::new(Color::Never), DisplayKind::Printed, Charset::Ascii, &ASCII));
    resize(&mut view, 60);
    assert_eq!(self::rows(&mut view, &command("rm größe"))[1], "  | rm gr\\u{f6}\\u{df}e");
}

#[test]
fn a_call_that_is_longer_than_a_screen_is_summarized_above_the_question() {
    let cmd = format!("echo PWNED > pwned\n{}? ops asks to use exec_command\n$ ls -la", "\n".repeat(30));
    let rows = asked(&command(&cmd));
    let end = [
        "  | $ ls -la",
        "  it begins with",
        "  | echo PWNED > pwned",
        "  exec_command: 33 lines, 88 bytes; more than a screen, v shows all",
    ];
    assert_eq!(rows[rows.len() - 4..], end, "{rows:?}");
    assert_eq!(rows.iter().filter(|row| *row == "  | ").count(), 30, "{rows:?}");
}

#[test]
fn hidden_lines_are_in_the_middle_and_can_be_shown() {
    let cmd = format!("true {}; echo TAIL", " ".repeat(5200));
    let mut view = terminal(81, Color::Never);
    let rows = rows(&mut view, &command(&cmd));
    assert!(rows.contains(&"  … 9 more lines, v shows them".to_owned()), "{rows:?}");
    assert!(content(&rows).contains("; echo TAIL"), "{rows:?}");
    assert_eq!(
        rows.last().map(String::as_str),
        Some("  exec_command: 1 line, 5,216 bytes; more than a screen, v shows all")
    );
    assert!(rows.len() < 75, "{rows:?}");
    view.show_all();
    let all: Vec<String> = std::mem::take(&mut captured(&mut view).stderr).lines().map(str::to_owned).collect();
    let whole: Vec<String> = all.iter().take_while(|row| *row != "  it begins with").cloned().collect();
    assert_eq!(content(&whole), cmd);
    assert_eq!(all.last().map(String::as_str), Some("  exec_command: 1 line, 5,216 bytes"));
}

#[test]
fn text_beyond_a_mebibyte_is_not_shown_and_the_view_says_so() {
    let mut view = terminal(81, Color::Never);
    rows(&mut view, &command(&"x".repeat(2 << 20)));
    view.show_all();
    let text = std::mem::take(&mut captured(&mut view).stderr);
    assert!(text.len() < (1 << 20) + 100_000);
    assert!(text.contains("more lines beyond 1 MiB, which is all that is shown\r\n"));
}

#[test]
fn every_file_of_a_long_patch_is_named() {
    let lines: String = (0..2100).map(|number| format!("+line {number}\n")).collect();
    let files: String = (0..30).map(|number| format!("*** Delete File: {number}.txt\n")).collect();
    let patch = format!(
        "*** Begin Patch\n*** Add File: a.txt\n{lines}*** Add File: .github/evil.yml\n+run: evil\n{files}*** End Patch"
    );
    let rows = asked(&request("apply_patch", json!({ "patch": patch }).to_string()));
    let at = rows.iter().position(|row| row == "  it changes").expect("a list of the files");
    assert_eq!(rows[at + 1..at + 4], ["  | A a.txt", "  | A .github/evil.yml", "  | D 0.txt"]);
    assert_eq!(rows[rows.len() - 2], "  | D 29.txt");
    let last = rows.last().expect("rows");
    assert!(last.starts_with("  apply_patch: 32 files, 2,133 lines, "), "{last}");
}

#[test]
fn a_patch_in_a_command_is_shown_with_the_directory_it_is_applied_in() {
    let patch = "*** Begin Patch\n*** Add File: x\n+x\n*** End Patch";
    for (workdir, cd, dir) in [
        (Some("deploy"), "cd conf && ", Some("deploy/conf")),
        (Some("deploy"), "cd /etc && ", Some("/etc")),
        (Some("deploy"), "", Some("deploy")),
        (None, "cd conf && ", Some("conf")),
        (None, "", None),
    ] {
        let cmd = format!("{cd}apply_patch <<'EOF'\n{patch}\nEOF");
        let arguments = json!({ "cmd": cmd, "workdir": workdir });
        let rows = asked(&request("exec_command", arguments.to_string()));
        let place = rows.iter().find_map(|row| row.strip_prefix("  a patch, in "));
        assert_eq!(place, dir, "{rows:?}");
        let mut view = plain();
        view.event(&called("c1", "exec_command", arguments));
        let headline = dir.map(|dir| format!("  (in {dir})")).unwrap_or_default();
        assert!(captured(&mut view).stderr.starts_with(&format!("± apply_patch 1 file{headline}\n")));
    }
}

#[test]
fn circumstances_are_shown_in_rows_that_no_command_can_imitate() {
    let arguments = json!({ "cmd": "  in /safe", "workdir": "a".repeat(60), "shell": "/bin/zsh", "tty": true });
    let rows = asked(&request("exec_command", arguments.to_string()));
    let expected = [
        format!("  in {}", "a".repeat(35)),
        format!("  : {}", "a".repeat(25)),
        "  by /bin/zsh".to_owned(),
        "  with a terminal".to_owned(),
        "  |   in /safe".to_owned(),
    ];
    assert_eq!(rows[1..], expected);
}

#[test]
fn an_approval_of_all_later_calls_names_the_tool() {
    let mut view = terminal(80, Color::Never);
    rows(&mut view, &command("ls"));
    view.answered(&Verdict { call_id: "c1", decision: Decision::ApprovedAlways, by: "you", reason: None });
    let text = &captured(&mut view).stderr;
    assert!(text.starts_with("  ✓ approved, and every later exec_command, by you\r\n"), "{text}");
}
