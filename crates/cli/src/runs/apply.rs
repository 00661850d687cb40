//! `sandbar apply`: what a run changed, brought to the directory it was copied from: all of it, or nothing.

mod commit;
mod links;
mod moment;
mod obeyed;
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
    plan::{Force, Plan, Step},
};
use super::{
    beneath::{Beneath, as_path},
    changes::{Changes, Scope},
    index::Name,
    record::{RunRecord, RunStatus},
    show::{lossy, lost, many, tell},
    store::{RunDir, RunStore},
    unified::quoted,
};
use crate::{
    args::ApplyArgs,
    consent::{self, Consent, UNASKED},
    failure::Failure,
    git::{Judge, around},
    render::{Render, inert_line},
    signals::{self, Signals},
};

/// How many of those files are named in the question.
const ASKED: usize = 30;

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
    if record.status == RunStatus::Lost && !args.force && !args.dry_run {
        let failure = Failure::new(format!("{}; nothing was changed", lost(&run))).code("run_lost");
        return Err(failure.next("look at it with `sandbar diff`, and apply it with --force"));
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
    /// What tools run or obey by themselves, and which.
    obeyed: Vec<(Name, &'static str)>,
    consent: Consent,
    /// What could not be searched for repositories.
    note: Option<String>,
}

/// Whether files that tools obey by themselves may be written: asked at the terminal, if it takes asking.
fn may_write(args: &ApplyArgs, obeyed: &[(Name, &'static str)], root: &Path) -> Consent {
    if args.yes || obeyed.is_empty() {
        return Consent::Given;
    }
    if args.json {
        return Consent::Missing;
    }
    let lines = obeyed.iter().take(ASKED).map(|(path, who)| format!("  {}: {who}\n", inert_line(&quoted("", path))));
    let (lines, root) = (lines.collect::<String>(), inert_line(&root.display().to_string()));
    let more = match obeyed.len().saturating_sub(ASKED) {
        0 => String::new(),
        more => format!("  and {}, which --dry-run names\n", many(more, "more file")),
    };
    consent::ask(&format!("Tools run or obey these by themselves:\n{lines}{more}write them to {root}?"))
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
        let mut left = commit::left_behind(&target);
        let changed: Vec<&[u8]> = self.changes.all.iter().map(|change| change.path.0.as_slice()).collect();
        let judge = Judge::new(&target, root, &changed);
        let mut plan = Plan::make((&target, &judge), &copy, &self.changes.all, force);
        if let Some(repository) = around(root) {
            let what = format!("{} is a repository's own; nothing is applied to it", repository.display());
            return Err(Failure::new(what).code("repository").next("give another directory with --to DIR"));
        }
        let becoming = self.changes.new_repositories.iter();
        plan.refused.extend(becoming.map(|dir| (dir.clone(), "it would become a repository".to_owned())));
        let told = plan.steps.iter().filter(|step| step.is_told());
        let obeyed_by = |path: &[u8]| match judge.is_obeyed(path) {
            true => Some("git obeys it"),
            false => obeyed::by(path, &target, &copy),
        };
        let obeyed = told.filter_map(|step| Some((step.path().clone(), obeyed_by(&step.path().0)?)));
        let obeyed: Vec<_> = obeyed.collect();
        let is_wanted = plan.conflicts.is_empty() && !args.dry_run && !plan.steps.is_empty();
        let consent = if is_wanted { may_write(args, &obeyed, root) } else { Consent::Given };
        if is_wanted && consent == Consent::Given && self.moment.commit() {
            let order = commit::Order { run: run.id(), steps: &plan.steps };
            commit::all(&target, &copy, &order, self.moment.cancelled()).map_err(|failure| {
                let undone = failure.is_undone();
                let failure = Failure::new(format!("cannot apply to {}; {failure}", root.display()));
                if undone { failure.next("nothing was changed") } else { failure }
            })?;
        }
        let is_applied = is_wanted && consent == Consent::Given || plan.steps.is_empty() && plan.already > 0;
        if is_applied && !args.dry_run {
            commit::remove_left(&target, &mut left, run.id());
        }
        Ok(Applied { run: run.id().to_owned(), root: root.to_owned(), plan, left, obeyed, consent, note: judge.note })
    }
}

impl Applied {
    pub(super) fn status(&self, args: &ApplyArgs) -> &'static str {
        match &self.plan {
            plan if !plan.conflicts.is_empty() => "conflict",
            plan if plan.steps.is_empty() && plan.already > 0 => "already_applied",
            plan if plan.steps.is_empty() => "nothing",
            _ if args.dry_run => "dry_run",
            _ if self.consent == Consent::Missing => "needs_consent",
            _ if self.consent == Consent::Refused => "not_wanted",
            _ => "applied",
        }
    }

    fn code(&self) -> u8 {
        match self.consent {
            Consent::Given => u8::from(!self.plan.conflicts.is_empty() || !self.plan.refused.is_empty()),
            Consent::Missing | Consent::Refused => UNASKED,
        }
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
        self.note.iter().for_each(|note| render.note(note));
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
            "needs_consent" => {
                for (path, who) in &self.obeyed {
                    render.note(&format!("{}: {who}", quoted("", path)));
                }
                let what =
                    "tools run or obey these files by themselves; nothing was changed; read them with `sandbar diff`";
                render.note(&format!("{what}, and add --yes"));
                String::new()
            }
            "not_wanted" => {
                render.note(&format!("nothing was changed in {root}"));
                String::new()
            }
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
        let obeyed = |path: &Name| self.obeyed.iter().find(|(obeyed, _)| obeyed == path);
        let mark = |path: &Name| obeyed(path).map(|(_, who)| format!("  ({who})")).unwrap_or_default();
        let line = |step: &Step| format!("{} {}{}\n", step.letter(), quoted("", step.path()), mark(step.path()));
        let lines = told().take(most).map(line);
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
            "obeyed": self.obeyed.iter().map(|(path, who)| json!({"path": lossy(path), "by": who})).collect::<Vec<_>>(),
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
        let plan = Plan::make((&target, &Judge::default()), &copy, &changes.all, Force::Refuse);
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
        let plan = Plan::make((&target, &Judge::default()), &copy, &changes.all, Force::Refuse);
        meddle(&cancelled);
        commit::all(&target, &copy, &commit::Order { run: "x", steps: &plan.steps }, &cancelled)
            .unwrap_err()
            .to_string()
    }
}
