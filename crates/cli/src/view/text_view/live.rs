//! The redrawn rows: the current prose and output, and the status of the run.

use std::time::Instant;

use super::{State, TextView};
use crate::{
    render::Style,
    view::{line::Line, surface::DisplayKind, units},
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
        rows.push(self.status());
        self.surface.draw(&rows);
    }

    /// The status row: as many facts as fit, the most important first.
    fn status(&self) -> Line {
        let glyphs = self.surface.glyphs;
        let columns = self.surface.columns();
        let spinner = glyphs.spinner[self.frame % glyphs.spinner.len()];
        let mut facts = vec![units::clock(self.elapsed)];
        if self.turns.number > 0 {
            facts.push(format!("turn {}", self.turns.number));
        }
        if self.tokens.input + self.tokens.output > 0 {
            let (input, output) = (units::rough(self.tokens.input), units::rough(self.tokens.output));
            facts.push(format!("{input} in {output} out"));
        }
        facts.extend(self.cost.map(units::cost));
        facts.push(match (&self.doing, self.calls.front()) {
            (Some(doing), _) => doing.clone(),
            (None, Some(call)) => call.called.short(),
            (None, None) if self.turns.number == 0 => "starting".to_owned(),
            (None, None) => "thinking".to_owned(),
        });
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
