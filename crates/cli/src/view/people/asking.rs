//! A call that waits for somebody: what they see of it, what they are asked, and what they decided.

use sandbar::Interruption;

use super::{Block, People, State};
use crate::{
    render::Style,
    view::{Decision, Verdict, asked::Asked, line::Line, surface::Reach, tame, words},
};

/// Rows of a screen that are not for what is asked about.
const AROUND: usize = 5;

/// The most rows that count as seen at once, however high a screen is.
const SEEN: usize = 60;

impl People {
    pub(in crate::view) fn ask(&mut self, request: &Interruption) {
        self.conclude_answered();
        self.enter(Block::Note);
        self.state = State::Asking;
        self.surface.erase();
        let asked = Asked::read(request, self.surface.glyphs, self.surface.letters);
        let words = format!("? {} asks to use {}", tame::exact(&request.agent), asked.tool);
        self.surface.rows(&Line::styled(Style::Doubtful, words), 2);
        self.glance(&asked);
        self.asked = Some(asked);
    }

    fn glance(&mut self, asked: &Asked) {
        let columns = self.surface.columns();
        let is_terminal = self.surface.reach != Reach::Lines;
        let circumstances = asked.circumstances(columns);
        let glance = asked.glance(columns);
        let rows = glance.rows();
        let seen = if is_terminal { SEEN.min(self.surface.height().saturating_sub(AROUND)) } else { SEEN };
        let is_long = rows + circumstances.len() > seen;
        circumstances.iter().chain(&glance.first).for_each(|row| self.surface.whole(row));
        if glance.hidden > 0 {
            let how = if is_terminal { ", v shows them" } else { "" };
            let hidden = words::plural(glance.hidden as u64, "more line");
            let more = self.surface.glyphs.more;
            self.surface.whole(&Line::styled(Style::Doubtful, format!("  {more} {hidden}{how}")));
        }
        glance.last.iter().for_each(|row| self.surface.whole(row));
        if is_long {
            self.summary(asked, if is_terminal { "; more than a screen, v shows all" } else { "" });
        }
    }

    fn summary(&mut self, asked: &Asked, remark: &str) {
        for row in asked.summary(self.surface.columns(), self.surface.glyphs, remark) {
            self.surface.whole(&row);
        }
    }

    /// Shows all of what is asked about.
    pub(in crate::view) fn show_all(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        let columns = self.surface.columns();
        let (rows, beyond) = asked.whole(columns);
        asked.circumstances(columns).iter().chain(&rows).for_each(|row| self.surface.whole(row));
        if beyond > 0 {
            let beyond = words::plural(beyond as u64, "more line");
            let words = format!("  {} {beyond} beyond 1 MiB, which is all that is shown", self.surface.glyphs.more);
            self.surface.whole(&Line::styled(Style::Bad, words));
        }
        self.summary(&asked, "");
        self.asked = Some(asked);
    }

    pub(in crate::view) fn explain(&mut self, lines: &[String]) {
        for line in lines {
            self.surface.rows(&Line::plain(tame::exact(line)).indented(2), 6);
        }
    }

    pub(in crate::view) fn prompt(&mut self, question: &str) {
        self.surface.question(&Line::styled(Style::Strong, tame::visible_line(question)));
    }

    pub(in crate::view) fn answered(&mut self, verdict: &Verdict<'_>) {
        let glyphs = self.surface.glyphs;
        let tool = self.asked.take().map_or_else(|| "call like it".to_owned(), |asked| asked.tool);
        let (style, mark, what) = match verdict.decision {
            Decision::Approved => (Style::Good, glyphs.good, "approved".to_owned()),
            Decision::ApprovedAlways => (Style::Good, glyphs.good, format!("approved, and every later {tool},")),
            Decision::Rejected => (Style::Bad, glyphs.bad, "rejected".to_owned()),
        };
        let reason = verdict.reason.map(|reason| format!(": {}", tame::visible_line(reason))).unwrap_or_default();
        let words = format!(" {what} by {}{reason}", tame::visible_line(verdict.by));
        self.surface.rows(&Line::styled(style, mark).then(words).indented(2), 4);
        self.state = State::Running;
        self.draw();
    }
}
