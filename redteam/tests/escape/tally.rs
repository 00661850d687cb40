//! Counts what was refused and what was not, by group, and says so.

use std::collections::BTreeMap;

use sandbar_redteam::EXCEPTIONS;

use crate::escape::rig::Mode;

/// The score of one suite in one mode.
pub(crate) struct Tally {
    mode: Mode,
    groups: BTreeMap<char, (usize, usize)>,
    hits: Vec<String>,
    /// Numbers of the escape list that were shown to work somewhere, and where.
    shown: BTreeMap<String, String>,
    controls: usize,
    exceptions: usize,
}

impl Tally {
    pub(crate) fn new(mode: Mode) -> Self {
        // The test runner leaves its line open.
        println!();
        Self { mode, groups: BTreeMap::new(), hits: Vec::new(), shown: BTreeMap::new(), controls: 0, exceptions: 0 }
    }

    /// One attack, held or not, with how its control went.
    pub(crate) fn record(&mut self, name: &str, held: Result<String, String>, control: &str) {
        let group = name.chars().next().unwrap_or('?');
        let (refused, all) = self.groups.entry(group).or_default();
        *all += 1;
        let mode = self.mode.name();
        match held {
            Ok(how) => {
                *refused += 1;
                println!("{mode} {name}: refused ({how}); control: {control}");
            }
            Err(how) => {
                println!("{mode} {name}: FAILED: {how}; control: {control}");
                self.hits.push(format!("{name}: {how}"));
            }
        }
    }

    pub(crate) fn proven(&mut self) {
        self.controls += 1;
    }

    pub(crate) fn excepted(&mut self) {
        self.exceptions += 1;
    }

    /// The same thing where nothing stands in its way, which must work; `detail` says where that is.
    pub(crate) fn control(&mut self, number: &str, works: bool, detail: &str) {
        println!("{} {number} control: {detail}: {works}", self.mode.name());
        if works {
            self.shown.insert(number.to_owned(), detail.to_owned());
        }
    }

    /// Something that must hold, with a control or an exception of its name, or of what comes before one of its dots.
    pub(crate) fn expect(&mut self, name: &str, held: bool, detail: impl Into<String>) {
        let ends = name.match_indices('.').map(|(at, _)| at).chain([name.len()]);
        let names: Vec<&str> = ends.map(|end| &name[..end]).collect();
        let listed = EXCEPTIONS.iter().find(|exception| names.contains(&exception.attack));
        let detail = detail.into();
        let shown = names.iter().rev().find_map(|name| self.shown.get(*name)).cloned();
        let (control, held) = if let Some(shown) = shown {
            self.controls += 1;
            (shown, held)
        } else if let Some(exception) = listed {
            self.exceptions += 1;
            (format!("none: {}", exception.reason), held)
        } else {
            ("MISSING".to_owned(), false)
        };
        self.record(name, if held { Ok(detail) } else { Err(detail) }, &control);
    }

    /// Prints the score; fails if anything was reached.
    pub(crate) fn finish(self, suite: &str) {
        let groups: Vec<String> =
            self.groups.iter().map(|(group, (held, all))| format!("{group} {held}/{all}")).collect();
        let refused: usize = self.groups.values().map(|(held, _)| held).sum();
        println!(
            "{} {suite}: {}; total {refused} attacks refused, {} reached; {} controls proven, {} exceptions",
            self.mode.name(),
            groups.join(", "),
            self.hits.len(),
            self.controls,
            self.exceptions
        );
        assert!(self.hits.is_empty(), "{} attacks got through:\n{}", self.hits.len(), self.hits.join("\n"));
    }
}
