//! The main loop: asks the run for its next step, executes the step, and reports the outcome to the run.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};

use super::{
    agent_setup::AgentSetup,
    checkpoint::{DriverGuard, Progress, RunSlot},
    events::Events,
    open_environment::OpenEnvironment,
    spans::Spans,
};
use crate::{
    Agent, AgentError, App, Hooks, Result, RunConfig, RunError, RunResult, Step, Stop,
    agent::Roster,
    environment::{Ending, KnownSecrets},
    run::Run,
    trace::Scope,
};

/// Cancellation that the caller requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cancel {
    No,
    AfterTurn,
    Now,
}

/// Executes one run.
pub(crate) struct Driver {
    pub(super) roster: Roster,
    pub(super) config: RunConfig,
    pub(super) run: Run,
    pub(super) app: App,
    pub(super) hooks: Option<Arc<dyn Hooks>>,
    pub(super) events: Events,
    pub(super) setup: Option<AgentSetup>,
    pub(super) spans: Spans,
    pub(super) secrets: Option<Arc<dyn KnownSecrets>>,
    /// Trace scope of the call that this run answers, if the run is nested.
    within: Option<Scope>,
    cancel: watch::Receiver<Cancel>,
    steps_left: Option<usize>,
    pub(super) environment: OpenEnvironment,
    pub(super) progress: Progress,
    /// When the current step began; `None` between steps.
    pub(super) began: Option<Instant>,
    /// Number of items that were emitted as events.
    pub(super) emitted: usize,
    /// Number of runs that this run is nested in.
    pub(super) depth: usize,
    /// Under a budget, nested runs execute one after the other: each may spend what the earlier ones left.
    pub(super) turns: tokio::sync::Mutex<()>,
}

