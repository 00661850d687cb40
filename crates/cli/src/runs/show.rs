//! `sandbar diff`: the changes of a run, for a terminal, for git and for programs.

use sandbar_runs::{Change, Changes, Diff, IndexEntry, PathBytes, RunDir, RunRecord, RunStatus, Scope, quoted};
use serde_json::{Value, json};

use crate::{
    args::DiffArgs,
    failure::Failure,
    render::{Render, Style, inert, inert_line},
};

/// Maximum lines and bytes of the diff at the end of a run. For a longer diff, only the numbers of changed lines are shown.
const BRIEF: usize = 200;
const BRIEF_BYTES: usize = 64 << 10;

/// Maximum number of files whose changed lines `--stat` counts.
const COUNTED: usize = 2_000;

/// Maximum width of the column of names.
const NAME: usize = 100;

/// Maximum number of names in a note.
const NAMED: usize = 3;

/// Maximum width of the bar in a summary.
const BAR: usize = 40;

pub(crate) fn run(args: &DiffArgs, render: &Render) -> Result<u8, Failure> {
    let (run, record) = super::store()?.find(&args.run)?;
    let changes = run.changes(if args.all { Scope::All } else { Scope::NotIgnored })?;
    let diff = Rendered { diff: run.diff()?, render };
    let code = if args.json {
        render.result(format!("{}\n", diff.document(&record, &changes)).as_bytes())?
    } else if args.name_only {
        let names: String = changes.shown().map(|change| format!("{}\n", quoted("", &change.path))).collect();
        render.result(names.as_bytes())?
    } else if args.stat {
        render.result(diff.stat(&changes, COUNTED).as_bytes())?
    } else {
        diff.print(&changes)?
    };
    if record.status == RunStatus::Killed && !args.json {
        render.note(&run.killed_note());
    }
    if code == 0 && !args.json {
        tell(&changes, render);
    }
    Ok(code)
}

/// The summary that is shown at the end of a run; without a diff if there is no terminal to show it on.
pub(crate) fn summary(run: &RunDir, reader: Option<&Render>) -> Result<Summary, Failure> {
    let changes = run.changes(Scope::NotIgnored)?;
    let text = match reader {
        Some(render) => {
            let diff = Rendered { diff: run.diff()?, render };
            diff.brief(&changes).unwrap_or_else(|| diff.stat(&changes, BRIEF))
        }
        None => String::new(),
    };
    Ok(Summary { text, is_empty: changes.shown().next().is_none(), notes: notes(&changes) })
}

/// The changes of a run, as text.
pub(crate) struct Summary {
    /// The diff, or only the number of changed lines per file if the diff is long. Empty without a terminal.
    pub(crate) text: String,
    pub(crate) is_empty: bool,
    pub(crate) notes: Vec<String>,
}

/// Prints notes about what the diff does not show.
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
    let names = |names: &mut dyn Iterator<Item = &PathBytes>| {
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

/// The diff of a run for a terminal, or for programs.
struct Rendered<'a> {
    diff: Diff,
    render: &'a Render,
}

