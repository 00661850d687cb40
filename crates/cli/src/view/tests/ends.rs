//! The end of a view: the answer once, blocks one empty line apart, and paths in one piece.

use super::*;

const CHANGES: &str = "--- a/x\n+++ b/x\n+one\n";

fn told(view: &mut View, answer: &str) -> String {
    start(view);
    view.event(&turn());
    view.event(&exec("c1", "true"));
    view.event(&exited("c1", 0, ""));
    view.event(&turn());
    view.event(&delta(answer));
    view.event(&message(answer));
    view.changes(CHANGES);
    view.notice("one file was left out");
    view.clear();
    let mut text = std::mem::take(&mut captured(view).stderr);
    text_view(view).close(&ending(&Value::from(answer), &Usage::default()));
    text += &text_view(view).take().0;
    finish(view, answer);
    text += &std::mem::take(&mut captured(view).stdout);
    text + &std::mem::take(&mut captured(view).stderr)
}

fn ending<'a>(answer: &'a Value, usage: &'a Usage) -> Finished<'a> {
    Finished {
        id: "run_7",
        session_id: "ses_1",
        status: RunStatus::Completed,
        final_output: Some(answer),
        message: None,
        usage,
        cost: None,
        elapsed: Duration::ZERO,
        next_steps: &[],
    }
}

const END: &str =
    "✓ completed · 2 turns · 12s · 4,321 tokens in (1,200 cached), 321 out · $0.0123\n  sandbar diff run_7\n";

#[test]
fn the_answer_appears_once_between_the_changes_and_the_status() {
    let mut view = plain();
    text_view(&mut view).results_are_near = true;
    let text = told(&mut view, "Done.\n\n");
    let expected = format!(
        "$ true\n  ✓ exit 0 · 0.4s\n\n{CHANGES}\nsandbar: one file was left out\n\nDone.\n\n{END}  sandbar apply run_7\n"
    );
    assert!(text.ends_with(&expected), "{text}");
}

#[test]
fn an_answer_that_goes_elsewhere_leaves_no_gap() {
    let mut view = plain();
    let text = told(&mut view, "Done.");
    assert_eq!(text.matches("Done.").count(), 1, "{text}");
    assert!(!text.replace("Done.\n", "").contains("\n\n\n"), "{text}");
}

#[test]
fn blocks_on_a_terminal_are_separated_by_one_empty_row() {
    let mut view = terminal(200, Color::Never);
    text_view(&mut view).set_results_seen();
    text_view(&mut view).results_are_near = true;
    let text = told(&mut view, "\n\nOne.\n\nTwo.\n\n\n");
    let mut screen = Screen::new(200);
    screen.0.process(text.replace("\r\n", "\n").replace('\n', "\r\n").as_bytes());
    let expected = format!(
        "  ✓ exit 0 · 0.4s\n\nOne.\n\nTwo.\n\n{CHANGES}\nsandbar: one file was left out\n\n{END}  sandbar apply run_7"
    );
    assert!(screen.text().ends_with(&expected), "{}", screen.text());
}

#[test]
fn paths_of_next_steps_are_left_in_one_piece() {
    let mut view = terminal(30, Color::Never);
    let step = "everything it did is in /home/ada/.local/state/sandbar/runs/run 7/audit.jsonl".to_owned();
    let output = Value::from("x");
    view.finished(&Finished { next_steps: std::slice::from_ref(&step), ..ending(&output, &Usage::default()) });
    assert!(captured(&mut view).stderr.ends_with(&format!("  {step}\r\n")));
}
