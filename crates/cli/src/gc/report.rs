//! What was removed, kept and left, told as it happens to people, and at the end to programs.

use sandbar::{MachineError, Signal, client::docker::Engine};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    args::GcArgs,
    failure::Failure,
    render::{self, CLOSED, Render, Style, inert_line},
};

/// Something that was found.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Item {
    kind: &'static str,
    name: String,
    why: String,
}

impl Item {
    pub(super) fn new(kind: &'static str, name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { kind, name: name.into(), why: why.into() }
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
    /// Nothing when none was to be looked at.
    engine: Value,
    /// Whether there is a line on the terminal that is to go away.
    busy: bool,
    /// Nobody reads the result any more.
    closed: bool,
}

impl<'a> Report<'a> {
    pub(super) fn new(args: &GcArgs, render: &'a Render) -> Self {
        let (is_dry, json) = (args.dry_run, args.json);
        let (removed, removing, kept, failed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { render, is_dry, json, removed, removing, kept, failed, engine: Value::Null, busy: false, closed: false }
    }

    /// Whether nothing is to be changed.
    pub(super) fn is_dry(&self) -> bool {
        self.is_dry
    }

    /// What is being done, where somebody watches.
    pub(super) fn doing(&mut self, what: &str) {
        if self.render.has_terminal() {
            let line: String = inert_line(what).chars().take(70).collect();
            render::status(&line);
            self.busy = true;
        }
    }

    pub(super) fn removed(&mut self, item: Item) -> Result<(), Failure> {
        if !self.json {
            let verb = if self.is_dry { "would remove" } else { "removed" };
            let Item { kind, name, why } = &item;
            let line = format!("{verb} {kind} {}: {}\n", inert_line(name), inert_line(why));
            self.print(&line)?;
        }
        self.kept.retain(|kept| (kept.kind, &kept.name) != (item.kind, &item.name));
        self.removed.push(item);
        Ok(())
    }

    /// Something that is not gone yet, and whose removal goes on without this command.
    pub(super) fn removing(&mut self, item: Item) -> Result<(), Failure> {
        if !self.json {
            let Item { kind, name, why } = &item;
            self.print(&format!("{kind} {} is being removed: {}\n", inert_line(name), inert_line(why)))?;
        }
        self.kept.retain(|kept| (kept.kind, &kept.name) != (item.kind, &item.name));
        self.removing.push(item);
        Ok(())
    }

    pub(super) fn is_removing(&self, kind: &str, name: &str) -> bool {
        self.removing.iter().any(|item| (item.kind, item.name.as_str()) == (kind, name))
    }

    /// What became of a machine, a container or a volume that was to be removed.
    pub(super) fn outcome(&mut self, item: Item, outcome: Result<(), MachineError>) -> Result<(), Failure> {
        match outcome {
            Ok(()) => self.removed(item),
            Err(MachineError::StillBeingRemoved { .. }) => {
                self.removing(Item { why: "it takes long".to_owned(), ..item })
            }
            Err(error) => {
                self.failed(&format!("{} {}", item.kind, item.name), error.into());
                Ok(())
            }
        }
    }

    pub(super) fn kept(&mut self, item: Item) {
        tracing::info!(kind = item.kind, name = item.name, why = item.why, "kept");
        self.kept.push(item);
    }

    pub(super) fn failed(&mut self, what: &str, failure: Failure) {
        self.quiet();
        self.failed.push(json!({"what": what, "error": failure.to_string()}));
        let failure = Failure::new(format!("cannot clean up {what}; {failure}"));
        if self.json { self.render.failure_document(&failure) } else { self.render.failure(&failure) }
    }

    pub(super) fn note(&mut self, text: &str) {
        self.quiet();
        self.render.note(text);
    }

    pub(super) fn looked_at(&mut self, engine: &Engine) {
        self.engine = json!({"address": engine.to_string(), "reached": true, "reason": null});
    }

    pub(super) fn not_looked_at(&mut self, reason: &str) {
        self.engine = json!({"address": null, "reached": false, "reason": reason});
        if !self.json {
            self.note(&format!("no engine was looked at: {reason}"));
        }
    }

    /// The last word, and the exit code.
    pub(super) fn end(mut self, signal: Option<Signal>) -> Result<u8, Failure> {
        let text = if self.json {
            let document = json!({
                "dry_run": self.is_dry,
                "interrupted": signal.is_some(),
                "removed": self.removed,
                "removing": self.removing,
                "kept": self.kept,
                "failed": self.failed,
                "engine": self.engine,
            });
            format!("{document}\n")
        } else {
            let summary = summary(&self.removed, (self.removing.len(), self.failed.len()), self.is_dry);
            let interrupted = if signal.is_some() { "; interrupted" } else { "" };
            format!("{}\n", self.render.paint(Style::Strong, &format!("{summary}{interrupted}")))
        };
        self.print(&text)?;
        Ok(match (self.closed, self.failed.is_empty()) {
            (true, _) => CLOSED,
            (false, true) => 0,
            (false, false) => 1,
        })
    }

    fn print(&mut self, text: &str) -> Result<(), Failure> {
        self.quiet();
        // What was begun is brought to an end, whoever listens.
        if !self.closed {
            self.closed = self.render.result(text.as_bytes())? == CLOSED;
        }
        Ok(())
    }

    /// Takes what is being done off the terminal.
    pub(super) fn quiet(&mut self) {
        if std::mem::take(&mut self.busy) {
            render::status("");
        }
    }
}

/// All of it in one line.
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

    #[test]
    fn a_summary_counts_each_kind() {
        let items = |kinds: &[&'static str]| kinds.iter().map(|kind| Item::new(kind, "x", "y")).collect::<Vec<_>>();
        let none = (0, 0);
        assert_eq!(summary(&[], none, false), "nothing to remove");
        assert_eq!(summary(&items(&["volume", "container", "volume"]), none, false), "removed 1 container, 2 volumes");
        assert_eq!(summary(&items(&["run"]), none, true), "would remove 1 run");
        assert_eq!(summary(&items(&["machine"]), (0, 2), false), "removed 1 machine; 2 could not be cleaned up");
        assert_eq!(summary(&[], (1, 0), false), "nothing to remove; 1 is being removed");
    }
}
