//! `sandbar apply`: brings the changes of a run to the directory it was copied from: all of them, or nothing.

mod moment;

use std::sync::Arc;

use sandbar_runs::{
    ApplyOptions, ApplyPlan, ApplyStep, Changes, Overwrite, PathBytes, STAGED_FILES_LIST, Scope, quoted,
};
use serde_json::{Value, json};

use self::moment::Moment;
use super::show::{many, tell};
use crate::{
    args::ApplyArgs,
    failure::Failure,
    render::{Render, inert_line},
    streams::{
        consent::{self, Consent, UNASKED},
        signals::{self, Signals},
    },
};

/// Maximum number of files in a question.
const ASKED: usize = 30;

/// Maximum number of applied changes that are listed.
const NAMED: usize = 200;

/// Before files are changed, a signal ends the command at once; during the commit it undoes the changes first.
pub(crate) async fn run(args: ApplyArgs, render: &Render) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let (moment, given) = (Arc::new(Moment::default()), args.clone());
    let shared = moment.clone();
    let mut work = tokio::task::spawn_blocking(move || attempt(&given, &shared));
    let mut received = None;
    let ended = loop {
        tokio::select! {
            ended = &mut work => break ended,
            signal = signals.next() => {
                if moment.cancel() {
                    return Ok(signals::code(signal));
                }
                received = Some(signal);
            }
        }
    };
    let ended = ended.unwrap_or_else(|error| Err(Failure::new("cannot apply the changes").because(error)));
    match (ended, received) {
        (Ok((applied, changes)), _) => applied.tell(&args, &changes, render),
        (Err(failure), Some(signal)) => {
            render.failure(&failure);
            Ok(signals::code(signal))
        }
        (Err(failure), None) => Err(failure),
    }
}

fn attempt(args: &ApplyArgs, moment: &Moment) -> Result<(Applied, Changes), Failure> {
    let (run, _record) = super::store()?.find(&args.run)?;
    let mut options = ApplyOptions::default();
    if let Some(dir) = &args.to {
        options = options.destination(dir);
    }
    if args.force {
        options = options.overwrite(Overwrite::Force);
    }
    if args.dry_run {
        options = options.allow_killed();
    }
    run.check_appliable(&options)?;
    let changes = run.changes(if args.all { Scope::All } else { Scope::NotIgnored })?;
    let mut plan = run.plan_apply(&changes, &options)?;
    let has_steps = plan.conflicts().is_empty() && !args.dry_run && !plan.steps().is_empty();
    let consent = if has_steps { ask(args, &plan) } else { Consent::Given };
    let is_done = plan.steps().is_empty() && plan.already_applied() > 0 && plan.conflicts().is_empty() && !args.dry_run;
    if is_done || has_steps && consent == Consent::Given && moment.commit() {
        plan.commit(moment.token())?;
    }
    Ok((Applied { run: run.id().to_owned(), plan, consent }, changes))
}

/// Whether files that tools run or obey by themselves may be written: asked at the terminal, if there are any.
fn ask(args: &ApplyArgs, plan: &ApplyPlan) -> Consent {
    let files = plan.tool_files();
    if args.yes || files.is_empty() {
        return Consent::Given;
    }
    if args.json {
        return Consent::Missing;
    }
    let lines = files.iter().take(ASKED).map(|(path, tool)| format!("  {}: {tool}\n", inert_line(&quoted("", path))));
    let (lines, root) = (lines.collect::<String>(), inert_line(&plan.root().display().to_string()));
    let more = match files.len().saturating_sub(ASKED) {
        0 => String::new(),
        more => format!("  and {}, which --dry-run names\n", many(more, "more file")),
    };
    consent::ask(&format!("Tools run or obey these by themselves:\n{lines}{more}write them to {root}?"))
}

/// The result of an apply.
struct Applied {
    run: String,
    plan: ApplyPlan,
    consent: Consent,
}

