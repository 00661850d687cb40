//! The report of `sandbar gc`: one line for each event, and a summary or a JSON document at the end.

use std::collections::BTreeMap;

use sandbar::Signal;
use sandbar_runs::gc::{Garbage, GcEvent};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    args::GcArgs,
    failure::Failure,
    render::{self, CLOSED, Render, Style, inert_line},
};

/// Something that was removed or retained, in the document.
#[derive(Clone, Debug, Serialize)]
struct Item {
    kind: &'static str,
    name: String,
    why: String,
}

impl From<Garbage> for Item {
    fn from(garbage: Garbage) -> Self {
        Self { kind: garbage.kind, name: garbage.name, why: garbage.reason }
    }
}

pub(super) struct Report<'a> {
    render: &'a Render,
    is_dry: bool,
    json: bool,
    removed: Vec<Item>,
    removing: Vec<Item>,
    kept: Vec<Item>,
    failed: Vec<Value>,
    /// Whether each provider was reached.
    providers: BTreeMap<&'static str, Value>,
    /// Whether a progress line is on the terminal.
    busy: bool,
    /// The reader of standard output closed the pipe.
    closed: bool,
    /// The first error of writing to standard output.
    unwritten: Option<Failure>,
}

impl<'a> Report<'a> {
    pub(super) fn new(args: &GcArgs, render: &'a Render) -> Self {
        let (is_dry, json) = (args.dry_run, args.json);
        let (removed, removing, kept, failed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let providers = BTreeMap::new();
        Self {
            render,
            is_dry,
            json,
            removed,
            removing,
            kept,
            failed,
            providers,
            busy: false,
            closed: false,
            unwritten: None,
        }
    }

    /// Reports an event.
    pub(super) fn event(&mut self, event: GcEvent) {
        match event {
            GcEvent::Progress(text) => self.progress(&text),
            GcEvent::Searched(provider, address) => {
                self.providers.insert(provider, json!({"address": address, "reached": true, "reason": null}));
            }
            GcEvent::Unreachable(provider, error) => {
                self.unreachable(provider, &Failure::from(error).without_machine())
            }
            GcEvent::Note(text) => self.note(&text),
            GcEvent::Removed(garbage) => self.removed(garbage.into()),
            GcEvent::Removing(garbage) => self.removing(garbage.into()),
            GcEvent::Retained(garbage) => self.retained(garbage.into()),
            GcEvent::Failed(what, error) => self.failed(&what, &error.into()),
            _ => {}
        }
    }

    fn progress(&mut self, text: &str) {
        if self.render.has_terminal() {
            let line: String = inert_line(text).chars().take(70).collect();
            render::status(&line);
            self.busy = true;
        }
    }

    fn removed(&mut self, item: Item) {
        if !self.json {
            let verb = if self.is_dry { "would remove" } else { "removed" };
            let Item { kind, name, why } = &item;
            self.print(&format!("{verb} {kind} {}: {}\n", inert_line(name), inert_line(why)));
        }
        self.kept.retain(|kept| (kept.kind, &kept.name) != (item.kind, &item.name));
        self.removed.push(item);
    }

    /// Something whose removal continues without this command.
    fn removing(&mut self, item: Item) {
        if !self.json {
            let Item { kind, name, why } = &item;
            self.print(&format!("{kind} {} is being removed: {}\n", inert_line(name), inert_line(why)));
        }
        self.kept.retain(|kept| (kept.kind, &kept.name) != (item.kind, &item.name));
        self.removing.push(item);
    }

    fn retained(&mut self, item: Item) {
        tracing::info!(kind = item.kind, name = item.name, why = item.why, "retained");
        self.kept.push(item);
    }

    fn failed(&mut self, what: &str, failure: &Failure) {
        self.quiet();
        self.failed.push(json!({"what": what, "error": failure.to_string()}));
        let failure = Failure::new(format!("cannot clean up {what}; {failure}"));
        if self.json { self.render.failure_document(&failure) } else { self.render.failure(&failure) }
    }

    fn note(&mut self, text: &str) {
        self.quiet();
        self.render.note(text);
    }

    fn unreachable(&mut self, provider: &'static str, failure: &Failure) {
        let reason = failure.to_string();
        self.providers.insert(provider, json!({"address": null, "reached": false, "reason": reason}));
        if !self.json {
            self.note(&format!("{provider} was not looked at: {reason}"));
        }
    }

    /// Prints the summary or the document, and returns the exit code.
    pub(super) fn end(mut self, signal: Option<Signal>) -> Result<u8, Failure> {
        let text = if self.json {
            let document = json!({
                "dry_run": self.is_dry,
                "interrupted": signal.is_some(),
                "removed": self.removed,
                "removing": self.removing,
                "kept": self.kept,
                "failed": self.failed,
                "providers": self.providers,
            });
            format!("{document}\n")
        } else {
            let summary = summary(&self.removed, (self.removing.len(), self.failed.len()), self.is_dry);
            let interrupted = if signal.is_some() { "; interrupted" } else { "" };
            format!("{}\n", self.render.paint(Style::Strong, &format!("{summary}{interrupted}")))
        };
        self.print(&text);
        if let Some(failure) = self.unwritten {
            return Err(failure);
        }
        Ok(match (self.closed, self.failed.is_empty()) {
            (true, _) => CLOSED,
            (false, true) => 0,
            (false, false) => 1,
        })
    }

    /// Prints to standard output. Without a reader, the removal continues.
    fn print(&mut self, text: &str) {
        self.quiet();
        if !self.closed && self.unwritten.is_none() {
            match self.render.result(text.as_bytes()) {
                Ok(code) => self.closed = code == CLOSED,
                Err(failure) => self.unwritten = Some(failure),
            }
        }
    }

    /// Removes the progress line from the terminal.
    pub(super) fn quiet(&mut self) {
        if std::mem::take(&mut self.busy) {
            render::status("");
        }
    }
}

/// The result in one line.
fn summary(removed: &[Item], (removing, failed): (usize, usize), is_dry: bool) -> String {
    let counts = ["container", "volume", "machine", "session", "record", "run"].into_iter().filter_map(|kind| {
        let count = removed.iter().filter(|item| item.kind == kind).count();
        let plural = if count == 1 { "" } else { "s" };
        (count > 0).then(|| format!("{count} {kind}{plural}"))
    });
    let counts: Vec<String> = counts.collect();
    let verb = if is_dry { "would remove" } else { "removed" };
    let mut text =
        if counts.is_empty() { "nothing to remove".to_owned() } else { format!("{verb} {}", counts.join(", ")) };
    if removing > 0 {
        let verb = if removing == 1 { "is" } else { "are" };
        text.push_str(&format!("; {removing} {verb} being removed"));
    }
    if failed > 0 {
        text.push_str(&format!("; {failed} could not be cleaned up"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(kind: &'static str) -> Item {
        Item { kind, name: "x".to_owned(), why: "y".to_owned() }
    }

    #[test]
    fn a_summary_counts_each_kind() {
        let items = |kinds: &[&'static str]| kinds.iter().map(|kind| item(kind)).collect::<Vec<_>>();
        let none = (0, 0);
        assert_eq!(summary(&[], none, false), "nothing to remove");
        assert_eq!(summary(&items(&["volume", "container", "volume"]), none, false), "removed 1 container, 2 volumes");
        assert_eq!(summary(&items(&["run"]), none, true), "would remove 1 run");
        assert_eq!(summary(&items(&["machine"]), (0, 2), false), "removed 1 machine; 2 could not be cleaned up");
        assert_eq!(summary(&[], (1, 0), false), "nothing to remove; 1 is being removed");
    }
}
