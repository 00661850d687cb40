//! The head and the end of a run, as lines.

use sandbar_runs::RunStatus;

use crate::{
    render::Style,
    view::{
        Finished, Started,
        call::COMMAND_ROWS,
        line::Line,
        sanitize,
        surface::{Glyphs, Row},
        units,
    },
};

/// What runs, where, and the prompt.
pub(super) fn head(started: &Started<'_>, glyphs: &Glyphs) -> Vec<Row> {
    let dot = format!(" {} ", glyphs.dot);
    let facts = [started.agent, started.model].map(sanitize::visible_line);
    let id = Line::styled(Style::Strong, sanitize::visible_line(started.id));
    let place = [started.workspace, started.isolation].map(sanitize::visible_line);
    let place: Vec<String> = place.into_iter().filter(|text| !text.is_empty()).collect();
    let mut rows = vec![
        Row::Wrapped(id.then_styled(Style::Faint, format!("{dot}{}", facts.join(&dot))), 2),
        Row::Wrapped(Line::styled(Style::Faint, place.join(&dot)), 2),
    ];
    if started.scripted {
        rows.push(Row::Wrapped(Line::styled(Style::Doubtful, "The model is scripted; what it does is real."), 0));
    }
    let prompt = sanitize::visible(started.prompt).into_iter().take(COMMAND_ROWS);
    rows.extend(prompt.map(|line| Row::Wrapped(Line::styled(Style::Place, "> ").then(line), 2)));
    rows
}

/// How the run ended, what it used, and the next steps.
pub(super) fn ending(finished: &Finished<'_>, turns: u64, glyphs: &Glyphs) -> Vec<Row> {
    let (style, mark, what) = match finished.status {
        RunStatus::Completed => (Style::Good, glyphs.good, "completed"),
        RunStatus::Interrupted => (Style::Doubtful, "?", "waits for an approval"),
        RunStatus::MaxTurns => (Style::Doubtful, "!", "stopped: no turns left"),
        RunStatus::Budget => (Style::Doubtful, "!", "stopped: the budget is spent"),
        RunStatus::Cancelled => (Style::Doubtful, "!", "cancelled"),
        _ => (Style::Bad, glyphs.bad, "failed"),
    };
    let mut facts = vec![units::plural(turns, "turn"), units::duration(finished.elapsed)];
    let usage = finished.usage;
    if usage.input_tokens + usage.output_tokens > 0 {
        let cached = match usage.cached_tokens {
            0 => String::new(),
            cached => format!(" ({} cached)", units::count(cached)),
        };
        let (input, output) = (units::count(usage.input_tokens), units::count(usage.output_tokens));
        facts.push(format!("{input} tokens in{cached}, {output} out"));
    }
    facts.extend(finished.cost.map(units::cost));
    let dot = format!(" {} ", glyphs.dot);
    let line = Line::styled(style, if mark == what { mark.to_owned() } else { format!("{mark} {what}") });
    let mut rows = vec![Row::Wrapped(line.then_styled(Style::Faint, format!("{dot}{}", facts.join(&dot))), 2)];
    let message = finished.message.map(sanitize::visible).unwrap_or_default();
    rows.extend(message.into_iter().map(|text| Row::Wrapped(Line::plain(text).indented(2), 2)));
    // Users copy paths from the screen, so only the terminal wraps these lines.
    let steps = finished.next_steps.iter().map(|step| Line::plain(sanitize::visible_line(step)).indented(2));
    rows.extend(steps.map(Row::Whole));
    rows
}
