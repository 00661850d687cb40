//! Who agreed to what: to one call, or to every call of a tool.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CallStatus, Phase, Run};
use crate::{AgentError, Item, Result};

/// A person's decisions in one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Approvals {
    calls: BTreeMap<String, Decision>,
    tools: BTreeMap<String, Decision>,
}

/// What somebody decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Decision {
    Approved,
    /// With what the model is told, if anything in particular.
    Rejected(Option<String>),
}

impl Approvals {
    /// What was decided about a call: about itself first, then about every call of its tool.
    pub(crate) fn about(&self, call_id: &str, tool: &str) -> Option<&Decision> {
        self.calls.get(call_id).or_else(|| self.tools.get(tool))
    }
}

/// A call that waits for a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interruption {
    /// The agent that wants it.
    pub agent: String,
    /// The tool it wants to use.
    pub tool: String,
    /// Which call.
    pub call_id: String,
    /// What it wants to call it with, as the model wrote it.
    pub arguments: String,
    /// The calls it is nested in, outermost first, where an agent is used as a tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<String>,
    /// The call itself.
    pub raw: Item,
}

/// How far a decision reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    ThisCall,
    EveryCall,
}

impl Run {
    /// Every call that waits for a person, those of nested runs included.
    #[must_use]
    pub fn interruptions(&self) -> Vec<Interruption> {
        let Phase::Acting { calls, .. } = &self.phase else { return Vec::new() };
        let mut waiting = Vec::new();
        for call in calls.iter().filter(|call| call.status == CallStatus::Held) {
            let Some(nested) = &call.nested else {
                if self.approvals.about(&call.call_id, &call.tool).is_none() {
                    waiting.push(Interruption {
                        agent: self.agent.clone(),
                        tool: call.tool.clone(),
                        call_id: call.call_id.clone(),
                        arguments: call.arguments().into_owned(),
                        inside: Vec::new(),
                        raw: call.raw.clone(),
                    });
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
            let Phase::Acting { calls, .. } = &mut run.phase else { return Err(not_waiting(interruption)) };
            let call = calls.iter_mut().find(|call| call.call_id == *outer);
            run = call.and_then(|call| call.nested.as_deref_mut()).ok_or_else(|| not_waiting(interruption))?;
        }
        Ok(run)
    }

    pub(crate) fn decide(&mut self, about: &Interruption, decision: Decision, reach: Reach) -> Result<()> {
        if about.call_id.is_empty() {
            return Err(AgentError::Misuse("a call without an id cannot be decided about".to_owned()));
        }
        let run = self.owner_of(about)?;
        let Phase::Acting { calls, .. } = &run.phase else { return Err(not_waiting(about)) };
        let held = calls.iter().find(|call| call.call_id == about.call_id && call.status == CallStatus::Held);
        // By the call's own tool: what the caller hands back may have been through other hands.
        let Some(tool) = held.map(|call| call.tool.clone()).filter(|tool| *tool == about.tool) else {
            return Err(not_waiting(about));
        };
        match reach {
            Reach::ThisCall => run.approvals.calls.insert(about.call_id.clone(), decision),
            Reach::EveryCall => {
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
