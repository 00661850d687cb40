//! A run as text, on a terminal or as lines.

mod asking;
mod calls;
mod ends;
mod live;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use sandbar::{
    RunEvent, RunItem, RunItemKind,
    agent::{Usage, View as Kind},
};
use serde_json::Value;

use self::{
    calls::{Call, headline},
    ends::{ending, head},
    live::StatusRow,
};
use super::{
    Finished, Started,
    call::{self, CallKind},
    json,
    line::Line,
    pending::PendingCall,
    prose::Prose,
    sanitize::{self, Caps},
    surface::{DisplayKind, Surface},
};
use crate::render::Style;

/// Minimum interval between drawings of the live rows, unless lines were added above them.
const PACE: Duration = Duration::from_millis(50);

/// Maximum number of lines of a reasoning summary.
const THOUGHTS: usize = 4;

pub(super) struct TextView {
    surface: Surface,
    caps: Caps,
    /// Whether results and progress appear on the same screen.
    results_are_seen: bool,
    /// Whether results and progress go to the same file, pipe or terminal.
    pub results_are_near: bool,
    results: String,
    prose: Prose,
    /// Pending empty rows of the prose: leading and trailing ones are never shown.
    empty_rows: Option<usize>,
    /// Whether the text of this turn was already streamed.
    streamed: bool,
    /// Last message of the model.
    said: String,
    /// A withheld message that may be the answer, which is not shown twice.
    held: Option<String>,
    /// Calls in the order of the model; the output of the first one is shown live.
    calls: VecDeque<Call>,
    /// The call that needs an approval.
    asked: Option<PendingCall>,
    block: Block,
    pub status: StatusRow,
    began: Instant,
    /// Minimum interval between drawings; zero always draws.
    pub pace: Duration,
    drawn: Option<Instant>,
    state: State,
}

/// Kind of the last block on the screen; an empty line separates some kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Nothing,
    Head,
    Prose,
    Call,
    Note,
    Changes,
    Answer,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// The user types.
    Asking,
    Over,
}

impl TextView {
    pub(super) fn new(surface: Surface, results_are_seen: bool) -> Self {
        let caps = match surface.reach {
            DisplayKind::Redrawn | DisplayKind::Printed => Caps { first: 5, last: 3 },
            DisplayKind::Lines => Caps { first: 40, last: 10 },
        };
        Self {
            surface,
            caps,
            results_are_seen,
            results_are_near: false,
            results: String::new(),
            prose: Prose::default(),
            empty_rows: None,
            streamed: false,
            said: String::new(),
            held: None,
            calls: VecDeque::new(),
            asked: None,
            block: Block::Nothing,
            status: StatusRow::default(),
            began: Instant::now(),
            pace: PACE,
            drawn: None,
            state: State::Running,
        }
    }

    #[cfg(test)]
    pub(super) fn surface_mut(&mut self) -> &mut Surface {
        &mut self.surface
    }

    #[cfg(test)]
    pub(super) fn set_results_seen(&mut self) {
        self.results_are_seen = true;
    }

    /// Takes the pending output for standard error and standard output.
    pub(super) fn take(&mut self) -> (String, String) {
        (self.surface.take(), std::mem::take(&mut self.results))
    }

    pub(super) fn started(&mut self, started: &Started<'_>) {
        self.began = Instant::now();
        self.surface.show(head(started, self.surface.glyphs));
        self.block = Block::Head;
        self.draw();
    }

    pub(super) fn event(&mut self, event: &RunEvent) {
        if self.status.turns.begins(event) {
            self.conclude_all();
            self.streamed = false;
        }
        match event {
            RunEvent::Model(raw) => {
                if let (Some(text), DisplayKind::Redrawn | DisplayKind::Printed) =
                    (raw.text_delta(), self.surface.reach)
                {
                    self.streamed = true;
                    self.speak(text);
                }
                match raw.kind() {
                    "response.output_text.done" | "response.output_item.done" => self.end_prose(),
                    "response.completed" | "response.incomplete" => self.status.count(raw.0.get("response")),
                    _ => {}
                }
            }
            RunEvent::Item { item, .. } => self.item(item),
            RunEvent::Agent(name) => {
                self.enter(Block::Note);
                let line = Line::styled(
                    Style::Strong,
                    format!("{} {}", self.surface.glyphs.arrow, sanitize::visible_line(name)),
                );
                self.surface.rows(&line, 2);
            }
            RunEvent::Progress { call_id, text } => self.progress(call_id, text),
            _ => {}
        }
        self.draw();
    }

    pub(super) fn tick(&mut self, usage: Option<&Usage>) {
        if let Some(usage) = usage {
            (self.status.input, self.status.output) = (usage.input_tokens, usage.output_tokens);
        }
        if self.pace > Duration::ZERO {
            self.status.elapsed = self.began.elapsed();
        }
        self.status.frame = self.status.frame.wrapping_add(1);
        self.drawn = None;
        self.draw();
    }

    pub(super) fn cost(&mut self, cost: Option<f64>) {
        self.status.cost = cost;
    }

    pub(super) fn clear(&mut self) {
        self.surface.erase();
    }

    /// Shows the changes of the run; the text is already sanitized.
    pub(super) fn changes(&mut self, text: &str) {
        self.conclude_all();
        let text = text.trim_matches('\n');
        if !text.is_empty() {
            self.stand(Block::Changes);
            self.surface.text(&format!("{text}\n"));
        }
    }

