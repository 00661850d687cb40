//! A call that needs an approval: its text, the question and the decision.

use sandbar::Interruption;

use super::{Block, State, TextView};
use crate::{
    render::Style,
    view::{Decision, Verdict, line::Line, pending::PendingCall, sanitize, surface::DisplayKind, units},
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
        self.excerpt(&asked);
        self.asked = Some(asked);
    }

    fn excerpt(&mut self, asked: &PendingCall) {
        let columns = self.surface.columns();
        let is_terminal = self.surface.reach != DisplayKind::Lines;
        let circumstances = asked.circumstances(columns);
        let excerpt = asked.excerpt(columns);
        let rows = excerpt.rows();
        let seen = if is_terminal { SEEN.min(self.surface.height().saturating_sub(AROUND)) } else { SEEN };
        let is_long = rows + circumstances.len() > seen;
        circumstances.iter().chain(&excerpt.first).for_each(|row| self.surface.whole(row));
        if excerpt.hidden > 0 {
            let how = if is_terminal { ", v shows them" } else { "" };
            let hidden = units::plural(excerpt.hidden as u64, "more line");
            let more = self.surface.glyphs.more;
            self.surface.whole(&Line::styled(Style::Doubtful, format!("  {more} {hidden}{how}")));
        }
        excerpt.last.iter().for_each(|row| self.surface.whole(row));
        if is_long {
            self.summary(asked, if is_terminal { "; more than a screen, v shows all" } else { "" });
        }
    }

    fn summary(&mut self, asked: &PendingCall, remark: &str) {
        for row in asked.summary(self.surface.columns(), self.surface.glyphs, remark) {
            self.surface.whole(&row);
        }
    }

    /// Shows the complete text of the call.
    pub(in crate::view) fn show_all(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        let columns = self.surface.columns();
        let (rows, beyond) = asked.whole(columns);
        asked.circumstances(columns).iter().chain(&rows).for_each(|row| self.surface.whole(row));
        if beyond > 0 {
            let beyond = units::plural(beyond as u64, "more line");
            let words = format!("  {} {beyond} beyond 1 MiB, which is all that is shown", self.surface.glyphs.more);
            self.surface.whole(&Line::styled(Style::Bad, words));
        }
        self.summary(&asked, "");
        self.asked = Some(asked);
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
