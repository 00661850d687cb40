//! A call that needs an approval: its text, the question and the decision.

use sandbar::Interruption;

use super::{Block, State, TextView};
use crate::{
    render::Style,
    view::{
        Decision, Verdict,
        line::Line,
        pending::PendingCall,
        sanitize,
        surface::{DisplayKind, Row, Surface},
        units,
    },
};

/// Rows of a screen that are reserved for other lines than the text of the call.
const AROUND: usize = 5;

/// Maximum number of rows that count as visible at once, even on a higher screen.
const SEEN: usize = 60;

impl TextView {
    pub(in crate::view) fn ask(&mut self, request: &Interruption) {
        self.conclude_answered();
        self.enter(Block::Note);
        self.state = State::Asking;
        self.surface.erase();
        let asked = PendingCall::read(request, self.surface.glyphs, self.surface.letters);
        let words = format!("? {} asks to use {}", sanitize::exact(&request.agent), asked.tool);
        self.surface.rows(&Line::styled(Style::Doubtful, words), 2);
        self.surface.show(excerpt(&asked, &self.surface));
        self.asked = Some(asked);
    }

    /// Shows the complete text of the call.
    pub(in crate::view) fn show_all(&mut self) {
        if let Some(asked) = &self.asked {
            let rows = complete(asked, &self.surface);
            self.surface.show(rows);
        }
    }

    pub(in crate::view) fn explain(&mut self, lines: &[String]) {
        for line in lines {
            self.surface.rows(&Line::plain(sanitize::exact(line)).indented(2), 6);
        }
    }

    pub(in crate::view) fn prompt(&mut self, question: &str) {
        self.surface.question(&Line::styled(Style::Strong, sanitize::visible_line(question)));
    }

    pub(in crate::view) fn answered(&mut self, verdict: &Verdict<'_>) {
        let glyphs = self.surface.glyphs;
        let tool = self.asked.take().map_or_else(|| "call like it".to_owned(), |asked| asked.tool);
        let (style, mark, what) = match verdict.decision {
            Decision::Approved => (Style::Good, glyphs.good, "approved".to_owned()),
            Decision::ApprovedAlways => (Style::Good, glyphs.good, format!("approved, and every later {tool},")),
            Decision::Rejected => (Style::Bad, glyphs.bad, "rejected".to_owned()),
        };
        let reason = verdict.reason.map(|reason| format!(": {}", sanitize::visible_line(reason))).unwrap_or_default();
        let words = format!(" {what} by {}{reason}", sanitize::visible_line(verdict.by));
        self.surface.rows(&Line::styled(style, mark).then(words).indented(2), 4);
        self.state = State::Running;
        self.draw();
    }
}

/// The text of a call as far as it fits on the screen, and a summary if more is hidden.
fn excerpt(asked: &PendingCall, surface: &Surface) -> Vec<Row> {
    let (columns, glyphs) = (surface.columns(), surface.glyphs);
    let is_terminal = surface.reach != DisplayKind::Lines;
    let mut lines = asked.circumstances(columns);
    let excerpt = asked.excerpt(columns);
    let seen = if is_terminal { SEEN.min(surface.height().saturating_sub(AROUND)) } else { SEEN };
    let is_long = excerpt.rows() + lines.len() > seen;
    lines.extend(excerpt.first);
    if excerpt.hidden > 0 {
        let how = if is_terminal { ", v shows them" } else { "" };
        let hidden = units::plural(excerpt.hidden as u64, "more line");
        lines.push(Line::styled(Style::Doubtful, format!("  {} {hidden}{how}", glyphs.more)));
    }
    lines.extend(excerpt.last);
    if is_long {
        let remark = if is_terminal { "; more than a screen, v shows all" } else { "" };
        lines.extend(asked.summary(columns, glyphs, remark));
    }
    lines.into_iter().map(Row::Whole).collect()
}

/// The complete text of a call, and its summary.
fn complete(asked: &PendingCall, surface: &Surface) -> Vec<Row> {
    let (columns, glyphs) = (surface.columns(), surface.glyphs);
    let (rows, beyond) = asked.whole(columns);
    let mut lines = asked.circumstances(columns);
    lines.extend(rows);
    if beyond > 0 {
        let beyond = units::plural(beyond as u64, "more line");
        let words = format!("  {} {beyond} beyond 1 MiB, which is all that is shown", glyphs.more);
        lines.push(Line::styled(Style::Bad, words));
    }
    lines.extend(asked.summary(columns, glyphs, ""));
    lines.into_iter().map(Row::Whole).collect()
}