impl Applied {
    fn status(&self, args: &ApplyArgs) -> &'static str {
        match &self.plan {
            plan if !plan.conflicts().is_empty() => "conflict",
            plan if plan.steps().is_empty() && plan.already_applied() > 0 => "already_applied",
            plan if plan.steps().is_empty() => "nothing",
            _ if args.dry_run => "dry_run",
            _ if self.consent == Consent::Missing => "needs_consent",
            _ if self.consent == Consent::Refused => "not_wanted",
            _ => "applied",
        }
    }

    fn code(&self) -> u8 {
        match self.consent {
            Consent::Given => u8::from(!self.plan.conflicts().is_empty() || !self.plan.refused().is_empty()),
            Consent::Missing | Consent::Refused => UNASKED,
        }
    }

    fn tell(&self, args: &ApplyArgs, changes: &Changes, render: &Render) -> Result<u8, Failure> {
        let (status, plan) = (self.status(args), &self.plan);
        if args.json {
            let code = render.result(format!("{}\n", self.document(status, changes)).as_bytes())?;
            return Ok(code.max(self.code()));
        }
        for name in plan.leftovers() {
            let (name, list) = (quoted("", name), STAGED_FILES_LIST);
            render.note(&format!(
                "{name} was left by an apply that was killed: it contains files that were replaced, removed or not written yet; {list} in \
                 it names the path of each; restore what you need, and remove the directory"
            ));
        }
        for (path, reason) in plan.refused() {
            render.note(&format!("refused {}: {reason}", quoted("", path)));
        }
        plan.search_note().into_iter().for_each(|note| render.note(note));
        let root = inert_line(&plan.root().display().to_string());
        let count = many(plan.steps().iter().filter(|step| step.is_shown()).count(), "change");
        let text = match status {
            "conflict" => {
                for (path, reason) in plan.conflicts() {
                    render.note(&format!("conflict in {}: {reason}", quoted("", path)));
                }
                let what = format!("{}; nothing was changed in {root}", many(plan.conflicts().len(), "conflict"));
                let next = "settle them by hand, or overwrite what can be with --force";
                return Err(Failure::new(what).code("apply_conflict").next(next));
            }
            "already_applied" => format!("already applied to {root}\n"),
            "nothing" => String::new(),
            "needs_consent" => {
                for (path, tool) in plan.tool_files() {
                    render.note(&format!("{}: {tool}", quoted("", path)));
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

    /// The changes in the letters of git, one per line, at most `most`.
    fn steps(&self, most: usize) -> String {
        let shown = || self.plan.steps().iter().filter(|step| step.is_shown());
        let tool = |path: &PathBytes| self.plan.tool_files().iter().find(|(file, _)| file == path);
        let mark = |path: &PathBytes| tool(path).map(|(_, tool)| format!("  ({tool})")).unwrap_or_default();
        let line = |step: &ApplyStep| format!("{} {}{}\n", step.letter(), quoted("", step.path()), mark(step.path()));
        let lines = shown().take(most).map(line);
        let mut text: String = lines.collect();
        match shown().count().saturating_sub(most) {
            0 => {}
            more => text.push_str(&format!("and {}\n", many(more, "more change"))),
        }
        text
    }

    fn document(&self, status: &str, changes: &Changes) -> Value {
        let named = |list: &[(PathBytes, String)]| -> Vec<Value> {
            list.iter().map(|(path, reason)| json!({"path": path.to_lossy(), "reason": reason})).collect()
        };
        let plan = &self.plan;
        let shown = plan.steps().iter().filter(|step| step.is_shown());
        let steps: Vec<Value> =
            shown.map(|step| json!({"path": step.path().to_lossy(), "change": step.letter().to_string()})).collect();
        json!({
            "id": self.run,
            "to": plan.root().to_string_lossy(),
            "status": status,
            "changes": steps,
            "obeyed": plan.tool_files().iter().map(|(path, tool)| json!({"path": path.to_lossy(), "by": tool})).collect::<Vec<_>>(),
            "already_applied": plan.already_applied(),
            "conflicts": named(plan.conflicts()),
            "refused": named(plan.refused()),
            "left_behind": plan.leftovers().iter().map(PathBytes::to_lossy).collect::<Vec<_>>(),
            "git_files_changed": changes.in_git,
            "ignored": changes.ignored,
        })
    }
}
