//! End of a turn: decides whether the reply is the final output, and finishes the run if it is.

use serde_json::Value;

use super::{driver::Driver, hooks::Moment};
use crate::{
    Agent, AgentError, Item, Result, RunItem, RunItemKind, View,
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

impl Verdict {
    /// What a reply without calls means.
    fn of_reply(items: &[RunItem], agent: &Agent) -> Self {
        let mut messages = items.iter().rev().filter_map(|item| match item.raw.view() {
            View::Message(message) => Some(message),
            _ => None,
        });
        let Some(last) = messages.next() else {
            // The server's own tools were called, and the model has not written a message yet.
            let worked = items.iter().any(|item| item.kind == RunItemKind::ToolCall);
            return match (worked, agent.output_type().is_text()) {
                (true, _) => Self::Again,
                (false, true) => Self::Final(Value::from("")),
                (false, false) => Self::Empty,
            };
        };
        if let Some(words) = last.refusal() {
            return Self::Refused(words);
        }
        let text = last.text();
        if agent.output_type().is_text() {
            return Self::Final(Value::String(text));
        }
        if text.is_empty() {
            return Self::Empty;
        }
        match agent.output_type().parse(&text) {
            Ok(value) => Self::Final(value),
            Err(why) => Self::Invalid(why),
        }
    }
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
            None => Verdict::of_reply(self.run.last_reply(), &agent),
        };
        let recoveries = self.config.recoveries.clone();
        match verdict {
            Verdict::Again => {
                self.run.phase = Phase::Ready;
                Ok(())
            }
            Verdict::Final(output) => self.finish(output, origin).await,
            Verdict::Refused(words) => {
                let is_over = self.recover(recoveries.refusal.as_ref(), &words).await?;
                if is_over { Ok(()) } else { Err(AgentError::Refusal(words)) }
            }
            Verdict::Invalid(why) => {
                let is_over = self.recover(recoveries.invalid_output.as_ref(), &why).await?;
                let error = || AgentError::ModelBehavior(format!("Invalid final output: {why}"));
                if is_over { Ok(()) } else { Err(error()) }
            }
            Verdict::Empty => {
                if !self.recover(recoveries.invalid_output.as_ref(), "the final output is empty").await? {
                    self.run.phase = Phase::Ready;
                }
                Ok(())
            }
        }
    }

    /// The limit of turns is reached.
    pub(super) async fn out_of_turns(&mut self, most: u32) -> Result<()> {
        let error = AgentError::MaxTurns(most);
        let recover = self.config.recoveries.max_turns.clone();
        let is_over = self.recover(recover.as_ref(), &error.to_string()).await?;
        if is_over { Ok(()) } else { Err(error) }
    }

    /// Asks the recovery function of a problem, if there is one. Returns whether it ended the run.
    async fn recover(&mut self, recover: Option<&Recover>, what: &str) -> Result<bool> {
        let Some(recover) = recover else { return Ok(false) };
        let problem = RunProblem { what: what.to_owned(), run: self.run.clone() };
        let Some(recovery) = recover(problem).await else { return Ok(false) };
        self.end_with(recovery).await?;
        Ok(true)
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
