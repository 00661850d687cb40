//! Phase of a run, and the next step that follows from it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Interruption, PendingCall, Run, Spent};

/// Phase of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "at", rename_all = "snake_case")]
pub(crate) enum Phase {
    /// The current agent is about to begin.
    Enter,
    /// The next step is a model call.
    Ready,
    /// The model has replied; the calls of the reply are being made.
    Acting {
        calls: Vec<PendingCall>,
        /// Whether the reply repeated a call that was answered before.
        #[serde(default)]
        repeated: bool,
    },
    /// The run is finished.
    Done { output: Value },
}

/// Next step of a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Step {
    /// The current agent begins: enter its environment.
    Enter,
    /// Ask the model.
    CallModel,
    /// Make these calls.
    CallTools(Vec<String>),
    /// Execute the handoff of this call.
    HandOff(String),
    /// Ask a person to decide about these calls.
    AskHuman(Vec<Interruption>),
    /// All calls are answered: decide whether the reply is the final output.
    Conclude,
    /// The run is finished.
    Finish,
    /// The run has to stop without a final output.
    GiveUp(Stop),
}

/// Why a run stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stop {
    /// The run has a final output.
    Finished,
    /// A person must decide about calls.
    Interrupted,
    /// The budget is spent; the run can be resumed with a larger one.
    Budget(Spent),
    /// The limit of turns is reached.
    MaxTurns(u32),
    /// The caller cancelled the run; it can be resumed.
    Cancelled,
    /// The requested number of steps is done; the run can be resumed.
    Paused,
}

impl Phase {
    /// The agent has entered its environment.
    pub(crate) fn entered(&mut self) {
        if *self == Self::Enter {
            *self = Self::Ready;
        }
    }

    /// Whether input can be added now, which is between turns.
    pub(crate) fn takes_input(&self) -> bool {
        matches!(self, Self::Enter | Self::Ready)
    }
}

impl Run {
    /// The next step.
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
                self.phase.due_handoff().map_or(Step::Conclude, |call| Step::HandOff(call.call_id.clone()))
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

    /// The final output, if the run is finished.
    #[must_use]
    pub fn final_output(&self) -> Option<&Value> {
        match &self.phase {
            Phase::Done { output } => Some(output),
            _ => None,
        }
    }
}
