//! Guardrails of a run: on its input (before or during the first model call) and on its output.

use futures::{StreamExt as _, stream::FuturesUnordered};
use serde_json::Value;

use super::{driver::Driver, spans};
use crate::{
    AgentError, Guarded, Result,
    guardrail::{GuardrailResult, InputCheck, InputGuardrail, OutputCheck, Timing},
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

    /// Runs all input guardrails of one timing concurrently; the first that trips cancels the others.
    pub(super) async fn check_input(&self, timing: Timing, results: &mut Vec<GuardrailResult>) -> Result<()> {
        let agent = self.agent()?;
        let all = agent.parts().input_guardrails.iter().chain(&self.config.input_guardrails);
        let guardrails: Vec<&InputGuardrail> =
            all.filter(|(when, _)| *when == timing).map(|(_, guardrail)| guardrail).collect();
        let mut running: FuturesUnordered<_> = guardrails
            .into_iter()
            .map(|guardrail| async {
                let check = InputCheck {
                    app: self.app.clone(),
                    agent: self.run.agent().to_owned(),
                    input: self.run.input().to_vec(),
                };
                let mut span = self.spans.open(|| SpanData::guardrail(guardrail.name()));
                let found = guardrail.check(check).await;
                if found.as_ref().map_or(true, |finding| finding.tripped) {
                    spans::tripped(&mut span);
                }
                (guardrail.name().to_owned(), found)
            })
            .collect();
        while let Some((guardrail, found)) = running.next().await {
            let finding = found
                .map_err(|source| AgentError::Callback { what: format!("input guardrail {guardrail}"), source })?;
            let agent = self.run.agent().to_owned();
            results.push(GuardrailResult { guardrail: guardrail.clone(), agent, finding: finding.clone() });
            if finding.tripped {
                return Err(AgentError::Tripwire { place: Guarded::Input, guardrail, info: finding.info });
            }
        }
        Ok(())
    }

    /// Runs the output guardrails. If one trips, the output is removed from the run.
    pub(super) async fn check_output(&mut self, output: &Value, origin: Origin) -> Result<()> {
        let guardrails = self.agent()?.parts().output_guardrails.iter().chain(&self.config.output_guardrails);
        let mut running: FuturesUnordered<_> = guardrails
            .map(|guardrail| {
                let check =
                    OutputCheck { app: self.app.clone(), agent: self.run.agent().to_owned(), output: output.clone() };
                let guardrail = guardrail.clone();
                let mut span = self.spans.open(|| SpanData::guardrail(guardrail.name()));
                async move {
                    let found = guardrail.check(check).await;
                    if found.as_ref().map_or(true, |finding| finding.tripped) {
                        spans::tripped(&mut span);
                    }
                    (guardrail.name().to_owned(), found)
                }
            })
            .collect();
        while let Some((guardrail, found)) = running.next().await {
            let finding = found
                .map_err(|source| AgentError::Callback { what: format!("output guardrail {guardrail}"), source })?;
            let agent = self.run.agent().to_owned();
            let result = GuardrailResult { guardrail: guardrail.clone(), agent, finding: finding.clone() };
            self.run.checks.output.push(result);
            if finding.tripped {
                self.run.withhold(origin);
                return Err(AgentError::Tripwire { place: Guarded::Output, guardrail, info: finding.info });
            }
        }
        Ok(())
    }
}
