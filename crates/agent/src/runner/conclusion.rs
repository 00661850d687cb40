//! End of a turn: decides whether the reply is the final output, and finishes the run if it is.

use serde_json::Value;

use super::{driver::Driver, hooks::Moment};
use crate::{
    AgentError, Item, Result, RunItemKind, View,
    config::{Recover, Recovery, RunProblem},
    run::{Origin, Phase},
};

/// What a reply means for the run.
enum Verdict {
    Again,
    Final(Value),
    Refused(String),
    Invalid(String),
    /// Structured output was requested, and the reply has no text.
    Empty,
}

impl Driver {
    pub(super) async fn conclude(&mut self) -> Result<()> {
        let agent = self.agent()?.clone();
        let decided = agent.parts().tool_use.verdict(&self.app, self.run.phase.tool_results()).await?;
        let origin = if decided.is_some() { Origin::Tools } else { Origin::Message };
        let verdict = match decided {
            Some(Value::String(text)) => Verdict::Final(Value::String(text)),
            Some(value) if agent.output_type().is_text() => Verdict::Final(Value::String(value.to_string())),
            Some(value) => Verdict::Final(value),
            None if self.run.phase.had_calls() => Verdict::Again,
            None => self.read_message(&agent),
        };
        let recoveries = self.config.recoveries.clone();
        match verdict {
            Verdict::Again => {
                self.run.phase = Phase::Ready;
                Ok(())
            }
            Verdict::Final(output) => self.finish(output, origin).await,
            Verdict::Refused(words) => {
                let recovery = self.recovery(recoveries.refusal.as_ref(), &words).await;
                self.recover(recovery, AgentError::Refusal(words)).await
            }
            Verdict::Invalid(why) => {
                let recovery = self.recovery(recoveries.invalid_output.as_ref(), &why).await;
                self.recover(recovery, AgentError::ModelBehavior(format!("Invalid final output: {why}"))).await
            }
            Verdict::Empty => {
                let why = "the final output is empty";
                match self.recovery(recoveries.invalid_output.as_ref(), why).await {
                    Some(recovery) => self.end_with(recovery).await,
                    None => {
                        self.run.phase = Phase::Ready;
                        Ok(())
                    }
                }
            }
        }
    }

    fn read_message(&self, agent: &crate::Agent) -> Verdict {
        let items = self.run.last_reply();
        let mut messages = items.iter().rev().filter_map(|item| match item.raw.view() {
            View::Message(message) => Some(message),
            _ => None,
        });
        let Some(last) = messages.next() else {
            // The server's own tools were called, and the model has not written a message yet.
            let worked = items.iter().any(|item| item.kind == RunItemKind::ToolCall);
            return match (worked, agent.output_type().is_text()) {
                (true, _) => Verdict::Again,
                (false, true) => Verdict::Final(Value::from("")),
                (false, false) => Verdict::Empty,
            };
        };
        if let Some(words) = last.refusal() {
            return Verdict::Refused(words);
        }
        let text = last.text();
        if agent.output_type().is_text() {
            return Verdict::Final(Value::String(text));
        }
        if text.is_empty() {
            return Verdict::Empty;
        }
        match agent.output_type().parse(&text) {
            Ok(value) => Verdict::Final(value),
            Err(why) => Verdict::Invalid(why),
        }
    }

    /// The limit of turns is reached.
    pub(super) async fn out_of_turns(&mut self, most: u32) -> Result<()> {
        let error = AgentError::MaxTurns(most);
        let recover = self.config.recoveries.max_turns.clone();
        let recovery = self.recovery(recover.as_ref(), &error.to_string()).await;
        self.recover(recovery, error).await
    }

    async fn recovery(&self, recover: Option<&Recover>, what: &str) -> Option<Recovery> {
        let recover = recover?;
        recover(RunProblem { what: what.to_owned(), run: self.run.clone() }).await
    }

    async fn recover(&mut self, recovery: Option<Recovery>, error: AgentError) -> Result<()> {
        match recovery {
            Some(recovery) => self.end_with(recovery).await,
            None => Err(error),
        }
    }

    /// Ends the run with the output of a recovery function.
    async fn end_with(&mut self, Recovery { output, kept }: Recovery) -> Result<()> {
        let agent = self.agent()?;
        let output = match output {
            value if agent.output_type().is_text() && !value.is_string() => Value::String(value.to_string()),
            value => value,
        };
        agent
            .output_type()
            .check(&output)
            .map_err(|why| AgentError::Misuse(format!("the output that should end the run is not valid: {why}")))?;
        let text = output.as_str().map_or_else(|| output.to_string(), str::to_owned);
        self.finish(output, Origin::Recovery).await?;
        if kept {
            self.run.add_message(Item::assistant(text));
            self.emit_new_items().await;
        }
        Ok(())
    }

    async fn finish(&mut self, output: Value, origin: Origin) -> Result<()> {
        self.call_hooks(Moment::AgentEnd(&output)).await?;
        self.check_output(&output, origin).await?;
        self.run.phase = Phase::Done { output };
        Ok(())
    }
}
