//! Progress of the calls of a turn. It survives a call, a nested run or a whole driver that is dropped in the middle.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use futures::future::{BoxFuture, FutureExt as _};
use parking_lot::Mutex;

use super::{driver::Driver, open_environment::OpenEnvironment, single_call::CallOutcome};
use crate::{
    Usage,
    environment::Ending,
    guardrail::GuardrailResult,
    run::{Answer, Run},
};

/// What the concurrent calls of a turn have done so far. A call may be dropped at any await; its records here remain.
#[derive(Default)]
pub(super) struct Progress(Mutex<Records>);

#[derive(Default)]
struct Records {
    begun: HashSet<String>,
    called: Vec<(usize, String, CallOutcome)>,
    used: Vec<(usize, Usage)>,
    nested: HashMap<String, (usize, RunSlot)>,
    checked: Vec<(usize, Vec<GuardrailResult>)>,
    /// Nested runs that will not be resumed and have not left their environment yet.
    abandoned: Vec<InterruptedRun>,
}

/// Stores a nested run that is dropped before its end.
pub(super) type RunSlot = Arc<Mutex<Option<InterruptedRun>>>;

/// A nested run that was dropped before its end, with the environment session that it has not left yet.
pub(super) struct InterruptedRun {
    run: Run,
    used_before: Usage,
    environment: OpenEnvironment,
    inner: Vec<(String, InterruptedRun)>,
    abandoned: Vec<InterruptedRun>,
}

/// Stores a nested run in its slot.
pub(super) fn store(slot: &RunSlot, interrupted: InterruptedRun) {
    *slot.lock() = Some(interrupted);
}

impl InterruptedRun {
    /// A nested run that ended, kept until its answer is recorded.
    pub(super) fn ended(run: Run) -> Self {
        let used_before = run.usage().clone();
        let environment = OpenEnvironment::default();
        Self { run, used_before, environment, inner: Vec::new(), abandoned: Vec::new() }
    }

    /// Marks the usage so far as counted.
    pub(super) fn counted(mut self) -> Self {
        self.used_before = self.run.usage().clone();
        self
    }

    fn used(&self) -> Usage {
        self.run.usage().since(&self.used_before)
    }

    /// Leaves all environment sessions, the innermost first, and returns the run so that it can be resumed.
    pub(super) fn close(self, ending: Ending) -> BoxFuture<'static, Run> {
        async move {
            let Self { mut run, mut environment, inner, abandoned, .. } = self;
            for interrupted in abandoned {
                interrupted.close(Ending::Failed).await;
            }
            for (call_id, interrupted) in inner {
                let nested = interrupted.close(ending).await;
                run.answered(vec![(call_id, Answer::Pending(Some(Box::new(nested))))]);
            }
            match environment.leave(ending).await {
                Some(Ok(saved)) => run.environment = saved,
                Some(Err(error)) => tracing::warn!(%error, "cannot leave the environment of a nested run"),
                None => {}
            }
            run
        }
        .boxed()
    }
}

/// Owns a driver while it works. If the guard is dropped with its driver, a nested run is stored in its slot.
pub(super) struct DriverGuard {
    pub(super) driver: Option<Box<Driver>>,
    pub(super) slot: Option<RunSlot>,
    pub(super) used_before: Usage,
}

impl Drop for DriverGuard {
    fn drop(&mut self) {
        let (Some(mut driver), Some(slot)) = (self.driver.take(), &self.slot) else { return };
        let time = driver.step_time();
        driver.run.pass(time);
        let (inner, abandoned) = driver.merge_progress();
        let used_before = std::mem::take(&mut self.used_before);
        let Driver { run, environment, .. } = *driver;
        store(slot, InterruptedRun { run, used_before, environment, inner, abandoned });
    }
}

impl Progress {
    /// Records that a call is about to have effects.
    pub(super) fn record_begun(&self, call_id: &str) {
        self.0.lock().begun.insert(call_id.to_owned());
    }