impl Driver {
    pub(super) fn new(roster: Roster, config: RunConfig, run: Run) -> Self {
        Self {
            roster,
            config,
            run,
            app: App::default(),
            hooks: None,
            events: Events::None,
            setup: None,
            spans: Spans::default(),
            secrets: None,
            within: None,
            cancel: watch::channel(Cancel::No).1,
            steps_left: None,
            environment: OpenEnvironment::default(),
            progress: Progress::default(),
            began: None,
            emitted: 0,
            depth: 0,
            turns: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn with(
        self,
        app: App,
        hooks: Option<Arc<dyn Hooks>>,
        events: Events,
        cancel: watch::Receiver<Cancel>,
    ) -> Self {
        Self { app, hooks, events, cancel, ..self }
    }

    pub(super) fn within(self, scope: Scope, outer: &Self) -> Self {
        Self { within: Some(scope), depth: outer.depth + 1, secrets: outer.secrets.clone(), ..self }
    }

    pub(super) fn at_most(self, steps_left: Option<usize>) -> Self {
        Self { steps_left, ..self }
    }

    /// Executes the run to its end. If this future is dropped before, a nested run is stored in its slot.
    pub(super) async fn drive(self, slot: Option<RunSlot>) -> Result<RunResult, RunError> {
        let used_before = self.run.usage().clone();
        let mut guard = DriverGuard { driver: Some(Box::new(self)), slot, used_before };
        let outcome = match &mut guard.driver {
            Some(driver) => driver.work().await,
            None => Err(AgentError::Misuse("the run is driven already".to_owned())),
        };
        let run = guard.driver.take().map(|driver| driver.run);
        let run = run.unwrap_or_else(|| Run::new(String::new(), String::new(), Vec::new()));
        outcome.map_err(|error| RunError::new(error, run.clone())).map(|stop| RunResult::new(run, stop))
    }

    async fn work(&mut self) -> Result<Stop> {
        self.emitted = self.run.items().len();
        self.spans = Spans::begin(&self.config, &mut self.run, self.within.as_ref());
        let outcome = match self.load_secrets() {
            Ok(()) => self.steps().await,
            Err(error) => Err(error),
        };
        let ending = match &outcome {
            Ok(Stop::Finished) => Ending::Finished,
            // A nested run is resumed only if a person has to decide something in it.
            Ok(stop) if self.within.is_some() && *stop != Stop::Interrupted => Ending::Finished,
            Ok(_) => Ending::Paused,
            Err(_) => Ending::Failed,
        };
        let left = self.leave(ending).await;
        std::mem::take(&mut self.spans).end(self.run.usage(), outcome.as_ref().err());
        match left {
            // Without the saved environment the run cannot be resumed.
            Err(error) if ending == Ending::Paused => outcome.and(Err(error)),
            // A failed clean-up does not change the outcome of a run that is over.
            Err(error) => {
                tracing::warn!(%error, "the environment of a run could not be left");
                outcome
            }
            Ok(()) => outcome,
        }
    }

    /// Takes the secrets of the environment, or else those of the outer run.
    fn load_secrets(&mut self) -> Result<()> {
        let own = self.config.environment.as_ref().and_then(|environment| environment.secrets());
        self.secrets = own.or(self.secrets.take());
        self.run.set_secrets(self.secrets.clone())
    }

    async fn steps(&mut self) -> Result<Stop> {
        let mut cancel = self.cancel.clone();
        loop {
            let step = self.run.next();
            let asks_next = matches!(step, Step::CallModel | Step::Enter | Step::GiveUp(_));
            let between_turns = asks_next && self.run.turn() > 0;
            if between_turns && *cancel.borrow() == Cancel::AfterTurn {
                return Ok(Stop::Cancelled);
            }
            if step == Step::Finish {
                return Ok(Stop::Finished);
            }
            let over = matches!(step, Step::AskHuman(_) | Step::GiveUp(_));
            if self.steps_left == Some(0) && !over {
                return Ok(Stop::Paused);
            }
            self.steps_left = self.steps_left.map(|left| left.saturating_sub(1));
            self.began = Some(Instant::now());
            let performed = tokio::select! {
                biased;
                () = cancelled_now(&mut cancel) => Ok(Some(Stop::Cancelled)),
                performed = self.perform(step) => performed,
            };
            self.run.pass(self.step_time());
            self.began = None;
            self.save_progress().await;
            if let Some(stop) = performed? {
                return Ok(stop);
            }
        }
    }

    /// Time since the current step began.
    pub(super) fn step_time(&self) -> Duration {
        self.began.map_or(Duration::ZERO, |began| began.elapsed())
    }

    async fn perform(&mut self, step: Step) -> Result<Option<Stop>> {
        match step {
            Step::Enter => self.enter().await?,
            Step::CallModel => self.ask().await?,
            Step::CallTools(_) => self.act().await?,
            Step::HandOff(call_id) => self.hand_over(&call_id).await?,
            Step::Conclude => self.conclude().await?,
            Step::AskHuman(_) => return Ok(Some(Stop::Interrupted)),
            Step::Finish => return Ok(Some(Stop::Finished)),
            Step::GiveUp(Stop::MaxTurns(most)) => self.out_of_turns(most).await?,
            Step::GiveUp(stop) => return Ok(Some(stop)),
        }
        Ok(None)
    }

    async fn enter(&mut self) -> Result<()> {
        self.check_input_first().await?;
        self.equip().await?;
        self.run.phase.entered();
        Ok(())
    }

    /// Setup of the current agent. In a run that was resumed in the middle, the agent enters the environment again.
    pub(super) async fn equip(&mut self) -> Result<&AgentSetup> {
        let key = self.run.agent().to_owned();
        if self.setup.as_ref().is_none_or(|setup| setup.key != key) {
            let agent = self.roster.agent(&key)?.clone();
            let kit = self.environment.enter(&self.config, &self.run, &key, &agent).await?;
            self.setup = Some(AgentSetup::new(key, agent, kit));
        }
        let Some(setup) = &mut self.setup else {
            return Err(AgentError::Misuse("the agent has no setup".to_owned()));
        };
        setup.refresh(&self.roster, &self.app, self.config.on_unknown).await?;
        self.spans.agent(setup);
        Ok(setup)
    }

    async fn leave(&mut self, ending: Ending) -> Result<()> {
        if let Some(left) = self.environment.leave(ending).await {
            self.run.environment = left.map_err(AgentError::Environment)?;
        }
        Ok(())
    }

    pub(super) fn agent(&self) -> Result<&Agent> {
        self.roster.agent(self.run.agent())
    }
}

async fn cancelled_now(cancel: &mut watch::Receiver<Cancel>) {
    // An error means that the sender is gone: the run cannot be cancelled any more.
    if cancel.wait_for(|cancel| *cancel == Cancel::Now).await.is_err() {
        futures::future::pending::<()>().await;
    }
}
