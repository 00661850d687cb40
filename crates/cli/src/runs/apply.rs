//! `sandbar apply`: what a run changed, brought to the directory it was copied from: all of it, or nothing.

mod commit;
mod links;
mod moment;
mod plan;
mod undo;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::{Value, json};

use self::{
    moment::Moment,
    plan::{Force, Plan},
};
use super::{
    beneath::{Beneath, as_path},
    changes::{Changes, Scope},
    index::Name,
    record::RunRecord,
    show::{lossy, many, tell},
    store::{RunDir, RunStore},
    unified::quoted,
};
use crate::{
    args::ApplyArgs,
    failure::Failure,
    render::{Render, inert_line},
    signals::{self, Signals},
};

/// How many changes are named that were made.
const NAMED: usize = 200;

/// Until files are being changed, a signal ends it at once; from then on it is taken back first.
pub(crate) async fn run(args: ApplyArgs, render: &Render) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let (moment, given) = (Arc::new(Moment::default()), args.clone());
    let shared = moment.clone();
    let mut work = tokio::task::spawn_blocking(move || attempt(&given, &shared));
    let mut heard = None;
    let ended = loop {
        tokio::select! {
            ended = &mut work => break ended,
            signal = signals.next() => {
                if moment.give_up() {
                    return Ok(signals::code(signal));
                }
                heard = Some(signal);
            }
        }
    };
    let ended = ended.unwrap_or_else(|error| Err(Failure::new("cannot apply the changes").because(error)));
    match (ended, heard) {
        (Ok((applied, changes)), _) => applied.tell(&args, &changes, render),
        (Err(failure), Some(signal)) => {
            render.failure(&failure);
            Ok(signals::code(signal))
        }
        (Err(failure), None) => Err(failure),
    }
}

fn attempt(args: &ApplyArgs, moment: &Moment) -> Result<(Applied, Changes), Failure> {
    let (run, record) = RunStore::open()?.find(&args.run)?;
    if !run.seize() {
        let failure = Failure::new(format!("the run {} is still running", run.id())).code("run_busy");
        return Err(failure.next("end it first, or wait"));
    }
    let changes = run.changes(if args.all { Scope::All } else { Scope::Wanted })?;
    if let Some((path, reason)) = changes.unreadable.first() {
        let what = format!("cannot read {} of the working copy in {}", quoted("", path), run.workspace().display());
        return Err(Failure::new(format!("{what}; {reason}")).next("allow yourself to read it, and try again"));
    }
    let job = Job { args, run: &run, changes: &changes, moment };
    let applied = job.begin(&destination(args, &record)?)?;
    Ok((applied, changes))
}

/// Where the changes go.
fn destination(args: &ApplyArgs, record: &RunRecord) -> Result<PathBuf, Failure> {
    let given = match (&args.to, &record.source) {
        (Some(dir), _) => dir.clone(),
        (None, Some(source)) => as_path(&source.0).to_owned(),
        (None, None) => return Err(Failure::new("it is not known where these files come from").next("give --to DIR")),
    };
    let failed = |error| Failure::new(format!("cannot apply to {}", given.display())).because(error);
    match &args.to {
        // Whoever names a link means what it leads to.
        Some(_) => fs::canonicalize(&given).map_err(failed),
        None => Ok(given),
    }
}

/// What became of it.
pub(super) struct Applied {
    run: String,
    root: PathBuf,
    plan: Plan,
    /// What another one left there that was killed.
    left: Vec<Name>,
}

/// Something to be applied.
pub(super) struct Job<'a> {
    args: &'a ApplyArgs,
    run: &'a RunDir,
    changes: &'a Changes,
    moment: &'a Moment,
}

impl Job<'_> {
    /// Applies the changes, as far as they are wanted and can be.
    fn begin(&self, root: &Path) -> Result<Applied, Failure> {
        let Self { args, run, .. } = self;
        let failed = |error| {
            let failure = Failure::new(format!("cannot apply to {}", root.display())).because(error);
            failure.next("give another directory with --to DIR")
        };
        let target = Beneath::open(root).map_err(failed)?;
        let failed = |error| Failure::new(format!("cannot read {}", run.workspace().display())).because(error);
        let copy = Beneath::open(&run.workspace()).map_err(failed)?;
        let force = if args.force { Force::Overwrite } else { Force::Refuse };
        let left = commit::left_behind(&target);
        let plan = Plan::make(&target, &copy, &self.changes.all, force);
        if plan.conflicts.is_empty() && !args.dry_run && !plan.steps.is_empty() && self.moment.commit() {
            commit::all(&target, &copy, &plan.steps, self.moment.cancelled()).map_err(|failure| {
                let undone = failure.is_undone();
                let failure = Failure::new(format!("cannot apply to {}; {failure}", root.display()));
                if undone { failure.next("nothing was changed") } else { failure }
            })?;
        }
        Ok(Applied { run: run.id().to_owned(), root: root.to_owned(), plan, left })
    }
}

