//! What calls have done by now, kept also when they are stopped in the middle.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::{BoxFuture, FutureExt as _};
use serde_json::Value;

use super::{calling::Called, driver::Driver};
use crate::{
    BoxError, Usage,
    environment::{Ending, Stay},
    guardrail::GuardrailResult,
    run::{Answer, Run},
};

/// What calls have done by now. They run side by side and may be dropped at any moment; what is in here stays.
#[derive(Default)]
pub(super) struct Progress {
    begun: HashSet<String>,
    called: Vec<(usize, String, Called)>,
    used: Vec<(usize, Usage)>,
    nested: HashMap<String, (usize, Slot)>,
    checked: Vec<(usize, Vec<GuardrailResult>)>,
    /// Nested runs that will not be gone on with, and have not left yet.
    abandoned: Vec<Left>,
}

/// A place being left.
pub(super) type Leaving = BoxFuture<'static, Result<Option<Value>, BoxError>>;

/// Where a nested run goes when it is dropped before its end.
pub(super) type Slot = Arc<Mutex<Option<Left>>>;

/// A nested run that was dropped before its end, and the place it has not left yet.
pub(super) struct Left {
    run: Run,
    used_before: Usage,
    stay: Option<Box<dyn Stay>>,
    /// It was just leaving.
    leaving: Option<Leaving>,
    inner: Vec<(String, Left)>,
    abandoned: Vec<Left>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts a nested run into its slot.
pub(super) fn put(slot: &Slot, left: Left) {
    *lock(slot) = Some(left);
}

impl Left {
    /// A nested run that has come to its end, until somebody has taken its answer.
    pub(super) fn ended(run: Run) -> Self {
        let used_before = run.usage().clone();
        Self { run, used_before, stay: None, leaving: None, inner: Vec::new(), abandoned: Vec::new() }
    }

    /// The same, after what it used was counted.
    pub(super) fn counted(mut self) -> Self {
        self.used_before = self.run.usage().clone();
        self
    }

    fn used(&self) -> Usage {
        self.run.usage().since(&self.used_before)
    }

    /// Leaves every place, innermost first, and gives the run back as it can be gone on with.
    pub(super) fn settle(self, ending: Ending) -> BoxFuture<'static, Run> {
        async move {
            let Self { mut run, stay, leaving, inner, abandoned, .. } = self;
            for left in abandoned {
                left.settle(Ending::Failed).await;
            }
            for (call_id, left) in inner {
                let nested = left.settle(ending).await;
                run.answered(vec![(call_id, Answer::Held(Some(Box::new(nested))))]);
            }
            if let Some(leaving) = leaving.or_else(|| Some(stay?.leave(ending))) {
                match leaving.await {
                    Ok(saved) => run.environment = saved,
                    Err(error) => tracing::warn!(%error, "the environment of a nested run could not be left"),
                }
            }
            run
        }
        .boxed()
    }
}

/// Holds a driver while it drives. Dropped with it, a nested run goes to its slot.
pub(super) struct Keeper {
    pub(super) driver: Option<Box<Driver>>,
    pub(super) slot: Option<Slot>,
    pub(super) used_before: Usage,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let (Some(mut driver), Some(slot)) = (self.driver.take(), &self.slot) else { return };
        let time = driver.step_time();
        driver.run.pass(time);
        let (inner, abandoned) = driver.absorb();
        let driver = *driver;
        let used_before = std::mem::take(&mut self.used_before);
        let leaving = driver.leaving.into_inner().unwrap_or_else(PoisonError::into_inner);
        put(slot, Left { run: driver.run, used_before, stay: driver.stay, leaving, inner, abandoned });
    }
}

impl Driver {
    /// A call is about to do something.
    pub(super) fn has_begun(&self, call_id: &str) {
        lock(&self.progress).begun.insert(call_id.to_owned());
    }

    /// What came of a call.
    pub(super) fn has_called(&self, place: usize, call_id: &str, called: Called) {
        let mut progress = lock(&self.progress);
        progress.nested.remove(call_id);
        progress.called.push((place, call_id.to_owned(), called));
    }

    /// What guardrails found about a call that is about to be made.
    pub(super) fn has_checked(&self, place: usize, found: Vec<GuardrailResult>) {
        lock(&self.progress).checked.push((place, found));
    }

    /// What a nested run has used.
    pub(super) fn has_used(&self, place: usize, usage: Usage) {
        lock(&self.progress).used.push((place, usage));
    }

    /// Everything used so far, by calls that are not over yet too.
    pub(super) fn used_by_now(&self) -> Usage {
        let mut usage = self.run.usage().clone();
        lock(&self.progress).used.iter().for_each(|(_, used)| usage.add(used));
        usage
    }

    /// A slot for the nested run of a call.
    pub(super) fn slot_for(&self, place: usize, call_id: &str) -> Slot {
        let slot = Slot::default();
        lock(&self.progress).nested.insert(call_id.to_owned(), (place, Arc::clone(&slot)));
        slot
    }

    /// The nested run of a call that was dropped, if it was; what it used is counted.
    pub(super) fn take_left(&self, call_id: &str) -> Option<Left> {
        let mut progress = lock(&self.progress);
        let (place, slot) = progress.nested.remove(call_id)?;
        let left = lock(&slot).take()?;
        progress.used.push((place, left.used()));
        Some(left)
    }

    /// A nested run will not be gone on with; it leaves when there is time.
    pub(super) fn abandon(&self, left: Left) {
        lock(&self.progress).abandoned.push(left);
    }

    /// Takes what calls have done into the run. Gives nested runs that were dropped: those to go on with, and the others.
    pub(super) fn absorb(&mut self) -> (Vec<(String, Left)>, Vec<Left>) {
        let mut left = Vec::new();
        let waiting: Vec<String> = lock(&self.progress).nested.keys().cloned().collect();
        for call_id in waiting {
            left.extend(self.take_left(&call_id).map(|run| (call_id, run)));
        }
        let Progress { begun, mut called, mut used, mut checked, abandoned, .. } =
            std::mem::take(&mut *lock(&self.progress));
        checked.sort_by_key(|(place, _)| *place);
        self.run.checks.tool_input.extend(checked.into_iter().flat_map(|(_, found)| found));
        used.sort_by_key(|(place, _)| *place);
        called.sort_by_key(|(place, ..)| *place);
        used.iter().for_each(|(_, used)| self.run.add_usage(used));
        self.run.begun(&begun);
        let mut answers = Vec::with_capacity(called.len());
        for (_, call_id, called) in called {
            self.run.checks.tool_output.extend(called.output_checks);
            answers.push((call_id, called.answer));
        }
        self.run.answered(answers);
        (left, abandoned)
    }

    /// Takes what calls have done into the run, lets dropped runs leave, and tells what is new.
    pub(super) async fn keep_progress(&mut self) {
        let (left, abandoned) = self.absorb();
        for left in abandoned {
            left.settle(Ending::Failed).await;
        }
        for (call_id, left) in left {
            let nested = left.settle(Ending::Paused).await;
            self.run.answered(vec![(call_id, Answer::Held(Some(Box::new(nested))))]);
        }
        self.tell_new().await;
    }

    /// Tells what was added to the run and not told yet.
    pub(super) async fn tell_new(&mut self) {
        let from = std::mem::replace(&mut self.told, self.run.items().len());
        self.events.tell_items(self.run.items().get(from..).unwrap_or_default()).await;
    }
}
