//! Guardrails of a run: on its input (before or during the first model call) and on its output.

use futures::{StreamExt as _, stream::FuturesUnordered};
use serde_json::Value;

use super::{driver::Driver, spans};
use crate::{
    AgentError, BoxError, Guarded, Result,
    guardrail::{Finding, GuardrailResult, InputCheck, OutputCheck, Timing},
    run::Origin,
    trace::SpanData,
};

impl Driver {
    /// Runs the blocking input guardrails, once, before the first turn.
    pub(super) async fn check_input_first(&mut self) -> Result<()> {
        if self.run.checks.blocking_done || self.run.turn() > 0 {
            return Ok(());
        }
        let mut results = Vec::new();
        let outcome = self.check_input(Timing::Blocking, &mut results).await;
        self.run.checks.input.extend(results);
        outcome?;
        self.run.checks.blocking_done = true;
        Ok(())
    }

    /// Runs all input guardrails of one timing.
    pub(super) async fn check_input(&self, timing: Timing, results: &mut Vec<GuardrailResult>) -> Result<()> {
        let all = self.agent()?.parts().input_guardrails.iter().chain(&self.config.input_guardrails);
        let checks = all.filter(|(when, _)| *when == timing).map(|(_, guardrail)| {
            let (app, agent, input) = (self.app.clone(), self.run.agent().to_owned(), self.run.input().to_vec());
            (guardrail.name(), guardrail.check(InputCheck { app, agent, input }))
        });
        self.check(Guarded::Input, checks, results).await
    }

    /// Runs the output guardrails. If one trips, the output is removed from the run.
    pub(super) async fn check_output(&mut self, output: &Value, origin: Origin) -> Result<()> {
        let all = self.agent()?.parts().output_guardrails.iter().chain(&self.config.output_guardrails);
        let checks = all.map(|guardrail| {
            let (app, agent, output) = (self.app.clone(), self.run.agent().to_owned(), output.clone());
            (guardrail.name(), guardrail.check(OutputCheck { app, agent, output }))
        });
        let mut results = Vec::new();
        let outcome = self.check(Guarded::Output, checks, &mut results).await;
        self.run.checks.output.extend(results);
        if matches!(outcome, Err(AgentError::Tripwire { .. })) {
            self.run.withhold(origin);
        }
        outcome
    }

    /// Runs guardrails concurrently; the first that trips cancels the others.
    async fn check<'g>(
        &self,
        place: Guarded,
        checks: impl Iterator<Item = (&'g str, impl Future<Output = Result<Finding, BoxError>>)>,
        results: &mut Vec<GuardrailResult>,
    ) -> Result<()> {
        let in_spans = checks.map(|(name, check)| async move {
            let mut span = self.spans.open(|| SpanData::guardrail(name));
            let found = check.await;
            if found.as_ref().map_or(true, |finding| finding.tripped) {
                spans::tripped(&mut span);
            }
            (name.to_owned(), found)
        });
        let mut running: FuturesUnordered<_> = in_spans.collect();
        while let Some((guardrail, found)) = running.next().await {
            let finding = found
                .map_err(|source| AgentError::Callback { what: format!("{place} guardrail {guardrail}"), source })?;
            let agent = self.run.agent().to_owned();
            results.push(GuardrailResult { guardrail: guardrail.clone(), agent, finding: finding.clone() });
            if finding.tripped {
                return Err(AgentError::Tripwire { place, guardrail, info: finding.info });
            }
        }
        Ok(())
    }
}
