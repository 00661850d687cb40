//! Handing the conversation over: telling whoever wants to know, and showing the next agent what it should see.

use serde_json::Value;

use super::{driver::Driver, hooking::Moment};
use crate::{
    AgentError, Result, RunEvent, ToolOutput,
    run::{Answer, CallKind, Thread},
    trace::SpanData,
};

impl Driver {
    pub(super) async fn hand_over(&mut self, call_id: &str) -> Result<()> {
        let equipment = self.equip().await?;
        let handoffs = equipment.handoffs.clone();
        let Some(call) = self.run.due_handoff().filter(|call| call.call_id == call_id).cloned() else { return Ok(()) };
        let CallKind::Handoff(target) = &call.kind else { return Ok(()) };
        let Some(handoff) = handoffs.get(&call.tool) else {
            return Err(AgentError::ModelBehavior(format!("Handoff {} is not offered any more", call.tool)));
        };
        let filter = handoff.filter.as_ref().or(self.config.handoff_filter.as_ref()).cloned();
        if filter.is_some() && self.run.thread != Thread::Ours {
            return Err(AgentError::Misuse(
                "a handoff filter cannot change a conversation that the server keeps".to_owned(),
            ));
        }
        let said = match call.arguments().trim() {
            "" => Ok(Value::Object(serde_json::Map::new())),
            text => serde_json::from_str(text),
        };
        let told = match (said, &handoff.on_handoff) {
            (Err(error), _) => Err(error.into()),
            (Ok(value), Some(tell)) => tell(self.app.clone(), value).await,
            (Ok(_), None) => Ok(()),
        };
        if let Err(error) = told {
            // The model can try again: nothing was handed over yet.
            let text = format!("The handoff did not take place. Error: {error}");
            self.run.answered(vec![(call.call_id, Answer::Output(ToolOutput::Text(text)))]);
            self.tell_new().await;
            return Ok(());
        }
        let mut span = self.spans.open(|| SpanData::handoff(self.run.agent()));
        if self.run.handoffs_asked() > 1 {
            span.fail(|| "Multiple handoffs requested".into());
        }
        let (source, to) = (self.run.agent().to_owned(), self.roster.agent(target)?.name().to_owned());
        span.update(|data| {
            if let SpanData::Handoff { to_agent, .. } = data {
                *to_agent = Some(to.clone());
            }
        });
        // It has taken place before anybody is told: whoever is told may fail.
        self.run.hand_over(call_id, target, &to, filter.as_ref());
        drop(span);
        self.tell_hooks_of(&source, Moment::Handoff { from: &source, to: &to }).await?;
        self.tell_new().await;
        self.events.tell(RunEvent::Agent(to)).await;
        Ok(())
    }
}
