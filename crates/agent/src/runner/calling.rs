//! One call, from its arguments to its answer: guardrails, hooks, the time it may take, what a failure becomes.

use std::{borrow::Cow, sync::Arc};

use serde_json::Value;

use super::{driver::Driver, hooking::Moment, keeping, spans};
use crate::{
    AgentError, BoxError, Guarded, OnFailure, OnTimeout, Result, Tool, ToolContext, ToolOutput,
    guardrail::{Finding, GuardrailResult, ToolVerdict},
    run::{Answer, CallKind, PendingCall},
    secrets,
    trace::{Scope, Span, SpanData},
};

/// What came of a call.
pub(super) struct Called {
    pub(super) answer: Answer,
    pub(super) output_checks: Vec<GuardrailResult>,
}

impl Called {
    pub(super) fn of(answer: Answer) -> Self {
        Self { answer, output_checks: Vec::new() }
    }
}

/// A call that is being made.
pub(super) struct Made<'a> {
    pub(super) call: &'a PendingCall,
    /// Which of the due ones.
    pub(super) place: usize,
    /// Where its spans belong.
    pub(super) scope: Scope,
    pub(super) context: &'a ToolContext,
}

/// What a tool was made to answer.
pub(super) enum Invoked {
    Output(ToolOutput),
    Held(Box<crate::run::Run>),
}

impl Driver {
    pub(super) async fn call(&self, place: usize, call: &PendingCall) -> Result<()> {
        let Some(tool) = self.tool(&call.tool) else {
            return Err(AgentError::ModelBehavior(format!("Tool {} is not there any more", call.tool)));
        };
        let context = self.tool_context(call);
        let arguments = call.arguments();
        let shown = self.secrets().map_or(Cow::Borrowed(&*arguments), |secrets| secrets.hide(&arguments));
        let mut span = self.spans.open(|| SpanData::function(&call.tool, Some(&shown)));
        let made = Made { call, place, scope: span.scope(), context: &context };
        let outcome = self.call_within(&tool, &made, &mut span).await;
        context.tell_rest().await;
        if let Err(error) = &outcome {
            span.fail(|| spans::failed(error));
        }
        outcome
    }

    async fn call_within(&self, tool: &Arc<dyn Tool>, made: &Made<'_>, span: &mut Span) -> Result<()> {
        let Made { call, place, context, .. } = *made;
        let mut called = Called::of(Answer::Held(None));
        // A nested run that goes on was checked and announced when it began.
        if call.nested.is_none() {
            let mut found = Vec::new();
            let checked = self.check_call(tool, context, &mut found).await;
            self.has_checked(place, found);
            if let Some(text) = checked? {
                called.answer = Answer::Output(ToolOutput::Text(text));
                self.has_called(place, &call.call_id, called);
                return Ok(());
            }
            self.tell_hooks(Moment::ToolStart(context)).await?;
        }
        let output = match self.invoke(tool, made).await? {
            // The one place where an answer is made: whatever sees it sees it without secret values.
            Invoked::Output(output) => match self.secrets() {
                Some(secrets) => secrets::hidden(secrets, output),
                None => output,
            },
            Invoked::Held(run) => {
                called.answer = Answer::Held(Some(run));
                self.has_called(place, &call.call_id, called);
                return Ok(());
            }
        };
        let output = self.check_answer(tool, context, output, &mut called.output_checks).await?;
        span.output(|| output.wire());
        called.answer = Answer::Output(output.clone());
        // Kept before anybody is told: whoever is told may fail.
        self.has_called(place, &call.call_id, called);
        self.tell_hooks(Moment::ToolEnd(context, &output)).await
    }

