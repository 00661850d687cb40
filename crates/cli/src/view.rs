//! The view of an agent's run: live on a terminal, as plain lines, or as JSON lines.
//!
//! Events are written to standard error, and the answer to standard output; as JSON, both go to standard output.

mod call;
mod diff;
mod json;
mod line;
mod pending;
mod picture;
mod prose;
mod sanitize;
mod surface;
#[cfg(test)]
mod tests;
mod text_view;
pub(crate) mod units;

use std::{env, io, time::Duration};

use rustix::fs::fstat;
use sandbar::{Interruption, RunEvent, agent::Usage};
use sandbar_runs::RunStatus;
use serde::Serialize;
use serde_json::Value;

use self::{
    json::JsonLines,
    surface::{ASCII, Charset, DisplayKind, Surface, UNICODE},
    text_view::TextView,
};
use crate::{
    render::Render,
    streams::writer::{Stream, Writer},
};

/// Format of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Live, on the terminal that standard error is.
    Terminal,
    /// As lines without colour or other escape sequences.
    Plain,
    /// As JSON, one object per line.
    Json,
}

/// Reader of the results of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    Human,
    Program,
}

impl Mode {
    pub(crate) fn choose(render: &Render, results: Reader) -> Self {
        match results {
            Reader::Program => Self::Json,
            Reader::Human if render.has_terminal() => Self::Terminal,
            Reader::Human => Self::Plain,
        }
    }
}

/// Head of the view.
pub(crate) struct Started<'a> {
    pub id: &'a str,
    pub prompt: &'a str,
    pub agent: &'a str,
    pub model: &'a str,
    /// Description of the workspace: "copy of /x", "in place /x", "empty".
    pub workspace: &'a str,
    pub isolation: &'a str,
    /// Whether the replies of the model come from a script.
    pub scripted: bool,
}

/// End of the view.
pub(crate) struct Finished<'a> {
    pub id: &'a str,
    pub session_id: &'a str,
    pub status: RunStatus,
    pub final_output: Option<&'a Value>,
    /// Why the run failed or stopped.
    pub message: Option<&'a str>,
    pub usage: &'a Usage,
    /// In dollars.
    pub cost: Option<f64>,
    pub elapsed: Duration,
    /// Commands to run next, such as `sandbar diff ID`.
    pub next_steps: &'a [String],
}

/// Decision about a call that needed an approval.
pub(crate) struct Verdict<'a> {
    pub call_id: &'a str,
    pub decision: Decision,
    /// Who decided: "you", "the demo", or "a rule".
    pub by: &'a str,
    pub reason: Option<&'a str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Decision {
    Approved,
    /// This call, and all later calls of the same tool.
    ApprovedAlways,
    Rejected,
}

/// The view of one run.
pub(crate) struct View {
    mode: Mode,
    format: Format,
    sink: Sink,
}

enum Format {
    Text(Box<TextView>),
    Json(JsonLines),
}

/// Destination of the output.
struct Sink {
    writer: Writer,
    #[cfg(test)]
    captured: Option<Captured>,
}

#[cfg(test)]
#[derive(Default)]
struct Captured {
    stdout: String,
    stderr: String,
}

/// The last JSON line of a run without a view.
pub(crate) fn last_line(finished: &Finished<'_>) -> String {
    let mut lines = JsonLines::default();
    lines.finished(finished);
    lines.take()
}

impl View {
    pub(crate) fn new(render: &Render, mode: Mode) -> Self {
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable).unwrap_or_default();
        let reads_unicode = is_utf8(&locale);
        let is_dumb = variable("TERM").is_none_or(|kind| kind == "dumb");
        let glyphs = if reads_unicode && !(is_dumb && mode == Mode::Terminal) { &UNICODE } else { &ASCII };
        let format = match mode {
            Mode::Json => Format::Json(JsonLines::default()),
            Mode::Plain => {
                Format::of(Surface::new(render.uncoloured(), DisplayKind::Lines, Charset::All, glyphs), render)
            }
            Mode::Terminal => {
                let reach = if is_dumb { DisplayKind::Printed } else { DisplayKind::Redrawn };
                let letters = if reads_unicode { Charset::All } else { Charset::Ascii };
                Format::of(
                    Surface::new(if is_dumb { render.uncoloured() } else { *render }, reach, letters, glyphs),
                    render,
                )
            }
        };
        Self { mode, format, sink: Sink::new(Writer::new()) }
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether the next event can be shown now: earlier output may still wait for its reader.
    pub(crate) fn has_room(&self) -> bool {
        self.sink.writer.has_room()
    }

    /// Waits until the next event can be shown.
    pub(crate) async fn room(&self) {
        self.sink.writer.room().await;
    }

    /// From now on, do not wait for a stalled reader.
    pub(crate) fn hurry(&self) {
        self.sink.writer.hurry();
    }

