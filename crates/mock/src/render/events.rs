//! The events of a streamed response, in the order in which a real server sends them.

use serde_json::{Value, json};

use super::{Ending, Rendered, Writer, pieces, response::Frame};
use crate::{Events, play::Ready};

/// Names of states.
type States = &'static [&'static str];

/// States of a hosted tool: those before its input is known, and those after.
const STATES: &[(&str, (States, States))] = &[
    ("web_search_call", (&["in_progress", "searching"], &["completed"])),
    ("file_search_call", (&["in_progress", "searching"], &["completed"])),
    ("image_generation_call", (&["in_progress", "generating"], &["completed"])),
    ("code_interpreter_call", (&["in_progress"], &["interpreting", "completed"])),
    ("mcp_call", (&["in_progress"], &["completed"])),
    ("mcp_list_tools", (&["in_progress"], &["completed"])),
];

/// Renders a turn as a stream of events.
pub(crate) fn render(frame: &Frame, turn: &Ready, ending: &Ending, events: Events, delta_chars: usize) -> Rendered {
    let mut stream = Stream { writer: Writer::default(), delta_chars };
    stream.send("response.created", json!({"response": frame.begun()}));
    if events == Events::Full {
        stream.send("response.in_progress", json!({"response": frame.begun()}));
    }
    if matches!(ending, Ending::Completed | Ending::Incomplete { .. }) {
        for (at, item) in turn.output.iter().enumerate() {
            match events {
                Events::Full => stream.item(at, item),
                Events::Minimal => stream.send("response.output_item.done", json!({"output_index": at, "item": item})),
            }
        }
    }
    let whole = || json!({"response": frame.ended(&turn.output, &turn.usage, ending)});
    match ending {
        Ending::Completed => stream.send("response.completed", whole()),
        Ending::Incomplete { .. } => stream.send("response.incomplete", whole()),
        Ending::Failed { .. } => stream.send("response.failed", whole()),
        Ending::Error { code, message } => {
            stream.send("error", json!({"code": code, "message": message, "param": null}))
        }
    }
    stream.writer.end()
}

struct Stream {
    writer: Writer,
    delta_chars: usize,
}

/// A streamed text: the types of its delta and end events, and the name of its field in the end event.
struct Streamed<'a> {
    delta: &'a str,
    done: &'a str,
    key: &'a str,
    text: &'a str,
}

impl Stream {
    /// Adds an event; its type and number precede the given fields.
    fn send(&mut self, kind: &str, fields: Value) {
        let mut event = json!({"type": kind, "sequence_number": self.writer.count()});
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        self.writer.event(Some(kind), &event.to_string());
    }

    fn item(&mut self, at: usize, item: &Value) {
        let mut begun = item.clone();
        let kind = item["type"].as_str().unwrap_or_default();
        if begun.get("status").is_some() {
            begun["status"] = json!("in_progress");
        }
        for (of, key, empty) in [
            ("message", "content", json!([])),
            ("reasoning", "summary", json!([])),
            ("reasoning", "content", json!([])),
            ("function_call", "arguments", json!("")),
            ("custom_tool_call", "input", json!("")),
            ("mcp_call", "arguments", json!("")),
            ("code_interpreter_call", "code", json!("")),
            ("shell_call", "action", json!({"commands": []})),
        ] {
            if of == kind && begun.get(key).is_some() {
                begun[key] = empty;
            }
        }
        self.send("response.output_item.added", json!({"output_index": at, "item": begun}));
        let (before, after) = STATES.iter().find(|(name, _)| *name == kind).map_or_else(Default::default, |(_, s)| *s);
        self.states(at, item, before);
        match kind {
            "message" => self.content(at, item),
            "reasoning" => {
                self.summary(at, item);
                self.content(at, item);
            }
            "function_call" => self.input(at, item, "function_call_arguments", "arguments"),
            "custom_tool_call" => self.input(at, item, "custom_tool_call_input", "input"),
            "mcp_call" => self.input(at, item, "mcp_call_arguments", "arguments"),
            "code_interpreter_call" => self.input(at, item, "code_interpreter_call_code", "code"),
            "shell_call" => self.commands(at, item),
            _ => {}
        }
        self.states(at, item, after);
        self.send("response.output_item.done", json!({"output_index": at, "item": item}));
    }