    /// Calls the tool, or runs the agent behind it, within the time it has. A failure becomes what the rules say.
    async fn invoke(&self, tool: &Arc<dyn Tool>, made: &Made<'_>) -> Result<Invoked> {
        let Made { call, context, .. } = *made;
        let rules = tool.rules();
        let takes_turns = tool.as_agent().is_some() && self.run.budget().limits_models();
        let _turn = if takes_turns { Some(self.turns.lock().await) } else { None };
        let work = async {
            if let Some(agent) = tool.as_agent() {
                return self.run_nested(agent, made).await;
            }
            let arguments = checked_arguments(call)?;
            self.has_begun(&call.call_id);
            tool.call(context, &arguments).await.map(Invoked::Output)
        };
        let outcome = match rules.timeout {
            None => work.await,
            Some(limit) => match tokio::time::timeout(limit, work).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    let left = self.take_left(&call.call_id);
                    match (left, &rules.on_timeout) {
                        // The run fails, and may be taken up again where it stood.
                        (Some(left), OnTimeout::Raise) => {
                            keeping::put(&self.slot_for(made.place, &call.call_id), left.counted())
                        }
                        (Some(left), _) => self.abandon(left),
                        (None, _) => {}
                    }
                    let tool = &call.tool;
                    return match &rules.on_timeout {
                        OnTimeout::Raise => Err(AgentError::ToolTimeout { tool: tool.clone(), limit }),
                        OnTimeout::Say(word) => Ok(failed(word(context, limit))),
                        OnTimeout::Tell => {
                            Ok(failed(format!("Tool '{tool}' timed out after {} seconds.", limit.as_secs_f64())))
                        }
                    };
                }
            },
        };
        match (outcome, &rules.on_failure) {
            (Ok(invoked), _) => Ok(invoked),
            (Err(source), OnFailure::Raise) => {
                let source = match self.secrets() {
                    Some(secrets) => secrets::hidden_error(secrets, source),
                    None => source,
                };
                Err(AgentError::Tool { tool: call.tool.clone(), source })
            }
            (Err(error), OnFailure::Say(word)) => Ok(failed(word(context, error))),
            (Err(error), OnFailure::Tell) => Ok(failed(failure_text(&error))),
        }
    }

    /// What the model reads instead of an answer, if a guardrail says so.
    async fn check_call(
        &self,
        tool: &Arc<dyn Tool>,
        context: &ToolContext,
        results: &mut Vec<GuardrailResult>,
    ) -> Result<Option<String>> {
        for guardrail in &tool.rules().input_guardrails {
            let mut span = self.spans.open(|| SpanData::guardrail(guardrail.name()));
            let verdict = guardrail.check(context.clone()).await;
            if !matches!(verdict, Ok(ToolVerdict::Allow)) {
                spans::tripped(&mut span);
            }
            let words = self.judged(Guarded::ToolInput, guardrail.name(), verdict, results)?;
            if words.is_some() {
                return Ok(words);
            }
        }
        Ok(None)
    }

    async fn check_answer(
        &self,
        tool: &Arc<dyn Tool>,
        context: &ToolContext,
        output: ToolOutput,
        results: &mut Vec<GuardrailResult>,
    ) -> Result<ToolOutput> {
        for guardrail in &tool.rules().output_guardrails {
            let mut span = self.spans.open(|| SpanData::guardrail(guardrail.name()));
            let verdict = guardrail.check(context.clone(), output.clone()).await;
            if !matches!(verdict, Ok(ToolVerdict::Allow)) {
                spans::tripped(&mut span);
            }
            if let Some(words) = self.judged(Guarded::ToolOutput, guardrail.name(), verdict, results)? {
                return Ok(ToolOutput::Text(words));
            }
        }
        Ok(output)
    }

    fn judged(
        &self,
        place: Guarded,
        guardrail: &str,
        verdict: Result<ToolVerdict, BoxError>,
        results: &mut Vec<GuardrailResult>,
    ) -> Result<Option<String>> {
        let verdict = verdict
            .map_err(|source| AgentError::Callback { what: format!("{place} guardrail {guardrail}"), source })?;
        let (words, finding) = match verdict {
            ToolVerdict::Allow => (None, Finding::pass()),
            ToolVerdict::Reject(words) => (Some(words.clone()), Finding { info: Value::from(words), tripped: false }),
            ToolVerdict::Stop(info) => {
                return Err(AgentError::Tripwire { place, guardrail: guardrail.to_owned(), info });
            }
        };
        let (guardrail, agent) = (guardrail.to_owned(), self.run.agent().to_owned());
        results.push(GuardrailResult { guardrail, agent, finding });
        Ok(words)
    }
}

/// What a tool is called with: for a function a JSON object, else any text.
fn checked_arguments(call: &PendingCall) -> Result<Cow<'_, str>, BoxError> {
    let arguments = call.arguments();
    if call.kind == CallKind::Custom {
        return Ok(arguments);
    }
    if arguments.trim().is_empty() {
        return Ok("{}".into());
    }
    match serde_json::from_str::<Value>(&arguments) {
        Ok(Value::Object(_)) => Ok(arguments),
        Ok(_) => Err(BadArguments("they must be a JSON object".to_owned()).into()),
        Err(error) => Err(BadArguments(error.to_string()).into()),
    }
}

/// Arguments that no tool can be called with.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct BadArguments(pub(super) String);

fn failure_text(error: &BoxError) -> String {
    if error.is::<BadArguments>() {
        return format!(
            "An error occurred while parsing tool arguments. Please try again with valid JSON. Error: {error}"
        );
    }
    format!("An error occurred while running the tool. Please try again. Error: {error}")
}

fn failed(words: String) -> Invoked {
    Invoked::Output(ToolOutput::Failure(words))
}