    /// Waits until all output is written; in a hurry, only as long as a reader makes progress.
    pub(crate) async fn settle(&self) {
        self.sink.writer.settle().await;
    }

    pub(crate) fn started(&mut self, started: &Started<'_>) {
        self.show(|text| text.started(started), |json| json.started(started));
    }

    /// Shows an event of the run.
    pub(crate) fn event(&mut self, event: &RunEvent) {
        self.show(|text| text.event(event), |json| json.event(event));
    }

    /// Updates the status row; called about ten times a second. Without `usage`, the view counts the usage in the events.
    pub(crate) fn tick(&mut self, usage: Option<&Usage>) {
        // A late update of the status row is worthless.
        if self.sink.writer.is_empty() {
            self.show_text(|text| text.tick(usage));
        }
    }

    /// Sets the cost of the run so far, in dollars.
    pub(crate) fn cost(&mut self, cost: Option<f64>) {
        self.show_text(|text| text.cost(cost));
    }

    /// Shows a message of sandbar.
    pub(crate) fn notice(&mut self, message: &str) {
        self.show(|text| text.notice(message), |json| json.notice(message));
    }

    /// Shows a call that needs an approval. Nothing is redrawn until [`answered`](Self::answered), so that the user can type a
    /// line.
    pub(crate) fn ask(&mut self, request: &Interruption) {
        self.show(|text| text.ask(request), |json| json.asked(request));
    }

    /// Shows the complete call that needs an approval.
    pub(crate) fn show_all(&mut self) {
        self.show_text(TextView::show_all);
    }

    /// Explains the possible answers.
    pub(crate) fn explain(&mut self, lines: &[String]) {
        self.show_text(|text| text.explain(lines));
    }

    /// Writes a question, and leaves the cursor after it.
    pub(crate) fn prompt(&mut self, question: &str) {
        self.show_text(|text| text.prompt(question));
    }

    /// Shows the decision.
    pub(crate) fn answered(&mut self, verdict: &Verdict<'_>) {
        self.show(|text| text.answered(verdict), |json| json.answered(verdict));
    }

    /// Whether the view is text, not JSON.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.format, Format::Text(_))
    }

    /// Shows the changes of the run in a text view. The text is already sanitized.
    pub(crate) fn changes(&mut self, changes: &str) {
        self.show_text(|text| text.changes(changes));
    }

    /// Shows how the run ended, and writes the answer.
    pub(crate) fn finished(&mut self, finished: &Finished<'_>) {
        self.show_text(|text| text.close(finished));
        self.show(|text| text.finished(finished), |json| json.finished(finished));
    }

    /// Removes the redrawn rows, so that another writer can print; the next tick draws them again.
    pub(crate) fn clear(&mut self) {
        self.show_text(TextView::clear);
    }

    /// Whether the reader of standard output closed the pipe.
    pub(crate) fn is_closed(&self) -> bool {
        self.sink.writer.has_failed(Stream::Stdout)
    }

    fn show(&mut self, as_text: impl FnOnce(&mut TextView), as_json: impl FnOnce(&mut JsonLines)) {
        match &mut self.format {
            Format::Text(text_view) => as_text(text_view),
            Format::Json(lines) => as_json(lines),
        }
        self.flush();
    }

    fn show_text(&mut self, as_text: impl FnOnce(&mut TextView)) {
        self.show(as_text, |_| {});
    }

    fn flush(&mut self) {
        let (stderr, stdout) = match &mut self.format {
            Format::Text(text_view) => text_view.take(),
            Format::Json(lines) => (String::new(), lines.take()),
        };
        self.sink.write(stderr, stdout);
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Format {
    fn of(surface: Surface, render: &Render) -> Self {
        let mut text_view = TextView::new(surface, render.result_is_seen());
        text_view.results_are_near = is_one_place();
        Self::Text(Box::new(text_view))
    }
}

impl Sink {
    fn new(writer: Writer) -> Self {
        Self {
            writer,
            #[cfg(test)]
            captured: None,
        }
    }

    fn write(&mut self, stderr: String, stdout: String) {
        #[cfg(test)]
        if let Some(captured) = &mut self.captured {
            captured.stderr += &stderr;
            captured.stdout += &stdout;
            return;
        }
        self.writer.push(Stream::Stdout, stdout);
        self.writer.push(Stream::Stderr, stderr);
    }
}

/// Whether standard output and standard error are the same file, pipe or terminal.
fn is_one_place() -> bool {
    match (fstat(io::stdout()), fstat(io::stderr())) {
        (Ok(stdout), Ok(stderr)) => (stdout.st_dev, stdout.st_ino) == (stderr.st_dev, stderr.st_ino),
        _ => false,
    }
}

/// Whether the locale of this name uses UTF-8.
fn is_utf8(locale: &str) -> bool {
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