    /// Records the outcome of a call.
    pub(super) fn record_outcome(&self, index: usize, call_id: &str, called: CallOutcome) {
        let mut progress = self.0.lock();
        progress.nested.remove(call_id);
        progress.called.push((index, call_id.to_owned(), called));
    }

    /// Records what guardrails found about a call that is about to be made.
    pub(super) fn record_checks(&self, index: usize, found: Vec<GuardrailResult>) {
        self.0.lock().checked.push((index, found));
    }

    /// Records usage of a nested run or of a failed request.
    pub(super) fn record_usage(&self, index: usize, usage: Usage) {
        self.0.lock().used.push((index, usage));
    }

    /// This usage, and the recorded usage of calls that are still running.
    pub(super) fn added_to(&self, usage: &Usage) -> Usage {
        let mut usage = usage.clone();
        self.0.lock().used.iter().for_each(|(_, used)| usage.add(used));
        usage
    }

    /// A slot for the nested run of a call.
    pub(super) fn slot_for(&self, index: usize, call_id: &str) -> RunSlot {
        let slot = RunSlot::default();
        self.0.lock().nested.insert(call_id.to_owned(), (index, Arc::clone(&slot)));
        slot
    }

    /// Takes the nested run of a call that was dropped, if any, and records its usage.
    pub(super) fn take_interrupted(&self, call_id: &str) -> Option<InterruptedRun> {
        let mut progress = self.0.lock();
        let (index, slot) = progress.nested.remove(call_id)?;
        let interrupted = slot.lock().take()?;
        progress.used.push((index, interrupted.used()));
        Some(interrupted)
    }

    /// Marks a nested run as not resumable; it leaves its environment when the step is saved.
    pub(super) fn abandon(&self, interrupted: InterruptedRun) {
        self.0.lock().abandoned.push(interrupted);
    }

    /// Takes the nested runs of all calls that were dropped, with the ids of the calls.
    fn take_all_interrupted(&self) -> Vec<(String, InterruptedRun)> {
        let waiting: Vec<String> = self.0.lock().nested.keys().cloned().collect();
        let taken = waiting.into_iter().map(|call_id| (self.take_interrupted(&call_id), call_id));
        taken.filter_map(|(interrupted, call_id)| Some((call_id, interrupted?))).collect()
    }

    fn take(&self) -> Records {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Driver {
    /// Merges the recorded progress into the run. Returns the dropped nested runs: those to resume, and the abandoned ones.
    pub(super) fn merge_progress(&mut self) -> (Vec<(String, InterruptedRun)>, Vec<InterruptedRun>) {
        let interrupted = self.progress.take_all_interrupted();
        let Records { begun, mut called, mut used, mut checked, abandoned, .. } = self.progress.take();
        checked.sort_by_key(|(index, _)| *index);
        self.run.checks.tool_input.extend(checked.into_iter().flat_map(|(_, found)| found));
        used.sort_by_key(|(index, _)| *index);
        called.sort_by_key(|(index, ..)| *index);
        used.iter().for_each(|(_, used)| self.run.usage.add(used));
        self.run.phase.begin_calls(&begun);
        let mut answers = Vec::with_capacity(called.len());
        for (_, call_id, called) in called {
            self.run.checks.tool_output.extend(called.output_checks);
            answers.push((call_id, called.answer));
        }
        self.run.answered(answers);
        (interrupted, abandoned)
    }

    /// Merges the recorded progress into the run, lets dropped nested runs leave, and emits the new items.
    pub(super) async fn save_progress(&mut self) {
        let (interrupted, abandoned) = self.merge_progress();
        for interrupted in abandoned {
            interrupted.close(Ending::Failed).await;
        }
        for (call_id, interrupted) in interrupted {
            let nested = interrupted.close(Ending::Paused).await;
            self.run.answered(vec![(call_id, Answer::Pending(Some(Box::new(nested))))]);
        }
        self.emit_new_items().await;
    }

    /// Emits the items that were added to the run since the last call.
    pub(super) async fn emit_new_items(&mut self) {
        let from = std::mem::replace(&mut self.emitted, self.run.items().len());
        self.events.emit_items(self.run.items().get(from..).unwrap_or_default()).await;
    }
}
