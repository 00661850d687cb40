//! Executes a handoff: calls its function and the hooks, and filters what the next agent sees.

use super::{driver::Driver, hooks::Moment};
use crate::{
    AgentError, Result, RunEvent, ToolOutput,
    run::{Answer, CallKind, Thread},
    trace::SpanData,
};

impl Driver {
    pub(super) async fn hand_over(&mut self, call_id: &str) -> Result<()> {
        let setup = self.equip().await?;
        let handoffs = setup.handoffs.clone();
        let Some(call) = self.run.phase.due_handoff().filter(|call| call.call_id == call_id).cloned() else {
            return Ok(());
        };
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
        let accepted = match (call.parsed_arguments(), &handoff.on_handoff) {
            (Err(error), _) => Err(error.into()),
            (Ok(value), Some(on_handoff)) => on_handoff(self.app.clone(), value).await,
            (Ok(_), None) => Ok(()),
        };
        if let Err(error) = accepted {
            // The handoff has not happened, so the model can try again.
            let text = format!("The handoff did not take place. Error: {error}");
            self.run.answered(vec![(call.call_id, Answer::Output(ToolOutput::Text(text)))]);
            self.emit_new_items().await;
            return Ok(());
        }
        let mut span = self.spans.open(|| SpanData::handoff(self.run.agent()));
        if self.run.phase.handoffs_asked() > 1 {
            span.fail(|| "Multiple handoffs requested".into());
        }
        let (source, to) = (self.run.agent().to_owned(), self.roster.agent(target)?.name().to_owned());
        span.update(|data| {
            if let SpanData::Handoff { to_agent, .. } = data {
                *to_agent = Some(to.clone());
            }
        });
        // The run changes before the hooks are called, because a hook may fail.
        self.run.hand_over(call_id, target, &to, filter.as_ref());
        drop(span);
        self.call_hooks_of(&source, Moment::Handoff { from: &source, to: &to }).await?;
        self.emit_new_items().await;
        self.events.emit(RunEvent::Agent(to)).await;
        Ok(())
    }
}
