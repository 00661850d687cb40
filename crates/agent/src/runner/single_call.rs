//! One tool call from its arguments to its answer: guardrails, hooks, timeout, and what a failure becomes.

use std::{borrow::Cow, sync::Arc};

use serde_json::Value;

use super::{checkpoint, driver::Driver, hooks::Moment, spans};
use crate::{
    AgentError, BoxError, Guarded, OnFailure, OnTimeout, Result, Tool, ToolContext, ToolOutput,
    guardrail::{Finding, GuardrailResult, ToolVerdict},
    run::{Answer, CallKind, PendingCall},
    secrets,
    trace::{Scope, Span, SpanData},
};

/// Answer of a call, with what output guardrails found.
pub(super) struct CallOutcome {
    pub(super) answer: Answer,
    pub(super) output_checks: Vec<GuardrailResult>,
}

impl CallOutcome {
    pub(super) fn of(answer: Answer) -> Self {
        Self { answer, output_checks: Vec::new() }
    }
}

/// A call that is being made.
pub(super) struct ActiveCall<'a> {
    pub(super) driver: &'a Driver,
    pub(super) call: &'a PendingCall,
    tool: &'a Arc<dyn Tool>,
    /// Index among the due calls.
    pub(super) index: usize,
    /// Trace scope that its spans belong to.
    pub(super) scope: Scope,
    context: &'a ToolContext,
}

/// What a tool returned: an output, or a nested run that waits for a person.
pub(super) enum ToolOutcome {
    Output(ToolOutput),
    Pending(Box<crate::run::Run>),
}

impl Driver {
    pub(super) async fn call(&self, index: usize, call: &PendingCall) -> Result<()> {
        let tool = self.tool(&call.tool)?;
        let context = self.tool_context(call);
        let arguments = call.arguments();
        let shown = self.secrets.as_deref().map_or(Cow::Borrowed(&*arguments), |secrets| secrets.hide(&arguments));
        let mut span = self.spans.open(|| SpanData::function(&call.tool, Some(&shown)));
        let made = ActiveCall { driver: self, call, tool: &tool, index, scope: span.scope(), context: &context };
        let outcome = made.make(&mut span).await;
        context.tell_rest().await;
        if let Err(error) = &outcome {
            span.fail(|| spans::failed(error));
        }
        outcome
    }
}

