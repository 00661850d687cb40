//! Tests of complete views, as bytes and as the screen of a terminal.

mod ends;
mod hostile;
mod pending;
mod real;
mod whole;

use std::time::Duration;

use sandbar::{
    Item, RunEvent, RunItem, RunItemKind, ToolOutput,
    agent::{RawEvent, Usage},
};
use serde_json::{Map, Value, json};

use super::{surface::Width, *};
use crate::args::Color;

/// An emulated terminal.
pub(super) struct Screen(vt100::Parser);

impl Screen {
    pub(super) fn new(columns: u16) -> Self {
        Self(vt100::Parser::new(400, columns, 0))
    }

    /// Plays the new output of a view, and checks the position of the cursor.
    pub(super) fn play(&mut self, view: &mut View) -> &mut Self {
        let bytes = std::mem::take(&mut captured(view).stderr);
        self.0.process(bytes.as_bytes());
        assert_eq!(self.0.screen().cursor_position().1, 0, "the cursor is not at the beginning of a row: {bytes:?}");
        self
    }

    pub(super) fn text(&self) -> String {
        let text = self.0.screen().contents();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        lines.join("\n")
    }
}

pub(super) fn captured(view: &mut View) -> &mut Captured {
    view.sink.captured.get_or_insert_default()
}

/// A view on a terminal of this width, which draws after every event.
pub(super) fn terminal(columns: usize, color: Color) -> View {
    let mut view = of(Surface::new(Render::new(color), DisplayKind::Redrawn, Charset::All, &UNICODE));
    resize(&mut view, columns);
    view
}

pub(super) fn resize(view: &mut View, columns: usize) {
    text_view(view).surface_mut().width = Width::Fixed(columns);
}

pub(super) fn plain() -> View {
    of(Surface::new(Render::new(Color::Always).uncoloured(), DisplayKind::Lines, Charset::All, &UNICODE))
}

pub(super) fn programs() -> View {
    let mut sink = Sink::new(Writer::new());
    sink.captured = Some(Captured::default());
    View { mode: Mode::Json, format: Format::Json(JsonLines::default()), sink }
}

pub(super) fn of(surface: Surface) -> View {
    let mut sink = Sink::new(Writer::new());
    sink.captured = Some(Captured::default());
    let mut text_view = TextView::new(surface, false);
    text_view.pace = Duration::ZERO;
    View { mode: Mode::Plain, format: Format::Text(Box::new(text_view)), sink }
}

pub(super) fn text_view(view: &mut View) -> &mut TextView {
    match &mut view.format {
        Format::Text(text_view) => text_view,
        Format::Json(_) => panic!("not a text view"),
    }
}

pub(super) fn model(kind: &str, fields: Value) -> RunEvent {
    let mut all = Map::from_iter([("type".to_owned(), Value::from(kind))]);
    all.extend(fields.as_object().cloned().unwrap_or_default());
    RunEvent::Model(RawEvent(all))
}

pub(super) fn turn() -> RunEvent {
    model("response.created", json!({}))
}

pub(super) fn delta(text: &str) -> RunEvent {
    model("response.output_text.delta", json!({ "delta": text }))
}

fn item(kind: RunItemKind, raw: Item, output: Option<ToolOutput>) -> RunEvent {
    let name = kind.event_name().expect("a kind that is told");
    RunEvent::Item { name, item: RunItem { kind, agent: "coder".to_owned(), raw, output } }
}

pub(super) fn message(text: &str) -> RunEvent {
    item(RunItemKind::Message, Item::assistant(text), None)
}

pub(super) fn called(id: &str, tool: &str, arguments: Value) -> RunEvent {
    item(RunItemKind::ToolCall, Item::function_call(id, tool, arguments.to_string()), None)
}

pub(super) fn patched(id: &str, patch: &str) -> RunEvent {
    item(RunItemKind::ToolCall, Item::custom_call(id, "apply_patch", patch), None)
}

pub(super) fn exec(id: &str, cmd: &str) -> RunEvent {
    called(id, "exec_command", json!({ "cmd": cmd }))
}

