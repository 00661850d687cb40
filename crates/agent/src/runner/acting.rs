//! Making the calls of a reply: who may go ahead, all of them at once, answers in the model's order.

use std::time::Duration;

use futures::{StreamExt as _, stream::FuturesUnordered};
use serde_json::Value;

use super::{calling::Called, driver::Driver};
use crate::{
    AgentError, Approval, Interruption, Result, ToolContext,
    run::{Answer, CallKind, CallStatus, Decision, PendingCall},
};

/// How long calls that are nearly done may take to finish when another one has failed.
const SETTLE: Duration = Duration::from_millis(100);

/// What is said about a call that was stopped in the middle.
const INTERRUPTED: &str =
    "The call was interrupted before it answered. It is not known whether it took effect; check before trying again.";

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
        for (place, call) in calls.iter().enumerate() {
            let answer = match self.clearance(call).await? {
                Clearance::Go => {
                    cleared.push((place, call));
                    continue;
                }
                Clearance::Wait => Answer::Held(None),
                Clearance::Answer(text) => Answer::Words(text),
            };
            self.has_called(place, &call.call_id, Called::of(answer));
        }
        self.call_all(&cleared).await
    }

    /// Makes calls at the same time. If one fails, the others are given a moment; what they answered is kept.
    async fn call_all(&self, calls: &[(usize, &PendingCall)]) -> Result<()> {
        let most = self.config.tool_concurrency.map_or(usize::MAX, std::num::NonZero::get);
        let mut waiting = calls.iter();
        let make = |(place, call): &(usize, &PendingCall)| {
            let (place, call) = (*place, (*call).clone());
            async move { self.call(place, &call).await }
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
        let decision = self.run.approvals.about(&call.call_id, &call.tool);
        if let Some(Decision::Rejected(message)) = decision {
            return Ok(Clearance::Answer(self.rejected(call, message.as_deref())));
        }
        let Some(tool) = self.tool(&call.tool) else {
            return Err(AgentError::ModelBehavior(format!("Tool {} is not there any more", call.tool)));
        };
        if decision.is_some() || call.nested.is_some() {
            return Ok(Clearance::Go);
        }
        let needed = match &tool.rules().approval {
            Approval::Never => false,
            Approval::Always => true,
            // Arguments nobody can read are nobody's to wave through.
            Approval::When(ask) => match arguments(call) {
                Some(value) => ask((self.tool_context(call), value)).await,
                None => true,
            },
        };
        Ok(if needed { Clearance::Wait } else { Clearance::Go })
    }

    /// What the model is told about a call that a person refused.
    fn rejected(&self, call: &PendingCall, message: Option<&str>) -> String {
        if let Some(message) = message {
            return message.to_owned();
        }
        let usual = "Tool execution was not approved.";
        let Some(word) = &self.config.rejection else { return usual.to_owned() };
        word(&Interruption {
            agent: self.run.agent().to_owned(),
            tool: call.tool.clone(),
            call_id: call.call_id.clone(),
            arguments: call.arguments().into_owned(),
            inside: Vec::new(),
            raw: call.raw.clone(),
        })
    }

    pub(super) fn tool(&self, name: &str) -> Option<std::sync::Arc<dyn crate::Tool>> {
        self.equipment.as_ref()?.tools.get(name).cloned()
    }

    pub(super) fn tool_context(&self, call: &PendingCall) -> ToolContext {
        ToolContext {
            facts: std::sync::Arc::new(crate::tool::CallFacts {
                tool: call.tool.clone(),
                call_id: call.call_id.clone(),
                arguments: call.arguments().into_owned(),
                agent: self.run.agent().to_owned(),
                run: self.run.id().to_owned(),
            }),
            app: self.app.clone(),
            events: self.events.clone(),
            hiding: self.secrets().map(|secrets| std::sync::Arc::new(std::sync::Mutex::new(secrets.stream()))),
        }
    }
}

/// What a call is made with: an object for a function, a string for a freeform tool, nothing if it cannot be read.
fn arguments(call: &PendingCall) -> Option<Value> {
    if call.kind == CallKind::Custom {
        return Some(Value::from(call.arguments()));
    }
    let arguments = call.arguments();
    let text = arguments.trim();
    if text.is_empty() {
        return Some(Value::Object(serde_json::Map::new()));
    }
    serde_json::from_str::<Value>(text).ok().filter(Value::is_object)
}
