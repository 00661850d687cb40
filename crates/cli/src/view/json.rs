//! A run as JSON lines.

use std::collections::HashMap;

use sandbar::{Interruption, RunEvent, RunItem, RunItemKind, agent::View as Kind};
use serde_json::{Value, json};

use super::{Finished, Started, Verdict, call};

/// Maximum number of live output bytes per call.
const PRINTED: usize = 1 << 20;

/// Pending lines, and the current turn.
#[derive(Default)]
pub(super) struct JsonLines {
    bytes: String,
    turns: Turns,
    /// Number of output bytes per call so far.
    printed: HashMap<String, usize>,
}

/// Counter of turns, based on model events.
#[derive(Default)]
pub(super) struct Turns {
    pub number: u64,
    is_open: bool,
}

impl Turns {
    /// Whether a turn begins with this event. A repeated request belongs to the same turn.
    pub(super) fn begins(&mut self, event: &RunEvent) -> bool {
        match event {
            RunEvent::Model(event) if event.kind() == "response.created" && !self.is_open => {
                self.is_open = true;
                self.number += 1;
                true
            }
            RunEvent::Model(event) if event.kind() == "response.completed" => {
                self.is_open = false;
                false
            }
            RunEvent::Item { .. } => {
                self.is_open = false;
                false
            }
            _ => false,
        }
    }
}

impl JsonLines {
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.bytes)
    }

    pub(super) fn started(&mut self, started: &Started<'_>) {
        self.put(json!({
            "type": "run_started", "id": started.id, "prompt": started.prompt, "agent": started.agent,
            "model": started.model, "scripted": started.scripted, "workspace": started.workspace,
            "isolation": started.isolation,
        }));
    }

    pub(super) fn event(&mut self, event: &RunEvent) {
        if self.turns.begins(event) {
            self.put(json!({ "type": "turn_started", "turn": self.turns.number }));
        }
        let line = match event {
            RunEvent::Model(_) => event.text_delta().map(|text| json!({ "type": "message_delta", "text": text })),
            RunEvent::Item { item, .. } => of_item(item),
            RunEvent::Agent(agent) => Some(json!({ "type": "agent_changed", "agent": agent })),
            RunEvent::Progress { call_id, text } => self.progress(call_id, text),
            _ => None,
        };
        line.into_iter().for_each(|line| self.put(line));
    }

    /// Live output of a call, up to a limit; the complete result follows in any case.
    fn progress(&mut self, call_id: &str, text: &str) -> Option<Value> {
        let printed = self.printed.entry(call_id.to_owned()).or_default();
        let before = std::mem::replace(
            printed,
            printed.saturating_add(text.len()).min(if *printed < PRINTED { PRINTED } else { PRINTED + 1 }),
        );
        match before {
            ..PRINTED => Some(json!({ "type": "tool_progress", "call_id": call_id, "text": text })),
            // Reported once.
            PRINTED => Some(json!({ "type": "tool_progress", "call_id": call_id, "text": "", "omitted": true })),
            _ => None,
        }
    }

    pub(super) fn notice(&mut self, text: &str) {
        self.put(json!({ "type": "notice", "text": text }));
    }

    pub(super) fn asked(&mut self, request: &Interruption) {
        self.put(json!({
            "type": "approval_requested", "call_id": request.call_id, "tool": request.tool,
            "arguments": request.arguments, "agent": request.agent, "inside": request.inside,
        }));
    }

    pub(super) fn answered(&mut self, verdict: &Verdict<'_>) {
        let (call_id, by, reason) = (verdict.call_id, verdict.by, verdict.reason);
        self.put(json!({
            "type": "approval_decided", "call_id": call_id, "decision": verdict.decision, "by": by, "reason": reason,
        }));
    }

    pub(super) fn finished(&mut self, finished: &Finished<'_>) {
        self.put(json!({
            "type": "run_finished", "status": finished.status.name(), "final_output": finished.final_output,
            "id": finished.id, "session_id": finished.session_id, "usage": finished.usage,
            "message": finished.message, "cost_usd": finished.cost,
            "elapsed_seconds": finished.elapsed.as_secs_f64(), "turns": self.turns.number,
            "next_steps": finished.next_steps,
        }));
    }

    fn put(&mut self, line: Value) {
        self.bytes += &line.to_string();
        self.bytes.push('\n');
    }
}

fn of_item(item: &RunItem) -> Option<Value> {
    let raw = &item.raw;
    let mut line = match item.kind {
        RunItemKind::Message => {
            let Kind::Message(message) = raw.view() else { return None };
            let mut line = json!({ "type": "message", "text": message.text() });
            if let (Some(refusal), Value::Object(fields)) = (message.refusal(), &mut line) {
                fields.insert("refusal".to_owned(), Value::from(refusal));
            }
            line
        }
        RunItemKind::Reasoning => {
            let text = thoughts(item);
            if text.is_empty() {
                return None;
            }
            json!({ "type": "reasoning", "text": text })
        }
        RunItemKind::ToolCall => {
            let (tool, arguments) = call::request(raw);
            json!({ "type": "tool_called", "call_id": raw.call_id(), "tool": tool, "arguments": arguments })
        }
        RunItemKind::ToolOutput => {
            let output = raw.fields().get("output").map_or(Value::Null, call::without_base64);
            json!({ "type": "tool_output", "call_id": raw.call_id(), "output": output })
        }
        _ => return None,
    };
    if let Value::Object(fields) = &mut line {
        fields.insert("agent".to_owned(), Value::from(item.agent.as_str()));
    }
    Some(line)
}

/// Reasoning summary of a model.
pub(super) fn thoughts(item: &RunItem) -> String {
    let parts = item.raw.fields().get("summary").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> = parts.iter().filter_map(|part: &Value| part.get("text")?.as_str()).collect();
    texts.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_output_is_limited_and_the_omission_is_reported_once() {
        let mut lines = JsonLines::default();
        let piece = "x".repeat(PRINTED / 4);
        for _ in 0..20 {
            lines.event(&RunEvent::Progress { call_id: "a".to_owned(), text: piece.clone() });
        }
        lines.event(&RunEvent::Progress { call_id: "b".to_owned(), text: "short".to_owned() });
        let told = lines.take();
        let told: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(told.len(), 6, "four pieces, one word about the rest, and the other call");
        assert_eq!((&told[4]["omitted"], &told[5]["text"]), (&json!(true), &json!("short")));
    }
}
