//! The model call of a turn: builds the request, streams the reply, and retries where that is safe.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;

use super::{agent_setup::AgentSetup, driver::Driver, hooks::Moment, spans};
use crate::{
    Agent, AgentError, FilteredInput, InputTransform, Items, Model, ModelError, ModelEvent, ModelReply, ModelRequest,
    ModelSettings, Question, Result, RunConfig, Usage,
    config::ModelInput,
    guardrail::Timing,
    model::retry,
    run::{Run, Thread},
    trace::SpanData,
};

impl Driver {
    pub(super) async fn ask(&mut self) -> Result<()> {
        self.equip().await?;
        self.agree_with_thread()?;
        self.spans.turn(self.run.turn().saturating_add(1));
        if !self.run.greeted {
            self.call_hooks(Moment::AgentStart).await?;
            self.run.greeted = true;
        }
        let request = self.question().await?;
        let agent = self.agent()?;
        let model = self.config.choose(&agent.parts().model)?;
        self.call_hooks(Moment::LlmStart(request.instructions.as_deref(), &request.input)).await?;
        let reply = self.request_with_guardrails(&model, request).await?;
        let Some(setup) = &self.setup else { return Ok(()) };
        let told = reply.clone();
        if let Err(error) = self.run.replied(model.name(), reply, &setup.offer) {
            // An invalid reply still has to be paid for.
            self.run.usage.add_request(model.name(), &told.usage);
            return Err(error);
        }
        self.call_hooks(Moment::LlmEnd(&told)).await?;
        self.emit_new_items().await;
        Ok(())
    }

    /// Sends the request while the parallel guardrails check the input. The first failure cancels the other side.
    async fn request_with_guardrails(&mut self, model: &Arc<dyn Model>, request: ModelRequest) -> Result<ModelReply> {
        if self.run.checks.parallel_done || self.run.turn() > 0 {
            return ModelCall { driver: self, model }.send(request).await;
        }
        let mut results = Vec::new();
        let mut used = None;
        let listened = async {
            let reply = ModelCall { driver: self, model }.send(request).await?;
            used = Some(reply.usage.clone());
            Ok(reply)
        };
        let outcome = futures::future::try_join(listened, self.check_input(Timing::Parallel, &mut results)).await;
        if let (Err(_), Some(used)) = (&outcome, used) {
            // The reply was received and is discarded; it still has to be paid for.
            self.run.usage.add_request(model.name(), &used);
        }
        self.run.checks.input.extend(results);
        let (heard, ()) = outcome?;
        self.run.checks.parallel_done = true;
        Ok(heard)
    }

    async fn question(&mut self) -> Result<ModelRequest> {
        let agent = self.agent()?.clone();
        let parts = agent.parts();
        let (instructions, prompt) = futures::future::try_join(
            parts.instructions.resolve(&self.app, &agent),
            parts.prompt.resolve(&self.app, &agent),
        )
        .await?;
        let Some(AgentSetup { kit, specs, .. }) = &self.setup else {
            return Err(AgentError::Misuse("the agent has no setup".to_owned()));
        };
        let (kit, specs) = (kit.clone(), Arc::clone(specs));
        let instructions = match &kit.instructions {
            Some(compose) => Some(compose(instructions).await.map_err(AgentError::Environment)?),
            None => instructions,
        };
        let items = self.transformed_input(&kit.input_transforms, &agent, instructions.as_ref()).await?;
        let (instructions, input) = match &self.config.input_filter {
            None => (instructions, items),
            Some(filter) => {
                let what = || "the filter of the model's input".to_owned();
                let input = ModelInput { instructions, items: items.into_vec() };
                let filtered = (filter.0)(input, agent.name().to_owned()).await;
                let input = filtered.map_err(|source| AgentError::Callback { what: what(), source })?;
                (input.instructions, input.items.into())
            }
        };
        let (previous_response_id, conversation_id) = match self.run.thread.clone() {
            Thread::Ours => (None, None),
            Thread::Responses(id) => (id, None),
            Thread::Conversation(id) => (None, Some(id)),
        };
        Ok(ModelRequest {
            instructions,
            input,
            settings: settings(&self.config, &self.run, &agent, &kit.settings)?,
            tools: specs,
            output: parts.output.format().map_err(|error| AgentError::Misuse(error.to_string()))?,
            prompt,
            previous_response_id,
            conversation_id,
            attempt: 0,
        })
    }

