//! `sandbar diff`: what a run changed, for people, for git and for programs.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    changes::{Change, Changes, Scope},
    contents::Sides,
    index::{Entry, Name},
    record::{RunRecord, RunStatus},
    store::{RunDir, RunStore},
    unified::{Patch, patch, quoted},
};
use crate::{
    args::DiffArgs,
    failure::Failure,
    render::{Render, Style, inert, inert_line},
};

/// How long the lines of one file are compared at most, and those of all of them.
const ONE: Duration = Duration::from_secs(2);
const ALL: Duration = Duration::from_secs(20);

/// The longest diff that is shown at the end of a run, in lines and in bytes; of a longer one only how much changed in
/// as many files.
const BRIEF: usize = 200;
const BRIEF_BYTES: usize = 64 << 10;

/// In how many files lines are counted for a summary.
const COUNTED: usize = 2_000;

/// Longer names do not move the amounts of the others.
const NAME: usize = 100;

/// How many names of one kind are told.
const NAMED: usize = 3;

/// How wide the bar of a summary is at most.
const BAR: usize = 40;

pub(crate) fn run(args: &DiffArgs, render: &Render) -> Result<u8, Failure> {
    let (run, record) = RunStore::open()?.find(&args.run)?;
    let changes = run.changes(if args.all { Scope::All } else { Scope::Wanted })?;
    let diff = Diff::open(&run, &record)?;
    let code = if args.json {
        render.result(format!("{}\n", diff.document(&record, &changes)).as_bytes())?
    } else if args.name_only {
        let names: String = changes.shown().map(|change| format!("{}\n", quoted("", &change.path))).collect();
        render.result(names.as_bytes())?
    } else if args.stat {
        render.result(diff.stat(&changes, render, COUNTED).as_bytes())?
    } else {
        diff.print(&changes, render)?
    };
    if record.status == RunStatus::Lost && !args.json {
        render.note(&lost(&run));
    }
    if code == 0 && !args.json {
        tell(&changes, render);
    }
    Ok(code)
}

/// What is said about a run that was killed.
pub(super) fn lost(run: &RunDir) -> String {
    format!("the run {} was killed before it ended, and what it was writing may be half written", run.id())
}

/// What a run changed, in as many lines as somebody wants to read at its end; in none if nobody reads them.
pub(crate) fn summary(run: &RunDir, record: &RunRecord, reader: Option<&Render>) -> Result<Summary, Failure> {
    let changes = run.changes(Scope::Wanted)?;
    let text = match reader {
        Some(render) => {
            let diff = Diff::open(run, record)?;
            diff.brief(&changes, render).unwrap_or_else(|| diff.stat(&changes, render, BRIEF))
        }
        None => String::new(),
    };
    Ok(Summary { text, is_empty: changes.shown().next().is_none(), notes: notes(&changes) })
}

/// What a run changed.
pub(crate) struct Summary {
    /// The diff, or only how much changed where if it is long. Empty if nobody reads it.
    pub(crate) text: String,
    pub(crate) is_empty: bool,
    pub(crate) notes: Vec<String>,
}

/// What a diff does not show.
pub(super) fn tell(changes: &Changes, render: &Render) {
    if changes.shown().next().is_none() {
        render.note("no changes");
    }
    for note in notes(changes) {
        render.note(&note);
    }
}

