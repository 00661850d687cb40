//! Watches a run: shows its events, and stops it on signals.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use sandbar::{
    HookContext, Hooks, RunError, RunResult, Signal,
    agent::{ModelReply, Prices, RunBuilder, Usage, hooks::Told},
    async_trait,
};
use tokio::time::{MissedTickBehavior, interval};

use crate::{streams::signals::Signals, view::View};

/// Interval between updates of the status line.
const PACE: Duration = Duration::from_millis(100);

/// Result of watching a run.
pub(super) enum Watched {
    /// The run ended; holds the signal that asked it to stop, if any.
    Over(Box<Result<RunResult, RunError>>, Option<Signal>),
    /// A third signal arrived before the run had stopped.
    Abandoned(Signal),
}

/// Usage and cost so far, for the status line.
#[derive(Clone, Default)]
pub(super) struct Meter {
    used: Arc<Mutex<Usage>>,
    prices: Prices,
    is_priced: bool,
}

#[async_trait]
impl Hooks for Meter {
    async fn on_llm_end(&self, at: &HookContext, _reply: &ModelReply) -> Told {
        *self.used.lock() = at.usage.clone();
        Ok(())
    }
}

impl Meter {
    /// Creates a meter with the price of this model, if known.
    pub(super) fn new(prices: &Prices, model: &str) -> Self {
        Self { prices: prices.clone(), is_priced: prices.of(model).is_some(), ..Self::default() }
    }

    pub(super) fn read(&self) -> Usage {
        self.used.lock().clone()
    }

    /// Cost of a usage, if the price is known.
    pub(super) fn cost(&self, usage: &Usage) -> Option<f64> {
        // The sum of no items is negative zero, which would be shown with a sign.
        self.is_priced.then(|| self.prices.cost(usage) + 0.0)
    }
}

/// Shows the run until it ends. The first Ctrl-C stops after the current turn, the second stops immediately, and the third
/// abandons the run. The run also stops if the reader of its results closes the pipe.
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
            // A stalled reader blocks the run, as it blocks any program, but not the signals.
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
                        view.notice("stopping after this turn; press Ctrl-C again to stop immediately");
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
