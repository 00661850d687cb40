//! The redrawn rows: the current prose and output, and the status of the run.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{State, TextView};
use crate::{
    render::Style,
    view::{
        json::Turns,
        line::Line,
        surface::{DisplayKind, Glyphs},
        units,
    },
};

/// Maximum number of live rows of calls after the first one.
const LIVE_CALLS: usize = 3;

impl TextView {
    pub(super) fn draw(&mut self) {
        if self.state != State::Running || self.surface.reach != DisplayKind::Redrawn {
            return;
        }
        let is_soon = self.drawn.is_some_and(|drawn| drawn.elapsed() < self.pace);
        if is_soon && self.surface.is_drawn() {
            return;
        }
        self.drawn = Some(Instant::now());
        let mut rows = Vec::new();
        rows.extend(self.prose.growing().map(Line::plain));
        if let [first, rest @ ..] = self.calls.make_contiguous() {
            let latest = first.printed.latest();
            rows.extend(latest.map(|text| Line::styled(Style::Faint, text).indented(2)));
            for call in rest.iter().filter(|call| call.outcome.is_none()).take(LIVE_CALLS) {
                let latest = call.printed.latest().unwrap_or_default();
                rows.push(Line::plain(call.called.short()).then_styled(Style::Faint, format!("  {latest}")));
            }
        }
        let call = self.calls.front().map(|call| call.called.short());
        rows.push(self.status.line(call, self.surface.columns(), self.surface.glyphs));
        self.surface.draw(&rows);
    }
}

/// The facts of the status row.
#[derive(Default)]
pub(in crate::view) struct StatusRow {
    pub turns: Turns,
    pub input: u64,
    pub output: u64,
    pub cost: Option<f64>,
    /// Duration of the run; updated with every tick.
    pub elapsed: Duration,
    pub frame: usize,
}

impl StatusRow {
    /// Adds the usage of a reply.
    pub(super) fn count(&mut self, response: Option<&Value>) {
        let number = |name: &str| response.and_then(|response| response["usage"][name].as_u64()).unwrap_or_default();
        self.input = self.input.saturating_add(number("input_tokens"));
        self.output = self.output.saturating_add(number("output_tokens"));
    }

    /// As many facts as fit, the most important first; `call` is what the run waits for.
    fn line(&self, call: Option<String>, columns: usize, glyphs: &Glyphs) -> Line {
        let spinner = glyphs.spinner[self.frame % glyphs.spinner.len()];
        let mut facts = vec![units::clock(self.elapsed)];
        if self.turns.number > 0 {
            facts.push(format!("turn {}", self.turns.number));
        }
        if self.input + self.output > 0 {
            facts.push(format!("{} in {} out", units::rough(self.input), units::rough(self.output)));
        }
        facts.extend(self.cost.map(units::cost));
        let idle = if self.turns.number == 0 { "starting" } else { "thinking" };
        facts.push(call.unwrap_or_else(|| idle.to_owned()));
        let dot = format!(" {} ", glyphs.dot);
        let mut line = Line::styled(Style::Place, spinner);
        for (at, fact) in facts.iter().enumerate() {
            let next = line.clone().then_styled(Style::Faint, format!("{}{fact}", if at == 0 { " " } else { &dot }));
            let is_last = at + 1 == facts.len();
            if next.width() > columns && !(is_last && line.width() + 12 <= columns) {
                break;
            }
            line = next;
        }
        line
    }
}