fn notes(changes: &Changes) -> Vec<String> {
    let mut notes = Vec::new();
    if changes.ignored > 0 {
        notes.push(format!(
            "left out {} that the copy's ignore rules name; --all includes them",
            many(changes.ignored, "new path")
        ));
    }
    if changes.in_git > 0 {
        let files = many(changes.in_git, "file");
        notes.push(format!("{files} of repositories changed; that is neither shown nor applied"));
    }
    if let Some(first) = changes.new_repositories.first() {
        let (count, first) = (changes.new_repositories.len(), quoted("", first));
        let what = if count == 1 { "1 directory".to_owned() } else { format!("{count} directories") };
        notes.push(format!(
            "{what} became a repository by what was put there, {first} first; its HEAD, objects and refs are left out"
        ));
    }
    let names = |names: &mut dyn Iterator<Item = &Name>| {
        names.take(NAMED).map(|name| quoted("", name)).collect::<Vec<_>>().join(", ")
    };
    if !changes.special.is_empty() {
        let first = names(&mut changes.special.iter());
        let what = many(changes.special.len(), "pipe, socket or device");
        notes.push(format!("left out {what}, among them {first}"));
    }
    if let Some((_, why)) = changes.unreadable.first() {
        let first = names(&mut changes.unreadable.iter().map(|(name, _)| name));
        notes.push(format!("cannot read {}, among them {first}: {why}", many(changes.unreadable.len(), "path")));
    }
    notes
}

pub(super) fn many(count: usize, what: &str) -> String {
    match what {
        _ if count == 1 => format!("1 {what}"),
        "pipe, socket or device" => format!("{count} pipes, sockets or devices"),
        _ => format!("{count} {what}s"),
    }
}

/// A run's changes being shown.
pub(crate) struct Diff {
    sides: Sides,
    until: Instant,
}

impl Diff {
    pub(crate) fn open(run: &RunDir, record: &RunRecord) -> Result<Self, Failure> {
        let failed = |error| Failure::new(format!("cannot read {}", run.workspace().display())).because(error);
        let sides = Sides::open(run, record.source.as_ref()).map_err(failed)?;
        Ok(Self { sides, until: Instant::now() + ALL })
    }

    /// One change as git would write it.
    pub(super) fn patch(&self, change: &Change) -> Result<Patch, String> {
        let old = self.sides.before(&change.path, change.old.as_ref());
        let new = self.sides.now(&change.path, change.new.as_ref()).map_err(|error| error.to_string())?;
        Ok(patch(change, &old, &new, self.until.min(Instant::now() + ONE)))
    }

    /// All of them, one after the other.
    pub(crate) fn print(&self, changes: &Changes, render: &Render) -> Result<u8, Failure> {
        for change in changes.shown() {
            let code = match self.patch(change) {
                Ok(patch) if render.is_watched() => render.result(painted(&patch.text, render).as_bytes())?,
                Ok(patch) => render.result(&patch.text)?,
                Err(reason) => {
                    render.note(&format!("cannot show {}: {reason}", quoted("", &change.path)));
                    0
                }
            };
            if code != 0 {
                return Ok(code);
            }
        }
        Ok(0)
    }

    /// The whole diff, if it is short and soon known.
    fn brief(&self, changes: &Changes, render: &Render) -> Option<String> {
        let mut text = String::new();
        let (mut lines, mut bytes) = (0, 0);
        for change in changes.shown() {
            if Instant::now() > self.until {
                return None;
            }
            let Ok(patch) = self.patch(change) else { continue };
            lines += patch.text.iter().filter(|byte| **byte == b'\n').count();
            bytes += patch.text.len();
            if lines > BRIEF || bytes > BRIEF_BYTES {
                return None;
            }
            text.push_str(&painted(&patch.text, render));
        }
        Some(text)
    }

    /// How many lines changed, if lines can be compared. The text is not kept.
    fn amount(&self, change: &Change) -> Option<Amount> {
        let patch = self.patch(change).ok().filter(|patch| !patch.is_opaque)?;
        Some(Amount { insertions: patch.insertions, deletions: patch.deletions })
    }

