//! A run being watched: its events are shown as they come, and signals reach it in the order of people's patience.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sandbar::{
    HookContext, Hooks, Prices, RunBuilder, RunError, RunResult, Signal, Usage,
    agent::{ModelReply, hooks::Told},
    async_trait,
};
use tokio::time::{MissedTickBehavior, interval};

use crate::{signals::Signals, view::View};

/// How often the status line is drawn.
const PACE: Duration = Duration::from_millis(100);

/// How a run was watched to its end.
pub(super) enum Watched {
    /// It is over; and the signal that asked for that, if one did.
    Over(Box<Result<RunResult, RunError>>, Option<Signal>),
    /// A third signal came before it had stopped.
    Abandoned(Signal),
}

/// What was used so far, and what that cost, for the status line.
#[derive(Clone, Default)]
pub(super) struct Meter {
    used: Arc<Mutex<Usage>>,
    prices: Prices,
    is_priced: bool,
}

#[async_trait]
impl Hooks for Meter {
    async fn on_llm_end(&self, at: &HookContext, _reply: &ModelReply) -> Told {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = at.usage.clone();
        Ok(())
    }
}

impl Meter {
    /// A meter that knows what this model costs, if these prices say it.
    pub(super) fn new(prices: &Prices, model: &str) -> Self {
        Self { prices: prices.clone(), is_priced: prices.of(model).is_some(), ..Self::default() }
    }

    pub(super) fn read(&self) -> Usage {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What some usage cost, if that is known.
    pub(super) fn cost(&self, usage: &Usage) -> Option<f64> {
        // A sum of nothing is a negative zero, which looks odd.
        self.is_priced.then(|| self.prices.cost(usage) + 0.0)
    }
}

/// Shows the run until it is over. The first Ctrl-C lets the current turn finish, the second stops at once, and the third
/// does not even wait for that. It stops too once the reader of its results is gone.
pub(super) async fn watch(run: RunBuilder, meter: &Meter, view: &mut View, signals: &mut Signals) -> Watched {
    let mut stream = run.hooks(meter.clone()).stream();
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut heard: Option<Signal> = None;
    let mut times = 0;
    let mut is_read = true;
    loop {
        if is_read && view.is_closed() {
            is_read = false;
            stream.cancel_now();
        }
        let has_room = view.has_room();
        tokio::select! {
            // A reader that does not read holds up the run, as it would any program, but no signal.
            () = view.room(), if !has_room => {}
            event = stream.next(), if has_room => match event {
                Some(event) => view.event(&event),
                None => break,
            },
            signal = signals.next() => {
                heard = Some(signal);
                view.hurry();
                times += if signal == Signal::Interrupt { 1 } else { 2 };
                match times {
                    1 => {
                        stream.cancel_after_turn();
                        view.notice("stopping after this turn; Ctrl-C again stops at once");
                    }
                    2 | 3 => {
                        stream.cancel_now();
                        view.notice("stopping");
                    }
                    _ => return Watched::Abandoned(signal),
                }
            }
            _tick = ticks.tick() => {
                let used = meter.read();
                view.cost(meter.cost(&used));
                view.tick(Some(&used));
            }
        }
    }
    Watched::Over(Box::new(stream.result().await), heard)
}