impl Applied {
    pub(super) fn status(&self, args: &ApplyArgs) -> &'static str {
        match &self.plan {
            plan if !plan.conflicts.is_empty() => "conflict",
            plan if plan.steps.is_empty() && plan.already > 0 => "already_applied",
            plan if plan.steps.is_empty() => "nothing",
            _ if args.dry_run => "dry_run",
            _ => "applied",
        }
    }

    fn code(&self) -> u8 {
        u8::from(!self.plan.conflicts.is_empty() || !self.plan.refused.is_empty())
    }

    fn tell(&self, args: &ApplyArgs, changes: &Changes, render: &Render) -> Result<u8, Failure> {
        let (status, plan) = (self.status(args), &self.plan);
        if args.json {
            let code = render.result(format!("{}\n", self.document(status, changes)).as_bytes())?;
            return Ok(code.max(self.code()));
        }
        for name in &self.left {
            let (name, list) = (quoted("", name), commit::LIST);
            render.note(&format!(
                "{name} was left by an apply that was killed: it has what was replaced or removed, or not put in place yet; {list} in it \
                 says whose each file is; take what you miss, and remove it"
            ));
        }
        for (path, reason) in &plan.refused {
            render.note(&format!("refused {}: {reason}", quoted("", path)));
        }
        let root = inert_line(&self.root.display().to_string());
        let count = many(plan.steps.iter().filter(|step| step.is_told()).count(), "change");
        let text = match status {
            "conflict" => {
                for (path, reason) in &plan.conflicts {
                    render.note(&format!("conflict in {}: {reason}", quoted("", path)));
                }
                let what = format!("{}; nothing was changed in {root}", many(plan.conflicts.len(), "conflict"));
                let next = "settle them by hand, or overwrite what can be with --force";
                return Err(Failure::new(what).code("apply_conflict").next(next));
            }
            "already_applied" => format!("already applied to {root}\n"),
            "nothing" => String::new(),
            "dry_run" => {
                format!("{}would apply {count} to {root}\n", self.steps(usize::MAX))
            }
            _ => format!("{}applied {count} to {root}\n", self.steps(NAMED)),
        };
        let code = render.result(text.as_bytes())?;
        tell(changes, render);
        Ok(code.max(self.code()))
    }

    /// The changes as git would name them, one on each line, as many as that.
    fn steps(&self, most: usize) -> String {
        let told = || self.plan.steps.iter().filter(|step| step.is_told());
        let lines = told().take(most).map(|step| format!("{} {}\n", step.letter(), quoted("", step.path())));
        let mut text: String = lines.collect();
        match told().count().saturating_sub(most) {
            0 => {}
            more => text.push_str(&format!("and {}\n", many(more, "more change"))),
        }
        text
    }

    fn document(&self, status: &str, changes: &Changes) -> Value {
        let named = |list: &[(Name, String)]| -> Vec<Value> {
            list.iter().map(|(path, reason)| json!({"path": lossy(path), "reason": reason})).collect()
        };
        let told = self.plan.steps.iter().filter(|step| step.is_told());
        let steps: Vec<Value> =
            told.map(|step| json!({"path": lossy(step.path()), "change": step.letter().to_string()})).collect();
        json!({
            "id": self.run,
            "to": self.root.to_string_lossy(),
            "status": status,
            "changes": steps,
            "already_applied": self.plan.already,
            "conflicts": named(&self.plan.conflicts),
            "refused": named(&self.plan.refused),
            "left_behind": self.left.iter().map(lossy).collect::<Vec<_>>(),
            "git_files_changed": changes.in_git,
            "ignored": changes.ignored,
        })
    }
}

#[cfg(test)]
impl Applied {
    /// Applies the changes of a run, as the command does.
    pub(super) fn begin(args: &ApplyArgs, run: &RunDir, changes: &Changes) -> Result<Self, Failure> {
        let root = destination(args, &run.record().unwrap())?;
        Job { args, run, changes, moment: &Moment::default() }.begin(&root)
    }

    /// What is said against single paths: conflicts, and what is refused.
    pub(super) fn complaints(&self) -> Vec<(Name, String)> {
        [self.plan.conflicts.as_slice(), &self.plan.refused].concat()
    }

    /// What the list of slots says of an apply that is never finished.
    pub(super) fn abandoned(run: &RunDir, changes: &Changes, root: &Path) -> Vec<String> {
        let (target, copy) = (Beneath::open(root).unwrap(), Beneath::open(&run.workspace()).unwrap());
        let plan = Plan::make(&target, &copy, &changes.all, Force::Refuse);
        let list: Vec<Value> = serde_json::from_slice(&commit::listed(&target, &copy, &plan.steps)).unwrap();
        let word = |slot: &Value, name: &str| slot[name].as_str().unwrap().to_owned();
        let line = |slot| ["slot", "change", "path"].map(|name| word(slot, name)).join(" ");
        list.iter().map(line).collect()
    }

    /// Applies changes while somebody else is at the same files. What is said then.
    pub(super) fn meddled(
        run: &RunDir,
        changes: &Changes,
        root: &Path,
        meddle: impl Fn(&std::sync::atomic::AtomicBool),
    ) -> String {
        let cancelled = std::sync::atomic::AtomicBool::new(false);
        let (target, copy) = (Beneath::open(root).unwrap(), Beneath::open(&run.workspace()).unwrap());
        let plan = Plan::make(&target, &copy, &changes.all, Force::Refuse);
        meddle(&cancelled);
        commit::all(&target, &copy, &plan.steps, &cancelled).unwrap_err().to_string()
    }
}