    /// How much changed where, and in all. After so many files, or when it takes too long, the rest is only a number.
    pub(crate) fn stat(&self, changes: &Changes, render: &Render, most_files: usize) -> String {
        let files = changes.shown().count();
        let in_time = |_: &&Change| Instant::now() < self.until;
        let rows: Vec<(String, Option<Amount>)> = changes
            .shown()
            .take(most_files)
            .take_while(in_time)
            .map(|change| (inert_line(&quoted("", &change.path)), self.amount(change)))
            .collect();
        if files == 0 {
            return String::new();
        }
        let wide = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).min(NAME);
        let most = rows.iter().filter_map(|(_, amount)| amount.as_ref()).map(Amount::total).max().unwrap_or(0);
        let digits = most.to_string().len().max(3);
        let mut text = String::new();
        let mut all = Amount::default();
        for (name, amount) in &rows {
            let amount = match amount {
                Some(amount) => {
                    all.insertions += amount.insertions;
                    all.deletions += amount.deletions;
                    let scale = |count: usize| if most <= BAR { count } else { (count * BAR).div_ceil(most) };
                    let plus = render.paint(Style::Good, &"+".repeat(scale(amount.insertions)));
                    let minus = render.paint(Style::Bad, &"-".repeat(scale(amount.deletions)));
                    format!("{:>digits$} {plus}{minus}", amount.total())
                }
                None => format!("{:>digits$}", "Bin"),
            };
            text.push_str(&format!(" {name:wide$} | {}\n", amount.trim_end()));
        }
        if rows.len() < files {
            text.push_str(&format!(" and {}, whose lines are not counted\n", many(files - rows.len(), "more file")));
        }
        text.push_str(&format!(" {}\n", sum(files, &all)));
        text
    }

    fn document(&self, record: &RunRecord, changes: &Changes) -> Value {
        let shown: Vec<Value> = changes.shown().map(|change| self.change_document(change)).collect();
        let unreadable = changes.unreadable.iter().map(|(path, reason)| json!({"path": lossy(path), "reason": reason}));
        json!({
            "id": record.id,
            "source": record.source.as_ref().map(lossy),
            "changes": shown,
            "git_files_changed": changes.in_git,
            "new_repositories": changes.new_repositories.iter().map(lossy).collect::<Vec<_>>(),
            "left_out": {
                "ignored": changes.ignored,
                "special": changes.special.iter().map(lossy).collect::<Vec<_>>(),
                "unreadable": unreadable.collect::<Vec<_>>(),
            },
        })
    }

    fn change_document(&self, change: &Change) -> Value {
        let mode = |entry: &Option<Entry>| entry.as_ref().and_then(Entry::git_mode).map(|mode| format!("{mode:06o}"));
        let lines = self.amount(change);
        json!({
            "path": lossy(&change.path),
            "change": change.verb(),
            "old_mode": mode(&change.old),
            "new_mode": mode(&change.new),
            "binary": lines.is_none(),
            "insertions": lines.map(|amount| amount.insertions),
            "deletions": lines.map(|amount| amount.deletions),
        })
    }
}

/// How many lines changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    insertions: usize,
    deletions: usize,
}

impl Amount {
    fn total(&self) -> usize {
        self.insertions + self.deletions
    }
}

fn sum(files: usize, all: &Amount) -> String {
    let Amount { insertions, deletions } = *all;
    let mut text = format!("{} changed", many(files, "file"));
    if insertions > 0 {
        text.push_str(&format!(", {}(+)", many(insertions, "insertion")));
    }
    if deletions > 0 {
        text.push_str(&format!(", {}(-)", many(deletions, "deletion")));
    }
    text
}

pub(super) fn lossy(name: &Name) -> String {
    String::from_utf8_lossy(&name.0).into_owned()
}

/// A patch for somebody's eyes: in colour, and without anything that could give orders to a terminal.
fn painted(text: &[u8], render: &Render) -> String {
    let mut shown = String::with_capacity(text.len() * 2);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line));
        let line = line.split('\t').map(inert).collect::<Vec<_>>().join("\t");
        let line = match line.as_bytes().first() {
            Some(b'+') if !line.starts_with("+++ ") => render.paint(Style::Good, &line),
            Some(b'-') if !line.starts_with("--- ") => render.paint(Style::Bad, &line),
            Some(b'@' | b'\\') => render.paint(Style::Faint, &line),
            Some(b' ') | None => line,
            Some(_) => render.paint(Style::Strong, &line),
        };
        shown.push_str(&line);
        shown.push('\n');
    }
    shown
}