    /// Adds the events of the parts of a message, or of visible reasoning.
    fn content(&mut self, at: usize, item: &Value) {
        for (number, part) in item["content"].as_array().into_iter().flatten().enumerate() {
            let place = json!({"item_id": item["id"], "output_index": at, "content_index": number});
            let (kind, key) = match part["type"].as_str() {
                Some("refusal") => ("refusal", "refusal"),
                Some("reasoning_text") => ("reasoning_text", "text"),
                _ => ("output_text", "text"),
            };
            let mut begun = part.clone();
            begun[key] = json!("");
            self.send("response.content_part.added", with(&place, [("part", begun)]));
            let streamed = Streamed {
                delta: &format!("response.{kind}.delta"),
                done: &format!("response.{kind}.done"),
                key,
                text: part[key].as_str().unwrap_or_default(),
            };
            // Only plain text has probabilities.
            let mut details = place.clone();
            if kind == "output_text" {
                details["logprobs"] = json!([]);
            }
            self.text(&details, &streamed);
            for (number, annotation) in part["annotations"].as_array().into_iter().flatten().enumerate() {
                let fields = [("annotation_index", json!(number)), ("annotation", annotation.clone())];
                self.send("response.output_text.annotation.added", with(&place, fields));
            }
            self.send("response.content_part.done", with(&place, [("part", part.clone())]));
        }
    }

    fn summary(&mut self, at: usize, item: &Value) {
        for (number, part) in item["summary"].as_array().into_iter().flatten().enumerate() {
            let place = json!({"item_id": item["id"], "output_index": at, "summary_index": number});
            let begun = json!({"type": "summary_text", "text": ""});
            self.send("response.reasoning_summary_part.added", with(&place, [("part", begun)]));
            let streamed = Streamed {
                delta: "response.reasoning_summary_text.delta",
                done: "response.reasoning_summary_text.done",
                key: "text",
                text: part["text"].as_str().unwrap_or_default(),
            };
            self.text(&place, &streamed);
            self.send("response.reasoning_summary_part.done", with(&place, [("part", part.clone())]));
        }
    }

    /// Adds the events of the arguments or the input of a call.
    fn input(&mut self, at: usize, item: &Value, kind: &str, key: &str) {
        let place = json!({"item_id": item["id"], "output_index": at});
        let streamed = Streamed {
            delta: &format!("response.{kind}.delta"),
            done: &format!("response.{kind}.done"),
            key,
            text: item[key].as_str().unwrap_or_default(),
        };
        self.text(&place, &streamed);
    }

    /// Adds the events of the commands of a shell call.
    fn commands(&mut self, at: usize, item: &Value) {
        for (number, command) in item["action"]["commands"].as_array().into_iter().flatten().enumerate() {
            let place = json!({"output_index": at, "command_index": number});
            self.send("response.shell_call_command.added", with(&place, [("command", json!(""))]));
            let streamed = Streamed {
                delta: "response.shell_call_command.delta",
                done: "response.shell_call_command.done",
                key: "command",
                text: command.as_str().unwrap_or_default(),
            };
            self.text(&place, &streamed);
        }
    }

    /// Adds the events of the states of a hosted tool.
    fn states(&mut self, at: usize, item: &Value, states: &[&str]) {
        let kind = item["type"].as_str().unwrap_or_default();
        for state in states {
            self.send(&format!("response.{kind}.{state}"), json!({"item_id": item["id"], "output_index": at}));
        }
    }

    fn text(&mut self, place: &Value, streamed: &Streamed<'_>) {
        // There can be very many deltas, so their shared fields are rendered once.
        let shared = place.to_string();
        let shared = shared.trim_start_matches('{').trim_end_matches('}');
        for piece in pieces(streamed.text, self.delta_chars) {
            let (kind, number, piece) = (streamed.delta, self.writer.count(), json!(piece));
            let data = format!(r#"{{"type":"{kind}","sequence_number":{number},{shared},"delta":{piece}}}"#);
            self.writer.event(Some(kind), &data);
        }
        self.send(streamed.done, with(place, [(streamed.key, json!(streamed.text))]));
    }
}

/// Position fields of an event, with additional fields.
fn with<const N: usize>(place: &Value, fields: [(&str, Value); N]) -> Value {
    let mut whole = place.clone();
    for (key, value) in fields {
        whole[key] = value;
    }
    whole
}
