//! What a person or a program sees of an agent's run: a live view on a terminal, plain lines, or lines of JSON.
//!
//! What happens is told on standard error, and the answer on standard output; as JSON everything is on standard output.

mod asked;
mod call;
mod diff;
mod json;
mod line;
mod people;
mod picture;
mod prose;
mod surface;
mod tame;
#[cfg(test)]
mod tests;
mod words;

use std::{env, io, time::Duration};

use rustix::fs::fstat;
use sandbar::{Interruption, RunEvent, Usage};
use serde::Serialize;
use serde_json::Value;

use self::{
    json::Lines,
    people::People,
    surface::{ASCII, Letters, Reach, Surface, UNICODE},
};
use crate::{
    failure::Failure,
    render::Render,
    writer::{Stream, Writer},
};

/// How a run is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Live, on the terminal that standard error is.
    Terminal,
    /// As lines, without colour or anything else that only a terminal understands.
    Plain,
    /// As JSON, one object per line.
    Json,
}

/// Whether the results of a command are for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    People,
    Programs,
}

impl Mode {
    pub(crate) fn choose(render: &Render, results: For) -> Self {
        match results {
            For::Programs => Self::Json,
            For::People if render.has_terminal() => Self::Terminal,
            For::People => Self::Plain,
        }
    }
}

/// What is told before anything happens.
pub(crate) struct Started<'a> {
    pub id: &'a str,
    pub prompt: &'a str,
    pub agent: &'a str,
    pub model: &'a str,
    /// How it is used: "copy of /x", "in place /x", "empty".
    pub workspace: &'a str,
    pub isolation: &'a str,
    /// Whether the model's replies were written beforehand.
    pub scripted: bool,
}

/// What is told at the end.
pub(crate) struct Finished<'a> {
    pub id: &'a str,
    pub session_id: &'a str,
    pub status: Status,
    pub final_output: Option<&'a Value>,
    /// Why it failed or stopped.
    pub message: Option<&'a str>,
    pub usage: &'a Usage,
    /// In dollars.
    pub cost: Option<f64>,
    pub elapsed: Duration,
    /// What can be done now, such as `sandbar diff ID`.
    pub next_steps: &'a [String],
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Completed,
    Interrupted,
    MaxTurns,
    Budget,
    Failed,
    Cancelled,
}

/// What was decided about a call that waited for somebody.
pub(crate) struct Verdict<'a> {
    pub call_id: &'a str,
    pub decision: Decision,
    /// Who decided: "you", "the demo", "a rule".
    pub by: &'a str,
    pub reason: Option<&'a str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Decision {
    Approved,
    /// This call, and all like it.
    ApprovedAlways,
    Rejected,
}

/// The view of one run.
pub(crate) struct View {
    mode: Mode,
    face: Face,
    sink: Sink,
}

enum Face {
    People(Box<People>),
    Programs(Lines),
}

/// Where everything goes.
struct Sink {
    writer: Writer,
    #[cfg(test)]
    kept: Option<Kept>,
}

#[cfg(test)]
#[derive(Default)]
struct Kept {
    stdout: String,
    stderr: String,
}

/// The last line for programs, of a run without a view.
pub(crate) fn last_line(finished: &Finished<'_>) -> String {
    let mut lines = Lines::default();
    lines.finished(finished);
    lines.take()
}

impl View {
    pub(crate) fn new(render: &Render, mode: Mode) -> Result<Self, Failure> {
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable).unwrap_or_default();
        let reads_unicode = is_utf8(&locale);
        let is_dumb = variable("TERM").is_none_or(|kind| kind == "dumb");
        let glyphs = if reads_unicode && !(is_dumb && mode == Mode::Terminal) { &UNICODE } else { &ASCII };
        let face = match mode {
            Mode::Json => Face::Programs(Lines::default()),
            Mode::Plain => Face::of(Surface::new(render.uncoloured(), Reach::Lines, Letters::All, glyphs), render),
            Mode::Terminal => {
                let reach = if is_dumb { Reach::Printed } else { Reach::Redrawn };
                let letters = if reads_unicode { Letters::All } else { Letters::Ascii };
                Face::of(
                    Surface::new(if is_dumb { render.uncoloured() } else { *render }, reach, letters, glyphs),
                    render,
                )
            }
        };
        let writer = Writer::start().map_err(|error| Failure::new("cannot write standard output").because(error))?;
        Ok(Self { mode, face, sink: Sink::new(writer) })
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether what happens next should be shown already: what was shown before may still wait for its reader.
    pub(crate) fn has_room(&self) -> bool {
        self.sink.writer.has_room()
    }

    /// Waits until it should.
    pub(crate) async fn room(&self) {
        self.sink.writer.room().await;
    }

    /// From now on a reader that does not read is not waited for.
    pub(crate) fn hurry(&self) {
        self.sink.writer.hurry();
    }

    /// Waits until everything was read, or nothing is read any more and there is a hurry.
    pub(crate) async fn settle(&self) {
        self.sink.writer.settle().await;
    }

    pub(crate) fn started(&mut self, started: &Started<'_>) {
        match &mut self.face {
            Face::People(people) => people.started(started),
            Face::Programs(lines) => lines.started(started),
        }
        self.flush();
    }

    /// Shows something that happens in the run.
    pub(crate) fn event(&mut self, event: &RunEvent) {
        match &mut self.face {
            Face::People(people) => people.event(event),
            Face::Programs(lines) => lines.event(event, None),
        }
        self.flush();
    }