    /// The conversation after the environment's transforms. A conversation that the server keeps cannot be transformed.
    async fn transformed_input(
        &mut self,
        input_transforms: &[Arc<dyn InputTransform>],
        agent: &Agent,
        instructions: Option<&String>,
    ) -> Result<Items> {
        let mut items = self.run.model_input();
        if self.run.thread != Thread::Ours {
            return Ok(items);
        }
        for transform in input_transforms {
            let question = Question {
                instructions: instructions.cloned(),
                items: items.clone(),
                model: self.config.choose(&agent.parts().model)?,
                last_input_tokens: self.run.last_usage().map(|usage| usage.input_tokens),
            };
            match transform.transform(&question).await.map_err(AgentError::Environment)? {
                FilteredInput::Unchanged => {}
                FilteredInput::ReplaceOnce(seen) => items = seen.into(),
                FilteredInput::ReplaceHistory(seen, used) => {
                    self.run.usage.add_request(question.model.name(), &used);
                    self.run.replace_model_input(seen);
                    items = self.run.model_input();
                }
            }
        }
        Ok(items)
    }

    /// Refuses output guardrails if the server keeps the conversation: a refused output could not be removed there.
    fn agree_with_thread(&self) -> Result<()> {
        let guarded = !self.agent()?.parts().output_guardrails.is_empty() || !self.config.output_guardrails.is_empty();
        if guarded && self.run.thread != Thread::Ours {
            return Err(AgentError::Misuse(
                "output guardrails do not go with a conversation that the server keeps: what they refuse would stay in it"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}

/// The agent's settings (or its model's defaults), overridden by the environment's, overridden by the run's.
fn settings(config: &RunConfig, run: &Run, agent: &Agent, kit: &ModelSettings) -> Result<ModelSettings> {
    let parts = agent.parts();
    let below = match &parts.settings {
        Some(settings) => settings.clone(),
        None => ModelSettings::defaults_for(config.choose(&parts.model)?.name()),
    };
    let mut settings = below.overlaid(kit).overlaid(&config.settings);
    if !parts.keeps_tool_choice && run.has_used_tools() {
        settings.tool_choice = None;
    }
    Ok(settings)
}

/// A request on its way to the model of the current agent.
struct ModelCall<'d> {
    driver: &'d Driver,
    model: &'d Arc<dyn Model>,
}

impl ModelCall<'_> {
    /// Sends the request within a trace span.
    async fn send(&self, request: ModelRequest) -> Result<ModelReply> {
        let mut span = self.driver.spans.open(SpanData::response);
        let heard = self.send_with_retries(request).await;
        match &heard {
            Err(error) => span.fail(|| spans::failed(error)),
            Ok(reply) => {
                span.usage(|| spans::spent(&reply.usage));
                span.update(|data| {
                    if let SpanData::Response { response_id, .. } = data {
                        response_id.clone_from(&reply.response_id);
                    }
                });
            }
        }
        heard
    }

    async fn send_with_retries(&self, request: ModelRequest) -> Result<ModelReply> {
        let policy = request.settings.retry.clone().unwrap_or_default();
        let stateful = self.driver.run.thread != Thread::Ours;
        let mut retries = 0;
        loop {
            let mut seen_output = false;
            let request = ModelRequest { attempt: retries, ..request.clone() };
            let error = match self.attempt(request, &mut seen_output).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            self.driver.progress.record_usage(0, Usage { requests: 1, ..Usage::default() });
            let failure = retry::Failure { error: &error, retries, seen_output, stateful };
            let Some(wait) = retry::decide(&policy, &failure, random_fraction()) else {
                return Err(AgentError::Model(error));
            };
            retries += 1;
            tracing::warn!(%error, retries, ?wait, "asking the model again");
            tokio::time::sleep(wait).await;
        }
    }

    /// Sends the request once. Notes whether a part of the answer was shown.
    async fn attempt(&self, request: ModelRequest, shown: &mut bool) -> Result<ModelReply, ModelError> {
        // The transport applies the timeout of the settings to each of its attempts; this limit ends a model that hangs.
        let limit = request.settings.timeout.unwrap_or(Duration::from_secs(600));
        let limit = limit.saturating_mul(4).saturating_add(Duration::from_secs(60));
        let heard = async {
            let mut events = self.model.stream(request).await?;
            while let Some(event) = events.next().await {
                match event? {
                    ModelEvent::Done(reply) => return Ok(reply),
                    event => {
                        *shown |= matches!(&event, ModelEvent::Raw(raw) if !raw.is_preamble());
                        self.driver.events.emit_model_event(event).await;
                    }
                }
            }
            Err(ModelError::Malformed("the answer ended in the middle".to_owned()))
        };
        tokio::time::timeout(limit, heard).await.unwrap_or(Err(ModelError::Timeout(limit)))
    }
}

/// Random number from 0 to 1.
fn random_fraction() -> f64 {
    let random = uuid::Uuid::new_v4().as_u128() & 0xffff;
    #[expect(clippy::cast_precision_loss, reason = "sixteen bits")]
    let part = random as f64 / 65_536.0;
    part
}
