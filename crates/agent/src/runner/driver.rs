//! The loop: asks the run what has to happen next, makes it happen, and tells the run.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use super::{
    equipment::Equipment,
    keeping::{Keeper, Leaving, Progress, Slot},
    spans::Spans,
    telling::Events,
};
use crate::{
    Agent, AgentError, App, Hooks, Kit, Result, RunConfig, RunError, RunResult, Step, Stop,
    agent::Roster,
    environment::{Ending, Entering, KnownSecrets, Stay},
    run::Run,
    trace::Scope,
};

/// Whether somebody wants the run to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cancel {
    No,
    AfterTurn,
    Now,
}

/// One run being made.
pub(crate) struct Driver {
    pub(super) roster: Roster,
    pub(super) config: RunConfig,
    pub(super) run: Run,
    pub(super) app: App,
    pub(super) hooks: Option<Arc<dyn Hooks>>,
    pub(super) events: Events,
    pub(super) equipment: Option<Equipment>,
    pub(super) spans: Spans,
    pub(super) secrets: Option<Arc<dyn KnownSecrets>>,
    /// The call it is made for, if it is nested.
    within: Option<Scope>,
    cancel: watch::Receiver<Cancel>,
    steps_left: Option<usize>,
    pub(super) stay: Option<Box<dyn Stay>>,
    /// The place being left; in a mutex only so that a driver can be looked at from several calls.
    pub(super) leaving: Mutex<Option<Leaving>>,
    pub(super) progress: Mutex<Progress>,
    /// When the current step began; nothing between steps.
    pub(super) began: Option<Instant>,
    /// How many items were told.
    pub(super) told: usize,
    /// How many runs it is nested in.
    pub(super) depth: usize,
    /// Nested runs with a budget take turns: each may spend what the others have left.
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
            equipment: None,
            spans: Spans::default(),
            secrets: None,
            within: None,
            cancel: watch::channel(Cancel::No).1,
            steps_left: None,
            stay: None,
            leaving: Mutex::default(),
            progress: Mutex::default(),
            began: None,
            told: 0,
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

    /// Drives the run to its end. If this is dropped before, a nested run goes to its slot.
    pub(super) async fn drive(self, slot: Option<Slot>) -> Result<RunResult, RunError> {
        let used_before = self.run.usage().clone();
        let mut keeper = Keeper { driver: Some(Box::new(self)), slot, used_before };
        let outcome = match &mut keeper.driver {
            Some(driver) => driver.work().await,
            None => Err(AgentError::Misuse("the run is driven already".to_owned())),
        };
        let run = keeper.driver.take().map(|driver| driver.run);
        let run = run.unwrap_or_else(|| Run::new(String::new(), String::new(), Vec::new()));
        outcome.map_err(|error| RunError::new(error, run.clone())).map(|stop| RunResult::new(run, stop))
    }

    async fn work(&mut self) -> Result<Stop> {
        self.told = self.run.items().len();
        self.spans = Spans::begin(&self.config, &mut self.run, self.within.as_ref());
        let outcome = match self.know_secrets() {
            Ok(()) => self.steps().await,
            Err(error) => Err(error),
        };
        let ending = match &outcome {
            Ok(Stop::Finished) => Ending::Finished,
            // A nested run comes back only where a person has to decide.
            Ok(stop) if self.within.is_some() && *stop != Stop::Interrupted => Ending::Finished,
            Ok(_) => Ending::Paused,
            Err(_) => Ending::Failed,
        };
        let left = self.leave(ending).await;
        std::mem::take(&mut self.spans).end(self.run.usage(), outcome.as_ref().err());
        match left {
            // Where it should come back to is lost.
            Err(error) if ending == Ending::Paused => outcome.and(Err(error)),
            // A finished run is finished, also if somebody could not clean up after it.
            Err(error) => {
                tracing::warn!(%error, "the environment of a run could not be left");
                outcome
            }
            Ok(()) => outcome,
        }
    }

    /// The secrets of the place where the agents work, or those of the run that this one is nested in.
    fn know_secrets(&mut self) -> Result<()> {
        let own = self.config.environment.as_ref().and_then(|environment| environment.secrets());
        self.secrets = own.or(self.secrets.take());
        self.run.know(self.secrets.clone())
    }

    pub(super) fn secrets(&self) -> Option<&dyn KnownSecrets> {
        self.secrets.as_deref()
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
            self.keep_progress().await;
            if let Some(stop) = performed? {
                return Ok(stop);
            }
        }
    }

    /// How long the current step has taken so far.
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
        self.run.entered();
        Ok(())
    }

    /// What the current agent works with; entered again when a run is taken up in the middle.
    pub(super) async fn equip(&mut self) -> Result<&Equipment> {
        let key = self.run.agent().to_owned();
        if self.equipment.as_ref().is_none_or(|equipment| equipment.key != key) {
            let agent = self.roster.agent(&key)?.clone();
            let kit = self.borrow_kit(&key, &agent).await?;
            self.equipment = Some(Equipment::new(key, agent, kit));
        }
        let Some(equipment) = &mut self.equipment else {
            return Err(AgentError::Misuse("the agent has no equipment".to_owned()));
        };
        equipment.refresh(&self.roster, &self.app, self.config.on_unknown).await?;
        self.spans.agent(equipment);
        Ok(equipment)
    }

    /// What the environment lends an agent; nothing if there is none.
    async fn borrow_kit(&mut self, key: &str, agent: &Agent) -> Result<Kit> {
        let Some(environment) = self.config.environment.clone() else {
            if agent.parts().needs.is_some() {
                let name = agent.name();
                let why = format!(
                    "the agent {name:?} needs an environment to work in, and the run has none; give the run one, for \
                     example with `.sandbox(…)`"
                );
                return Err(AgentError::Misuse(why));
            }
            return Ok(Kit::default());
        };
        // Whoever cannot think needs no place to work.
        let model = self.config.choose(&agent.parts().model)?;
        let stay = match &mut self.stay {
            Some(stay) => stay,
            none => {
                let saved = self.run.environment.clone();
                let stay = environment.open(self.run.id(), saved).await.map_err(AgentError::Environment)?;
                none.insert(stay)
            }
        };
        stay.enter(Entering { key, agent, model: &model }).await.map_err(AgentError::Environment)
    }

    async fn leave(&mut self, ending: Ending) -> Result<()> {
        let Some(stay) = self.stay.take() else { return Ok(()) };
        // Kept while it goes on: whoever drops this run can still see it through.
        let leaving = self.leaving.get_mut().unwrap_or_else(PoisonError::into_inner);
        let outcome = leaving.insert(stay.leave(ending)).await;
        *leaving = None;
        self.run.environment = outcome.map_err(AgentError::Environment)?;
        Ok(())
    }

    pub(super) fn agent(&self) -> Result<&Agent> {
        self.roster.agent(self.run.agent())
    }
}

async fn cancelled_now(cancel: &mut watch::Receiver<Cancel>) {
    // Nobody can cancel any more when the sender is gone.
    if cancel.wait_for(|cancel| *cancel == Cancel::Now).await.is_err() {
        futures::future::pending::<()>().await;
    }
}
