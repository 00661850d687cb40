//! Approvals: decisions of a person about one call or about every call of a tool.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CallStatus, Run};
use crate::{AgentError, Item, Result};

/// A person's decisions in one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Approvals {
    calls: BTreeMap<String, Decision>,
    tools: BTreeMap<String, Decision>,
}

/// Decision of a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Decision {
    Approved,
    /// With a text for the model, if there is one.
    Rejected(Option<String>),
}

impl Approvals {
    /// The decision about a call: one for this call, or else one for its tool.
    pub(crate) fn decision_for(&self, call_id: &str, tool: &str) -> Option<&Decision> {
        self.calls.get(call_id).or_else(|| self.tools.get(tool))
    }
}

/// A call that waits for a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interruption {
    /// Agent that made the call.
    pub agent: String,
    /// Name of the tool.
    pub tool: String,
    /// Id of the call.
    pub call_id: String,
    /// Arguments as the model wrote them.
    pub arguments: String,
    /// Ids of the calls that this one is nested in, the outermost first, where an agent is used as a tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<String>,
    /// Item of the call.
    pub raw: Item,
}

/// Which calls a decision applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecisionScope {
    ThisCall,
    EveryCall,
}

impl Run {
    /// Calls that wait for a person, including those of nested runs.
    #[must_use]
    pub fn interruptions(&self) -> Vec<Interruption> {
        let mut waiting = Vec::new();
        for call in self.phase.calls().iter().filter(|call| call.status == CallStatus::AwaitingApproval) {
            let Some(nested) = &call.nested else {
                if self.approvals.decision_for(&call.call_id, &call.tool).is_none() {
                    waiting.push(call.interruption(&self.agent));
                }
                continue;
            };
            waiting.extend(nested.interruptions().into_iter().map(|mut inner| {
                inner.inside.insert(0, call.call_id.clone());
                inner
            }));
        }
        waiting
    }

    /// The run that owns a waiting call.
    fn owner_of(&mut self, interruption: &Interruption) -> Result<&mut Self> {
        let mut run = self;
        for outer in &interruption.inside {
            let call = run.phase.calls_mut().iter_mut().find(|call| call.call_id == *outer);
            run = call.and_then(|call| call.nested.as_deref_mut()).ok_or_else(|| not_waiting(interruption))?;
        }
        Ok(run)
    }

    pub(crate) fn decide(&mut self, about: &Interruption, decision: Decision, scope: DecisionScope) -> Result<()> {
        if about.call_id.is_empty() {
            return Err(AgentError::Misuse("a call without an id cannot be decided about".to_owned()));
        }
        let run = self.owner_of(about)?;
        let is_held =
            |call: &&super::PendingCall| call.call_id == about.call_id && call.status == CallStatus::AwaitingApproval;
        let held = run.phase.calls().iter().find(is_held);
        // The tool is taken from the run: the interruption comes from outside and may have been changed.
        let Some(tool) = held.map(|call| call.tool.clone()).filter(|tool| *tool == about.tool) else {
            return Err(not_waiting(about));
        };
        match scope {
            DecisionScope::ThisCall => run.approvals.calls.insert(about.call_id.clone(), decision),
            DecisionScope::EveryCall => {
                run.approvals.calls.remove(&about.call_id);
                run.approvals.tools.insert(tool, decision)
            }
        };
        Ok(())
    }
}

fn not_waiting(interruption: &Interruption) -> AgentError {
    AgentError::Misuse(format!(
        "no call {} of {} waits for a decision in this run",
        interruption.call_id, interruption.tool
    ))
}