impl ActiveCall<'_> {
    async fn make(&self, span: &mut Span) -> Result<()> {
        let Self { driver, call, index, context, .. } = *self;
        let mut called = CallOutcome::of(Answer::Pending(None));
        // A nested run that is resumed was checked and announced when it began.
        if call.nested.is_none() {
            let mut found = Vec::new();
            let checked = self.check_call(&mut found).await;
            driver.progress.record_checks(index, found);
            if let Some(text) = checked? {
                called.answer = Answer::Output(ToolOutput::Text(text));
                driver.progress.record_outcome(index, &call.call_id, called);
                return Ok(());
            }
            driver.call_hooks(Moment::ToolStart(context)).await?;
        }
        let output = match self.invoke().await? {
            // Every answer passes here, so hooks, guardrails, traces and the model never see secret values.
            ToolOutcome::Output(output) => match driver.secrets.as_deref() {
                Some(secrets) => secrets::hidden(secrets, output),
                None => output,
            },
            ToolOutcome::Pending(run) => {
                called.answer = Answer::Pending(Some(run));
                driver.progress.record_outcome(index, &call.call_id, called);
                return Ok(());
            }
        };
        let output = self.check_answer(output, &mut called.output_checks).await?;
        span.output(|| output.wire());
        called.answer = Answer::Output(output.clone());
        // Recorded before the hooks are called, because a hook may fail.
        driver.progress.record_outcome(index, &call.call_id, called);
        driver.call_hooks(Moment::ToolEnd(context, &output)).await
    }

    /// Calls the tool, or runs the agent behind it, within its timeout. The rules decide what a failure becomes.
    async fn invoke(&self) -> Result<ToolOutcome> {
        let Self { driver, call, tool, context, .. } = *self;
        let rules = tool.rules();
        let takes_turns = tool.as_agent().is_some() && driver.run.budget().limits_models();
        let _turn = if takes_turns { Some(driver.turns.lock().await) } else { None };
        let work = async {
            if let Some(agent) = tool.as_agent() {
                return self.run_nested(agent).await;
            }
            let arguments = checked_arguments(call)?;
            driver.progress.record_begun(&call.call_id);
            tool.call(context, &arguments).await.map(ToolOutcome::Output)
        };
        let outcome = match rules.timeout {
            None => work.await,
            Some(limit) => match tokio::time::timeout(limit, work).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    let interrupted = driver.progress.take_interrupted(&call.call_id);
                    match (interrupted, &rules.on_timeout) {
                        // The run fails; it can be resumed, and the nested run with it.
                        (Some(interrupted), OnTimeout::Raise) => {
                            let slot = driver.progress.slot_for(self.index, &call.call_id);
                            checkpoint::store(&slot, interrupted.counted());
                        }
                        (Some(interrupted), _) => driver.progress.abandon(interrupted),
                        (None, _) => {}
                    }
                    let tool = &call.tool;
                    return match &rules.on_timeout {
                        OnTimeout::Raise => Err(AgentError::ToolTimeout { tool: tool.clone(), limit }),
                        OnTimeout::Say(text) => Ok(failed(text(context, limit))),
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
                let source = match driver.secrets.as_deref() {
                    Some(secrets) => secrets::hidden_error(secrets, source),
                    None => source,
                };
                Err(AgentError::Tool { tool: call.tool.clone(), source })
            }
            (Err(error), OnFailure::Say(text)) => Ok(failed(text(context, error))),
            (Err(error), OnFailure::Tell) => Ok(failed(failure_text(&error))),
        }
    }

    /// Checks a call before it is made. Returns the text for the model if a guardrail rejects the call.
    async fn check_call(&self, results: &mut Vec<GuardrailResult>) -> Result<Option<String>> {
        for guardrail in &self.tool.rules().input_guardrails {
            let check = guardrail.check(self.context.clone());
            let rejection = self.judged(Guarded::ToolInput, guardrail.name(), check, results).await?;
            if rejection.is_some() {
                return Ok(rejection);
            }
        }
        Ok(None)
    }

    async fn check_answer(&self, output: ToolOutput, results: &mut Vec<GuardrailResult>) -> Result<ToolOutput> {
        for guardrail in &self.tool.rules().output_guardrails {
            let check = guardrail.check(self.context.clone(), output.clone());
            if let Some(rejection) = self.judged(Guarded::ToolOutput, guardrail.name(), check, results).await? {
                return Ok(ToolOutput::Text(rejection));
            }
        }
        Ok(output)
    }

    async fn judged(
        &self,
        place: Guarded,
        guardrail: &str,
        check: impl Future<Output = Result<ToolVerdict, BoxError>>,
        results: &mut Vec<GuardrailResult>,
    ) -> Result<Option<String>> {
        let mut span = self.driver.spans.open(|| SpanData::guardrail(guardrail));
        let verdict = check.await;
        if !matches!(verdict, Ok(ToolVerdict::Allow)) {
            spans::tripped(&mut span);
        }
        let verdict = verdict
            .map_err(|source| AgentError::Callback { what: format!("{place} guardrail {guardrail}"), source })?;
        let (rejection, finding) = match verdict {
            ToolVerdict::Allow => (None, Finding::pass()),
            ToolVerdict::Reject(text) => (Some(text.clone()), Finding { info: Value::from(text), tripped: false }),
            ToolVerdict::Stop(info) => {
                return Err(AgentError::Tripwire { place, guardrail: guardrail.to_owned(), info });
            }
        };
        let (guardrail, agent) = (guardrail.to_owned(), self.driver.run.agent().to_owned());
        results.push(GuardrailResult { guardrail, agent, finding });
        Ok(rejection)
    }
}

/// Arguments of a call: a JSON object for a function, any text for a freeform tool.
fn checked_arguments(call: &PendingCall) -> Result<Cow<'_, str>, BoxError> {
    let arguments = call.arguments();
    if call.kind == CallKind::Custom {
        return Ok(arguments);
    }
    match call.parsed_arguments() {
        Ok(Value::Object(_)) if arguments.trim().is_empty() => Ok("{}".into()),
        Ok(Value::Object(_)) => Ok(arguments),
        Ok(_) => Err(BadArguments("they must be a JSON object".to_owned()).into()),
        Err(error) => Err(BadArguments(error.to_string()).into()),
    }
}

/// Arguments that cannot be parsed as the tool needs them.
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

fn failed(text: String) -> ToolOutcome {
    ToolOutcome::Output(ToolOutput::Failure(text))
}
