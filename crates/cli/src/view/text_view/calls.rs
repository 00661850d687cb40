//! The calls of a turn: shown one after another, in the order of the model, although they run concurrently.

use sandbar::RunItem;

use super::{Block, TextView};
use crate::{
    render::Style,
    view::{
        call::{COMMAND_ROWS, CallKind, CallStatus, Outcome},
        line::Line,
        sanitize::{Caps, OutputLines},
        surface::{Row, Surface},
        units,
    },
};

pub(super) struct Call {
    id: String,
    pub called: CallKind,
    is_shown: bool,
    pub printed: OutputLines,
    pub outcome: Option<Outcome>,
}

impl TextView {
    pub(super) fn begin(&mut self, id: &str, called: CallKind) {
        let call = Call { id: id.to_owned(), called, is_shown: false, printed: OutputLines::default(), outcome: None };
        self.calls.push_back(call);
        self.show_first();
    }

    /// Shows the headline of the first call, and its output so far.
    pub(super) fn show_first(&mut self) {
        let Some(mut call) = self.calls.pop_front() else { return };
        if !call.is_shown {
            self.enter(Block::Call);
            self.surface.show(headline(&call.called, &self.surface));
            call.is_shown = true;
        }
        self.surface.show(call.printed_rows());
        self.calls.push_front(call);
    }

    pub(super) fn progress(&mut self, call_id: &str, text: &str) {
        let caps = self.caps;
        // A call of a resumed run may have begun before this view.
        if !self.calls.iter().any(|call| call.id == call_id) {
            self.begin(call_id, CallKind::Other { tool: call_id.to_owned(), arguments: String::new() });
        }
        if let Some(call) = self.calls.iter_mut().find(|call| call.id == call_id) {
            call.printed.push(text, caps);
        }
        self.show_first();
    }

    pub(super) fn end(&mut self, item: &RunItem) {
        let id = item.raw.call_id().unwrap_or_default();
        let outcome = Outcome::read(item, self.surface.glyphs);
        if !self.calls.iter().any(|call| call.id == id) {
            self.begin(id, CallKind::Other { tool: id.to_owned(), arguments: String::new() });
        }
        if let Some(call) = self.calls.iter_mut().find(|call| call.id == id) {
            call.outcome = Some(outcome.below(&call.called));
        }
        while self.calls.front().is_some_and(|call| call.outcome.is_some()) {
            self.conclude_first();
        }
        self.show_first();
    }

    /// Shows the outcomes of answered calls, also of those after an open call.
    pub(super) fn conclude_answered(&mut self) {
        let (answered, open): (Vec<Call>, Vec<Call>) =
            std::mem::take(&mut self.calls).into_iter().partition(|call| call.outcome.is_some());
        self.calls = answered.into();
        self.conclude_all();
        self.calls = open.into();
    }

    pub(super) fn conclude_all(&mut self) {
        while !self.calls.is_empty() {
            self.conclude_first();
        }
    }

    fn conclude_first(&mut self) {
        self.show_first();
        if let Some(call) = self.calls.pop_front() {
            let rows = call.conclusion(self.caps, &self.surface);
            self.surface.show(rows);
        }
    }
}

impl Call {
    /// The first lines of the output that were not shown yet.
    fn printed_rows(&mut self) -> Vec<Row> {
        std::iter::from_fn(|| self.printed.next_first()).map(|line| printed(&line)).collect()
    }

    /// The rest of the output, and the outcome.
    fn conclusion(mut self, caps: Caps, surface: &Surface) -> Vec<Row> {
        let glyphs = surface.glyphs;
        if let Some(outcome) = self.outcome.as_ref().filter(|_| self.printed.is_empty()) {
            self.printed.push(&outcome.output, caps);
        }
        let (hidden, last, lines) = self.printed.finish(caps);
        let mut rows = self.printed_rows();
        if hidden > 0 {
            rows.push(printed(&format!("{} {}", glyphs.more, units::plural(hidden, "more line"))));
        }
        rows.extend(last.iter().map(|line| printed(line)));
        let Some(outcome) = self.outcome else { return rows };
        let (style, mark) = match outcome.ended {
            CallStatus::Succeeded => (Style::Good, glyphs.good),
            CallStatus::Failed => (Style::Bad, glyphs.bad),
            CallStatus::Running => (Style::Doubtful, glyphs.more),
        };
        let many = if hidden > 0 { format!(" {} {}", glyphs.dot, units::plural(lines, "line")) } else { String::new() };
        if outcome.words.is_empty() && lines > 0 && outcome.ended == CallStatus::Succeeded {
            return rows;
        }
        let says_more = !outcome.words.is_empty() && outcome.words != mark;
        let words = if says_more { format!(" {}", outcome.words) } else { String::new() };
        let line = Line::styled(style, format!("{mark}{words}")).then_styled(Style::Faint, many).indented(2);
        let most = surface.columns().saturating_mul(COMMAND_ROWS);
        rows.push(Row::Wrapped(line.cut(most, glyphs.more), 4));
        rows
    }
}

/// The headline of a call, and the lines below it.
pub(super) fn headline(called: &CallKind, surface: &Surface) -> Vec<Row> {
    let glyphs = surface.glyphs;
    let most = surface.columns().saturating_mul(called.rows());
    let lines = called.headlines(glyphs).into_iter().enumerate();
    let headlines = lines.map(|(at, line)| match at {
        0 => Row::Wrapped(line.cut(most, glyphs.more), 2),
        _ => Row::Cut(line),
    });
    headlines.chain(called.body(glyphs).into_iter().map(|line| Row::Cut(line.indented(2)))).collect()
}

fn printed(line: &str) -> Row {
    Row::Cut(Line::styled(Style::Faint, line).indented(2))
}
