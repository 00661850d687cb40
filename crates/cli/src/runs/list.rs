//! `sandbar runs ls` and `rm`: lists and removes runs.

use sandbar_runs::{DamagedRun, PathBytes, RunRecord, RunStatus, RunStore};
use serde_json::{Value, json};

use crate::{
    args::{RunsLsArgs, RunsRmArgs},
    failure::Failure,
    render::{Render, Style, inert_line},
    view::units::age,
};

/// Maximum number of characters of a prompt, and of a directory, in the table.
const PROMPT: usize = 60;
const SOURCE: usize = 40;

pub(super) fn list(args: &RunsLsArgs, store: &RunStore, render: &Render) -> Result<u8, Failure> {
    let (sound, damaged) = store.list()?;
    if args.json {
        let broken = damaged.iter().map(|run| json!({"id": run.id, "status": "damaged", "reason": run.reason}));
        let runs: Vec<Value> = sound.iter().map(document).chain(broken).collect();
        return render.result(format!("{}\n", json!({"runs": runs})).as_bytes());
    }
    let printed = render.result(table(&sound, &damaged, render).as_bytes())?;
    for DamagedRun { id, reason, .. } in &damaged {
        render.note(&format!("the record of {id} is damaged: {reason}; `sandbar runs rm {id}` removes it"));
    }
    Ok(printed)
}

fn document(record: &RunRecord) -> Value {
    json!({
        "id": record.id,
        "created_at": record.created_at,
        "status": record.status.name(),
        "source": record.source.as_ref().map(PathBytes::to_lossy),
        "prompt": record.prompt,
        "session_id": record.session_id,
        "final_output": record.final_output,
        "usage": record.usage,
    })
}

fn table(sound: &[RunRecord], damaged: &[DamagedRun], render: &Render) -> String {
    let source =
        |record: &RunRecord| record.source.as_ref().map_or("-".to_owned(), |path| last(&inert_line(&path.to_lossy())));
    let wide = sound.iter().map(|record| source(record).chars().count()).max().unwrap_or(0).max(6);
    let head = format!("{:36}  {:>4}  {:11}  {:wide$}  PROMPT", "ID", "AGE", "STATUS", "SOURCE");
    let mut text = render.paint(Style::Faint, &head);
    text.push('\n');
    for record in sound {
        let status = render.paint(style(record.status), &format!("{:11}", record.status.name()));
        let (id, age) = (inert_line(&record.id), age(record.age().as_secs().cast_signed()));
        text.push_str(&format!("{id:36}  {age:>4}  {status}  {:wide$}  {}\n", source(record), first(&record.prompt)));
    }
    for DamagedRun { id, .. } in damaged {
        let status = render.paint(Style::Bad, &format!("{:11}", "damaged"));
        text.push_str(&format!("{id:36}  {:>4}  {status}  {:wide$}  -\n", "-", "-"));
    }
    text
}

fn style(status: RunStatus) -> Style {
    match status {
        RunStatus::Completed => Style::Good,
        RunStatus::Running => Style::Strong,
        RunStatus::Cancelled => Style::Faint,
        RunStatus::Failed => Style::Bad,
        _ => Style::Doubtful,
    }
}

/// The beginning of a prompt, on one line.
fn first(prompt: &str) -> String {
    let line: String =
        prompt.split_whitespace().flat_map(|word| [word, " "]).collect::<String>().chars().take(PROMPT + 1).collect();
    let line = inert_line(line.trim_end());
    if line.chars().count() < PROMPT { line } else { line.chars().take(PROMPT - 1).chain(['…']).collect() }
}

/// The end of a path.
fn last(path: &str) -> String {
    let length = path.chars().count();
    if length <= SOURCE {
        path.to_owned()
    } else {
        ['…'].into_iter().chain(path.chars().skip(length + 1 - SOURCE)).collect()
    }
}

pub(super) fn remove(args: &RunsRmArgs, store: &RunStore, render: &Render) -> Result<u8, Failure> {
    store.sweep();
    let (mut wanted, mut failures) = (Vec::new(), Vec::new());
    if args.runs.is_empty() {
        let (sound, damaged) = store.list()?;
        let is_old = |record: &&RunRecord| args.older_than.is_none_or(|limit| record.age() > limit);
        let idle = sound.iter().filter(|record| record.status != RunStatus::Running).filter(is_old);
        wanted.extend(idle.map(|record| record.id.clone()));
        wanted.extend(damaged.into_iter().map(|run| run.id).filter(|_| args.all));
    }
    for given in &args.runs {
        match store.find_id(given) {
            Ok(id) if wanted.contains(&id) => {}
            Ok(id) => wanted.push(id),
            Err(error) => failures.push(Failure::from(error)),
        }
    }
    let mut removed = Vec::new();
    for id in wanted {
        match store.remove(&id) {
            Ok(()) => removed.push(id),
            Err(error) => failures.push(Failure::from(error)),
        }
    }
    if args.json && (failures.is_empty() || !removed.is_empty()) {
        render.result(format!("{}\n", json!({"removed": removed})).as_bytes())?;
    }
    let Some(last) = failures.pop() else { return Ok(0) };
    for failure in &failures {
        if args.json { render.failure_document(failure) } else { render.failure(failure) }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_where_it_hurts_least() {
        assert_eq!(first("fix\n  the\tbug "), "fix the bug");
        assert_eq!(first(&"é".repeat(500)).chars().count(), PROMPT);
        assert_eq!(first("\x1b[2J"), "?[2J");
        assert_eq!(last("/a"), "/a");
        let cut = last(&format!("/{}/end", "x".repeat(100)));
        assert!(cut.chars().count() == SOURCE && cut.starts_with('…') && cut.ends_with("/end"), "{cut}");
    }
}
