//! Where a run stands and what follows from that: a table, as code.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Interruption, PendingCall, Run, Spent};

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "at", rename_all = "snake_case")]
pub(crate) enum Phase {
    /// The current agent is about to begin.
    Enter,
    /// The model is to be asked.
    Ready,
    /// The model has answered; its calls are being made.
    Acting {
        calls: Vec<PendingCall>,
        /// Whether the reply asked again for something that was answered before.
        #[serde(default)]
        repeated: bool,
    },
    /// It is over.
    Done { output: Value },
}

/// What has to happen next.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Step {
    /// The current agent begins: enter its environment.
    Enter,
    /// Ask the model.
    CallModel,
    /// Make these calls.
    CallTools(Vec<String>),
    /// Hand over by this call.
    HandOff(String),
    /// Ask a person about these.
    AskHuman(Vec<Interruption>),
    /// The reply is dealt with: is it the final answer?
    Conclude,
    /// It is over.
    Finish,
    /// It has to stop here.
    GiveUp(Stop),
}

/// Why a run has stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stop {
    /// There is a final output.
    Finished,
    /// A person must decide.
    Interrupted,
    /// It has spent what it was given; it can go on with more.
    Budget(Spent),
    /// It has taken all the turns it was given.
    MaxTurns(u32),
    /// Somebody cancelled it; it can go on.
    Cancelled,
    /// It has made as many steps as it was asked to; it can go on.
    Paused,
}

impl Run {
    /// What has to happen next.
    #[must_use]
    pub fn next(&self) -> Step {
        match &self.phase {
            Phase::Enter => Step::Enter,
            Phase::Ready => self.ready(),
            Phase::Done { .. } => Step::Finish,
            Phase::Acting { .. } => {
                let due = self.due_calls();
                if !due.is_empty() {
                    return Step::CallTools(due.into_iter().map(|call| call.call_id).collect());
                }
                let waiting = self.interruptions();
                if !waiting.is_empty() {
                    return Step::AskHuman(waiting);
                }
                self.due_handoff().map_or(Step::Conclude, |call| Step::HandOff(call.call_id.clone()))
            }
        }
    }

    fn ready(&self) -> Step {
        if let Some(spent) = self.overspent() {
            return Step::GiveUp(Stop::Budget(spent));
        }
        match self.max_turns {
            Some(most) if self.turn >= most => Step::GiveUp(Stop::MaxTurns(most)),
            _ => Step::CallModel,
        }
    }

    /// The environment is entered.
    pub(crate) fn entered(&mut self) {
        if self.phase == Phase::Enter {
            self.phase = Phase::Ready;
        }
    }

    /// The reply was not the final answer.
    pub(crate) fn again(&mut self) {
        self.phase = Phase::Ready;
    }

    /// The reply was the final answer.
    pub(crate) fn finish(&mut self, output: Value) {
        self.phase = Phase::Done { output };
    }

    /// The final output, when it is over.
    #[must_use]
    pub fn final_output(&self) -> Option<&Value> {
        match &self.phase {
            Phase::Done { output } => Some(output),
            _ => None,
        }
    }

    /// Whether more can be said to it before it goes on.
    pub(crate) fn takes_input(&self) -> bool {
        matches!(self.phase, Phase::Enter | Phase::Ready)
    }
}
