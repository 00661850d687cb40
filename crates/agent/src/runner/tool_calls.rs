//! The tool calls of a reply: approval first, then all calls concurrently, answers in the model's order.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, stream::FuturesUnordered};
use parking_lot::Mutex;
use serde_json::Value;

use super::{driver::Driver, single_call::CallOutcome};
use crate::{
    AgentError, Approval, Result, Tool, ToolContext,
    run::{Answer, CallKind, CallStatus, Decision, PendingCall},
    tool::CallFacts,
};

/// How long the other calls may still run after one has failed.
const SETTLE: Duration = Duration::from_millis(100);

/// What the model is told about a call that was interrupted.
const INTERRUPTED: &str =
    "The call was interrupted before it answered. It is not known whether it took effect; check before trying again.";

/// What the model is told about a call that a person refused without a message.
const REJECTED: &str = "Tool execution was not approved.";

/// Whether a call may be made.
enum Clearance {
    Go,
    Wait,
    Answer(String),
}

impl Driver {
    pub(super) async fn act(&mut self) -> Result<()> {
        self.equip().await?;
        let calls = self.run.due_calls();
        let mut cleared = Vec::new();
        for (index, call) in calls.iter().enumerate() {
            let answer = match self.clearance(call).await? {
                Clearance::Go => {
                    cleared.push((index, call));
                    continue;
                }
                Clearance::Wait => Answer::Pending(None),
                Clearance::Answer(text) => Answer::Message(text),
            };
            self.progress.record_outcome(index, &call.call_id, CallOutcome::of(answer));
        }
        self.call_all(&cleared).await
    }

    /// Makes the calls concurrently. If one fails, the others get a short time to finish; their answers are kept.
    async fn call_all(&self, calls: &[(usize, &PendingCall)]) -> Result<()> {
        let most = self.config.tool_concurrency.map_or(usize::MAX, std::num::NonZero::get);
        let mut waiting = calls.iter();
        let make = |(index, call): &(usize, &PendingCall)| {
            let (index, call) = (*index, (*call).clone());
            async move { self.call(index, &call).await }
        };
        let mut running: FuturesUnordered<_> = waiting.by_ref().take(most).map(make).collect();
        while let Some(called) = running.next().await {
            if let Err(error) = called {
                let settled = async { while running.next().await.is_some() {} };
                let _out_of_patience = tokio::time::timeout(SETTLE, settled).await;
                return Err(error);
            }
            running.extend(waiting.by_ref().take(1).map(make));
        }
        Ok(())
    }

    async fn clearance(&self, call: &PendingCall) -> Result<Clearance> {
        if call.kind == CallKind::Unknown {
            return Ok(Clearance::Answer(format!("Tool '{}' not found.", call.tool)));
        }
        if call.status == CallStatus::Begun {
            return Ok(Clearance::Answer(INTERRUPTED.to_owned()));
        }
        let decision = self.run.approvals.decision_for(&call.call_id, &call.tool);
        if let Some(Decision::Rejected(message)) = decision {
            return Ok(Clearance::Answer(match (message, &self.config.rejection) {
                (Some(message), _) => message.clone(),
                (None, Some(text)) => text(&call.interruption(self.run.agent())),
                (None, None) => REJECTED.to_owned(),
            }));
        }
        let tool = self.tool(&call.tool)?;
        if decision.is_some() || call.nested.is_some() {
            return Ok(Clearance::Go);
        }
        let needed = match &tool.rules().approval {
            Approval::Never => false,
            Approval::Always => true,
            // Arguments that cannot be parsed cannot be judged, so they need approval.
            Approval::When(ask) => match arguments(call) {
                Some(value) => ask((self.tool_context(call), value)).await,
                None => true,
            },
        };
        Ok(if needed { Clearance::Wait } else { Clearance::Go })
    }

    pub(super) fn tool(&self, name: &str) -> Result<Arc<dyn Tool>> {
        let tool = self.setup.as_ref().and_then(|setup| setup.tools.get(name)).cloned();
        tool.ok_or_else(|| AgentError::ModelBehavior(format!("Tool {name} is not there any more")))
    }

    pub(super) fn tool_context(&self, call: &PendingCall) -> ToolContext {
        ToolContext {
            facts: Arc::new(CallFacts {
                tool: call.tool.clone(),
                call_id: call.call_id.clone(),
                arguments: call.arguments().into_owned(),
                agent: self.run.agent().to_owned(),
                run: self.run.id().to_owned(),
            }),
            app: self.app.clone(),
            events: self.events.clone(),
            hiding: self.secrets.as_ref().map(|secrets| Arc::new(Mutex::new(secrets.stream()))),
        }
    }
}

/// Arguments of a call: an object for a function, a string for a freeform tool, `None` if they cannot be parsed.
fn arguments(call: &PendingCall) -> Option<Value> {
    if call.kind == CallKind::Custom {
        return Some(Value::from(call.arguments()));
    }
    call.parsed_arguments().ok().filter(Value::is_object)
}