    pub(super) fn notice(&mut self, text: &str) {
        // The withheld message may still be the answer.
        self.stand(Block::Note);
        let line = Line::styled(Style::Strong, "sandbar:").then(format!(" {}", sanitize::visible_line(text)));
        self.surface.rows(&line, 2);
        self.draw();
    }

    /// Ends unfinished calls and prose.
    pub(super) fn close(&mut self, finished: &Finished<'_>) {
        self.end_prose();
        self.conclude_all();
        let is_answer = finished.final_output.is_some_and(|output| is_said(output, self.held.as_deref()));
        if is_answer {
            self.held = None;
        }
        self.release();
        if self.results_are_near && finished.final_output.is_some_and(|output| !self.is_on_screen(output)) {
            self.stand(Block::Answer);
        }
        self.state = State::Over;
        self.surface.erase();
    }

    pub(super) fn finished(&mut self, finished: &Finished<'_>) {
        if let Some(output) = finished.final_output {
            self.answer(output);
        }
        self.enter(Block::End);
        self.surface.show(ending(finished, self.status.turns.number, self.surface.glyphs));
    }

    /// Writes the answer, unless the same screen already shows it.
    fn answer(&mut self, output: &Value) {
        if self.is_on_screen(output) {
            return;
        }
        let text = match output {
            Value::String(text) => text.clone(),
            other => serde_json::to_string_pretty(other).unwrap_or_default(),
        };
        let text = if self.results_are_seen { sanitize::visible(&text).join("\n") } else { text };
        self.results += match text.strip_suffix('\n') {
            _ if self.results_are_near => text.trim_end_matches('\n'),
            Some(text) => text,
            None => &text,
        };
        self.results.push('\n');
    }

    fn is_on_screen(&self, output: &Value) -> bool {
        self.surface.reach != DisplayKind::Lines && self.results_are_seen && is_said(output, Some(&self.said))
    }

    fn item(&mut self, item: &RunItem) {
        match item.kind {
            RunItemKind::Message => self.message(item),
            RunItemKind::Reasoning => self.thoughts(&json::thoughts(item)),
            RunItemKind::ToolCall => {
                let (tool, arguments) = call::request(&item.raw);
                let called = CallKind::read(&tool, &arguments, self.surface.glyphs);
                match item.raw.call_id() {
                    Some(id) => self.begin(id, called),
                    // A hosted tool call, which the model server has already answered.
                    None => {
                        self.enter(Block::Call);
                        self.surface.show(headline(&called, &self.surface));
                    }
                }
            }
            RunItemKind::ToolOutput => self.end(item),
            _ => {}
        }
    }

    fn message(&mut self, item: &RunItem) {
        let Kind::Message(message) = item.raw.view() else { return };
        let text = message.text();
        if let Some(refusal) = message.refusal() {
            self.enter(Block::Prose);
            for line in sanitize::visible(&refusal) {
                self.surface.rows(&Line::styled(Style::Doubtful, line), 0);
            }
        }
        if text.is_empty() {
            return;
        }
        self.said.clone_from(&text);
        if self.surface.reach == DisplayKind::Lines {
            self.release();
            self.held = Some(text);
        } else if !self.streamed {
            self.speak(&text);
            self.end_prose();
        }
    }

    fn thoughts(&mut self, text: &str) {
        let lines = sanitize::visible(text);
        for line in lines.iter().filter(|line| !line.trim().is_empty()).take(THOUGHTS) {
            self.enter(Block::Note);
            self.surface.row(&Line::styled(Style::Faint, line.as_str()));
        }
    }

    fn speak(&mut self, text: &str) {
        if self.prose.growing().is_none() {
            self.enter(Block::Prose);
        }
        for row in self.prose.push(text, self.surface.columns()) {
            self.say(row);
        }
    }

    /// Shows a row of prose, with the pending empty rows before it.
    fn say(&mut self, row: String) {
        if row.trim().is_empty() {
            self.empty_rows = self.empty_rows.map(|rows| rows + 1);
            return;
        }
        for _ in 0..self.empty_rows.replace(0).unwrap_or_default() {
            self.surface.row(&Line::default());
        }
        self.surface.row(&Line::plain(row));
    }

    fn end_prose(&mut self) {
        if self.prose.growing().is_some() {
            let row = self.prose.end();
            self.say(row);
        }
    }

    fn release(&mut self) {
        if let Some(text) = self.held.take() {
            self.enter(Block::Prose);
            for line in sanitize::visible(text.trim_matches('\n')) {
                self.surface.rows(&Line::plain(line), 0);
            }
        }
    }

    /// Begins a block of lines: ends unfinished prose, and adds an empty line between some kinds.
    fn enter(&mut self, block: Block) {
        self.end_prose();
        if self.held.is_some() && block != Block::Prose {
            self.release();
        }
        self.stand(block);
    }

    /// Begins a block of lines, but keeps the withheld message.
    fn stand(&mut self, block: Block) {
        self.end_prose();
        let is_close = |block: &Block| matches!(block, Block::Call | Block::Note);
        if self.block == block {
            return;
        }
        if self.block != Block::Nothing && ![self.block, block].iter().all(is_close) {
            self.surface.row(&Line::default());
        }
        self.empty_rows = None;
        self.block = block;
    }
}

/// Whether the answer equals the message, as text or as JSON.
fn is_said(output: &Value, said: Option<&str>) -> bool {
    match (output, said) {
        (_, None) => false,
        (Value::String(text), Some(said)) => text.trim_end() == said.trim_end(),
        (other, Some(said)) => serde_json::from_str::<Value>(said).is_ok_and(|said| said == *other),
    }
}