    /// Shows something that happens in the run of an agent that answers this call of the outer run.
    #[cfg_attr(not(test), expect(dead_code, reason = "for commands whose agents are tools of each other"))]
    pub(crate) fn nested(&mut self, call_id: &str, agent: &str, event: &RunEvent) {
        match &mut self.face {
            Face::People(people) => people.nested(call_id, agent, event),
            Face::Programs(lines) => lines.event(event, Some((call_id, agent))),
        }
        self.flush();
    }

    /// Moves what moves: to be called about ten times a second. Without `usage` the view counts what it has heard.
    pub(crate) fn tick(&mut self, usage: Option<&Usage>) {
        // What moves is worth nothing late.
        if !self.sink.writer.is_empty() {
            return;
        }
        if let Face::People(people) = &mut self.face {
            people.tick(usage);
        }
        self.flush();
    }

    /// What the run has cost so far, in dollars.
    pub(crate) fn cost(&mut self, cost: Option<f64>) {
        if let Face::People(people) = &mut self.face {
            people.cost(cost);
        }
    }

    /// What sandbar itself is busy with, such as filling the workspace: told on the last row of a terminal only.
    #[cfg_attr(not(test), expect(dead_code, reason = "for commands that fill workspaces while they are watched"))]
    pub(crate) fn doing(&mut self, what: Option<&str>) {
        if let Face::People(people) = &mut self.face {
            people.doing(what);
        }
        self.flush();
    }

    /// One line from sandbar itself.
    pub(crate) fn notice(&mut self, text: &str) {
        match &mut self.face {
            Face::People(people) => people.notice(text),
            Face::Programs(lines) => lines.notice(text),
        }
        self.flush();
    }

    /// Shows what somebody has to decide about. From here to [`answered`](Self::answered) nothing is drawn over, so that a
    /// line can be read from the terminal.
    pub(crate) fn ask(&mut self, request: &Interruption) {
        match &mut self.face {
            Face::People(people) => people.ask(request),
            Face::Programs(lines) => lines.asked(request),
        }
        self.flush();
    }

    /// Shows all of what was asked about, however long it is.
    pub(crate) fn show_all(&mut self) {
        if let Face::People(people) = &mut self.face {
            people.show_all();
        }
        self.flush();
    }

    /// Says what the answers to a question mean.
    pub(crate) fn explain(&mut self, lines: &[String]) {
        if let Face::People(people) = &mut self.face {
            people.explain(lines);
        }
        self.flush();
    }

    /// Writes a question, and leaves the cursor behind it.
    pub(crate) fn prompt(&mut self, question: &str) {
        if let Face::People(people) = &mut self.face {
            people.prompt(question);
        }
        self.flush();
    }

    /// Shows what was decided.
    pub(crate) fn answered(&mut self, verdict: &Verdict<'_>) {
        match &mut self.face {
            Face::People(people) => people.answered(verdict),
            Face::Programs(lines) => lines.answered(verdict),
        }
        self.flush();
    }

    /// Whether people are looking.
    pub(crate) fn is_for_people(&self) -> bool {
        matches!(self.face, Face::People(_))
    }

    /// Shows to people what the run has changed, in a text that is ready for a terminal.
    pub(crate) fn changes(&mut self, text: &str) {
        if let Face::People(people) = &mut self.face {
            people.changes(text);
        }
        self.flush();
    }

    /// Shows how it ended, and gives the answer out.
    pub(crate) fn finished(&mut self, finished: &Finished<'_>) {
        if let Face::People(people) = &mut self.face {
            people.close(finished);
        }
        self.flush();
        match &mut self.face {
            Face::People(people) => people.finished(finished),
            Face::Programs(lines) => lines.finished(finished),
        }
        self.flush();
    }

    /// Removes what is drawn over and over, so that somebody else can print; the next tick draws it again.
    pub(crate) fn clear(&mut self) {
        if let Face::People(people) = &mut self.face {
            people.clear();
        }
        self.flush();
    }

    /// Whether the reader of the results is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.sink.writer.has_failed(Stream::Stdout)
    }

    fn flush(&mut self) {
        let (stderr, stdout) = match &mut self.face {
            Face::People(people) => people.take(),
            Face::Programs(lines) => (String::new(), lines.take()),
        };
        self.sink.write(stderr, stdout);
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Face {
    fn of(surface: Surface, render: &Render) -> Self {
        let mut people = People::new(surface, render.result_is_seen());
        people.results_are_near = is_one_place();
        Self::People(Box::new(people))
    }
}

impl Sink {
    fn new(writer: Writer) -> Self {
        Self {
            writer,
            #[cfg(test)]
            kept: None,
        }
    }

    fn write(&mut self, stderr: String, stdout: String) {
        #[cfg(test)]
        if let Some(kept) = &mut self.kept {
            kept.stderr += &stderr;
            kept.stdout += &stdout;
            return;
        }
        self.writer.push(Stream::Stdout, stdout);
        self.writer.push(Stream::Stderr, stderr);
    }
}

/// Whether results and progress go to the same file, pipe or terminal.
fn is_one_place() -> bool {
    match (fstat(io::stdout()), fstat(io::stderr())) {
        (Ok(stdout), Ok(stderr)) => (stdout.st_dev, stdout.st_ino) == (stderr.st_dev, stderr.st_ino),
        _ => false,
    }
}

/// Whether the locale of this name reads Unicode.
fn is_utf8(locale: &str) -> bool {
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