impl Rendered<'_> {
    /// Prints all changes.
    fn print(&self, changes: &Changes) -> Result<u8, Failure> {
        let render = self.render;
        for change in changes.shown() {
            let code = match self.diff.patch(change) {
                Ok(patch) if render.is_watched() => render.result(painted(&patch.text, render).as_bytes())?,
                Ok(patch) => render.result(&patch.text)?,
                Err(error) => {
                    render.note(&Failure::from(error).to_string());
                    0
                }
            };
            if code != 0 {
                return Ok(code);
            }
        }
        Ok(0)
    }

    /// The whole diff if it is short; `None` if it is long, or takes too long.
    fn brief(&self, changes: &Changes) -> Option<String> {
        let mut text = String::new();
        let (mut lines, mut bytes) = (0, 0);
        for change in changes.shown() {
            if self.diff.is_late() {
                return None;
            }
            let Ok(patch) = self.diff.patch(change) else { continue };
            lines += patch.text.iter().filter(|byte| **byte == b'\n').count();
            bytes += patch.text.len();
            if lines > BRIEF || bytes > BRIEF_BYTES {
                return None;
            }
            text.push_str(&painted(&patch.text, self.render));
        }
        Some(text)
    }

    /// Number of changed lines; `None` for a binary file.
    fn amount(&self, change: &Change) -> Option<Amount> {
        let patch = self.diff.patch(change).ok().filter(|patch| !patch.is_opaque)?;
        Some(Amount { insertions: patch.insertions, deletions: patch.deletions })
    }

    /// The number of changed lines per file and in all, for at most `most_files` files. The rest is one number, also of files
    /// that are reached too late.
    fn stat(&self, changes: &Changes, most_files: usize) -> String {
        let files = changes.shown().count();
        let render = self.render;
        let in_time = |_: &&Change| !self.diff.is_late();
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
        let unreadable =
            changes.unreadable.iter().map(|(path, reason)| json!({"path": path.to_lossy(), "reason": reason}));
        json!({
            "id": record.id,
            "source": record.source.as_ref().map(PathBytes::to_lossy),
            "changes": shown,
            "git_files_changed": changes.in_git,
            "new_repositories": changes.new_repositories.iter().map(PathBytes::to_lossy).collect::<Vec<_>>(),
            "left_out": {
                "ignored": changes.ignored,
                "special": changes.special.iter().map(PathBytes::to_lossy).collect::<Vec<_>>(),
                "unreadable": unreadable.collect::<Vec<_>>(),
            },
        })
    }

    fn change_document(&self, change: &Change) -> Value {
        let mode = |entry: &Option<IndexEntry>| {
            entry.as_ref().and_then(IndexEntry::git_mode).map(|mode| format!("{mode:06o}"))
        };
        let lines = self.amount(change);
        json!({
            "path": change.path.to_lossy(),
            "change": change.verb(),
            "old_mode": mode(&change.old),
            "new_mode": mode(&change.new),
            "binary": lines.is_none(),
            "insertions": lines.map(|amount| amount.insertions),
            "deletions": lines.map(|amount| amount.deletions),
        })
    }
}

/// Numbers of changed lines.
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

/// A patch for a terminal: in colour, and without control characters.
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

#[cfg(test)]
mod tests {
    use std::fs;

    use sandbar_runs::{CopyOptions, RunStore};

    use super::*;

    #[test]
    fn the_end_of_a_run_shows_a_short_diff_and_counts_a_long_one() {
        let render = Render::default().uncoloured();
        let shown = |files: &[(&str, String)]| {
            let temp = tempfile::tempdir().unwrap();
            let source = temp.path().join("source");
            fs::create_dir(&source).unwrap();
            fs::write(source.join("a"), "x\n").unwrap();
            let run = RunStore::at(temp.path().join("runs")).unwrap().begin("do it").unwrap();
            run.copy_in(&source, &CopyOptions::default()).unwrap();
            for (path, content) in files {
                fs::write(run.workspace().join(path), content).unwrap();
            }
            let unread = summary(&run, None).unwrap();
            assert!(unread.text.is_empty() && !unread.is_empty);
            summary(&run, Some(&render)).unwrap().text
        };
        assert!(shown(&[("a", "y\n".to_owned())]).ends_with("@@ -1 +1 @@\n-x\n+y\n"));
        let many = shown(&[("a", "y\n".repeat(300))]);
        assert!(
            many.starts_with(" a | 301 +") && many.ends_with(" 1 file changed, 300 insertions(+), 1 deletion(-)\n")
        );
        // One line is long too if it is very long.
        let wide = shown(&[("a", "y".repeat(60 << 10)), ("b", "y".repeat(60 << 10))]);
        assert_eq!(wide, " a |   2 +-\n b |   1 +\n 2 files changed, 2 insertions(+), 1 deletion(-)\n");
        let names: Vec<String> = (0..250).map(|at| format!("f{at:03}")).collect();
        let files: Vec<(&str, String)> = names.iter().map(|name| (name.as_str(), "y\n".to_owned())).collect();
        let crowd = shown(&files);
        assert_eq!(crowd.lines().count(), 202, "{crowd}");
        assert!(crowd.contains("\n and 50 more files, whose lines are not counted\n 250 files changed"), "{crowd}");
    }
}