pub(super) fn printed(id: &str, text: &str) -> RunEvent {
    RunEvent::Progress { call_id: id.to_owned(), text: text.to_owned() }
}

pub(super) fn output(id: &str, output: ToolOutput) -> RunEvent {
    item(RunItemKind::ToolOutput, Item::function_output(id, output.wire()), Some(output))
}

pub(super) fn exited(id: &str, code: i32, text: &str) -> RunEvent {
    let head = format!("Chunk ID: 00beef\nWall time: 0.4213 seconds\nProcess exited with code {code}\nOutput:\n");
    output(id, ToolOutput::Text(head + text))
}

pub(super) fn start(view: &mut View) {
    view.started(&Started {
        id: "run_7",
        prompt: "fix the failing test",
        agent: "coder",
        model: "gpt-5.5",
        workspace: "copy of /home/ada/hello",
        isolation: "own namespaces, no network",
        scripted: false,
    });
}

pub(super) fn finish(view: &mut View, answer: &str) {
    let usage = Usage { input_tokens: 4321, cached_tokens: 1200, output_tokens: 321, ..Usage::default() };
    view.finished(&Finished {
        id: "run_7",
        session_id: "ses_1",
        status: RunStatus::Completed,
        final_output: Some(&Value::from(answer)),
        message: None,
        usage: &usage,
        cost: Some(0.012_34),
        elapsed: Duration::from_secs(12),
        next_steps: &["sandbar diff run_7".to_owned(), "sandbar apply run_7".to_owned()],
    });
}

pub(super) const PATCH: &str = "*** Begin Patch\n*** Update File: main.c\n@@ int main(void) {\n-  return 1;\n+  return 0;\n }\n*** Add File: notes/größe.md\n+# Größe\n*** End Patch\n";

/// The header of a PNG of 640 by 480 pixels.
pub(super) const PNG: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAoAAAAHgCAYAAAA10dzkAAAA";

/// Events of a run of a few turns.
pub(super) fn story() -> Vec<RunEvent> {
    let test_output = "cc -o hello main.c\n./hello | diff - expected.txt\n1c1\n< helo\n---\n> hello\n2 of 2 failed\nmake: *** [test] Error 1\nmake: leaving\nend\n";
    let answer = ANSWER;
    vec![
        turn(),
        delta("I'll run the tests first, to see what is wrong "),
        delta("before I change anything at all in here."),
        model("response.output_item.done", json!({})),
        model("response.completed", json!({ "response": { "usage": { "input_tokens": 4000, "output_tokens": 123 } } })),
        message("I'll run the tests first, to see what is wrong before I change anything at all in here."),
        exec("c1", "make test"),
        printed("c1", test_output),
        exited("c1", 2, test_output),
        turn(),
        patched("c2", PATCH),
        output("c2", ToolOutput::Text("Updated main.c\nCreated notes/größe.md".to_owned())),
        called("c3", "exec_command", json!({ "cmd": "./server --port 8080", "tty": true, "workdir": "build" })),
        printed("c3", "listening\r\n"),
        output(
            "c3",
            ToolOutput::Text(
                "Chunk ID: 00beef\nWall time: 10.0001 seconds\nProcess running with session ID 1234\nOutput:\nlistening\n"
                    .to_owned(),
            ),
        ),
        called("c4", "write_stdin", json!({ "session_id": 1234, "chars": "q\n" })),
        exited("c4", 0, "bye\n"),
        called("c5", "view_image", json!({ "path": "shot.png" })),
        output("c5", ToolOutput::Parts(vec![sandbar::Part::image_url(PNG)])),
        called("c6", "lookup", json!({ "word": "bug" })),
        output("c6", ToolOutput::Failure("no such word".to_owned())),
        RunEvent::Agent("reviewer".to_owned()),
        turn(),
        delta(answer),
        model("response.completed", json!({})),
        message(answer),
    ]
}

pub(super) const ANSWER: &str = "The test passes now: main returned 1, and returns 0 after the patch.";
