//! Asking the model: putting the question together, listening to the answer, and asking again where that is safe.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;

use super::{driver::Driver, equipment::Equipment, hooking::Moment, spans};
use crate::{
    Agent, AgentError, Items, Lens, Look, Model, ModelError, ModelEvent, ModelReply, ModelRequest, ModelSettings,
    Question, Result, Usage, config::ModelInput, guardrail::Timing, model::retry, run::Thread, trace::SpanData,
};

impl Driver {
    pub(super) async fn ask(&mut self) -> Result<()> {
        self.equip().await?;
        self.agree_with_thread()?;
        self.spans.turn(self.run.turn().saturating_add(1));
        if !self.run.greeted {
            self.tell_hooks(Moment::AgentStart).await?;
            self.run.greeted = true;
        }
        let request = self.question().await?;
        let agent = self.agent()?;
        let model = self.config.choose(&agent.parts().model)?;
        self.tell_hooks(Moment::LlmStart(request.instructions.as_deref(), &request.input)).await?;
        let reply = self.listen_and_check(&model, request).await?;
        let Some(equipment) = &self.equipment else { return Ok(()) };
        let told = reply.clone();
        if let Err(error) = self.run.replied(model.name(), reply, &equipment.offer) {
            // It makes no sense, and has to be paid for all the same.
            self.run.add_request(model.name(), &told.usage);
            return Err(error);
        }
        self.tell_hooks(Moment::LlmEnd(&told)).await?;
        self.tell_new().await;
        Ok(())
    }

    /// Asks, while the guardrails that may do so look at the input. Whoever fails first stops the other.
    async fn listen_and_check(&mut self, model: &Arc<dyn Model>, request: ModelRequest) -> Result<ModelReply> {
        if !self.has_parallel_checks() {
            return self.listen(model, request).await;
        }
        let mut results = Vec::new();
        let mut used = None;
        let listened = async {
            let reply = self.listen(model, request).await?;
            used = Some(reply.usage.clone());
            Ok(reply)
        };
        let outcome = futures::future::try_join(listened, self.check_input(Timing::Parallel, &mut results)).await;
        if let (Err(_), Some(used)) = (&outcome, used) {
            // It came, and nobody wants it any more.
            self.run.add_request(model.name(), &used);
        }
        self.run.checks.input.extend(results);
        let (heard, ()) = outcome?;
        self.run.checks.parallel_done = true;
        Ok(heard)
    }

    /// The answer, and what failed attempts have used; in a span.
    async fn listen(&self, model: &Arc<dyn Model>, request: ModelRequest) -> Result<ModelReply> {
        let mut span = self.spans.open(SpanData::response);
        let heard = self.listen_patiently(model, request).await;
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

    async fn listen_patiently(&self, model: &Arc<dyn Model>, request: ModelRequest) -> Result<ModelReply> {
        let policy = request.settings.retry.clone().unwrap_or_default();
        let stateful = self.run.thread != Thread::Ours;
        let mut retries = 0;
        loop {
            let mut seen_output = false;
            let request = ModelRequest { attempt: retries, ..request.clone() };
            let error = match self.attempt(model, request, &mut seen_output).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            self.has_used(0, Usage { requests: 1, ..Usage::default() });
            let failure = retry::Failure { error: &error, retries, seen_output, stateful };
            let Some(wait) = retry::decide(&policy, &failure, chance()) else { return Err(AgentError::Model(error)) };
            retries += 1;
            tracing::warn!(%error, retries, ?wait, "asking the model again");
            tokio::time::sleep(wait).await;
        }
    }

    async fn attempt(
        &self,
        model: &Arc<dyn Model>,
        request: ModelRequest,
        shown: &mut bool,
    ) -> Result<ModelReply, ModelError> {
        // The transport keeps to the settings' limit in each of its attempts; this one is for models that wait for ever.
        let limit = request.settings.timeout.unwrap_or(Duration::from_secs(600));
        let limit = limit.saturating_mul(4).saturating_add(Duration::from_secs(60));
        let heard = async {
            let mut events = model.stream(request).await?;
            while let Some(event) = events.next().await {
                match event? {
                    ModelEvent::Done(reply) => return Ok(reply),
                    event => {
                        *shown |= matches!(&event, ModelEvent::Raw(raw) if !raw.is_preamble());
                        self.events.tell_model(event).await;
                    }
                }
            }
            Err(ModelError::Malformed("the answer ended in the middle".to_owned()))
        };
        tokio::time::timeout(limit, heard).await.unwrap_or(Err(ModelError::Timeout(limit)))
    }

    async fn question(&mut self) -> Result<ModelRequest> {
        let agent = self.agent()?.clone();
        let parts = agent.parts();
        let (instructions, prompt) = futures::future::try_join(
            parts.instructions.resolve(&self.app, &agent),
            parts.prompt.resolve(&self.app, &agent),
        )
        .await?;
        let Some(Equipment { kit, specs, .. }) = &self.equipment else {
            return Err(AgentError::Misuse("the agent has no equipment".to_owned()));
        };
        let (kit, specs) = (kit.clone(), Arc::clone(specs));
        let instructions = match &kit.instructions {
            Some(compose) => Some(compose(instructions).await.map_err(AgentError::Environment)?),
            None => instructions,
        };
        let items = self.seen_through(&kit.lenses, &agent, instructions.as_ref()).await?;
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
            settings: self.settings(&agent, &kit.settings)?,
            tools: specs,
            output: parts.output.format().map_err(|error| AgentError::Misuse(error.to_string()))?,
            prompt,
            previous_response_id,
            conversation_id,
            attempt: 0,
        })
    }

    /// The conversation as the environment's lenses show it. What the server keeps cannot be seen otherwise.
    async fn seen_through(
        &mut self,
        lenses: &[Arc<dyn Lens>],
        agent: &Agent,
        instructions: Option<&String>,
    ) -> Result<Items> {
        let mut items = self.run.model_input();
        if self.run.thread != Thread::Ours {
            return Ok(items);
        }
        for lens in lenses {
            let question = Question {
                instructions: instructions.cloned(),
                items: items.clone(),
                model: self.config.choose(&agent.parts().model)?,
                last_input_tokens: self.run.last_usage().map(|usage| usage.input_tokens),
            };
            match lens.look(&question).await.map_err(AgentError::Environment)? {
                Look::Unchanged => {}
                Look::Once(seen) => items = seen.into(),
                Look::FromNowOn(seen, used) => {
                    self.run.add_request(question.model.name(), &used);
                    self.run.see_instead(seen);
                    items = self.run.model_input();
                }
            }
        }
        Ok(items)
    }

    /// The agent's settings (or its model's defaults), then what the environment lends, then the run's.
    fn settings(&self, agent: &Agent, kit: &ModelSettings) -> Result<ModelSettings> {
        let parts = agent.parts();
        let below = match &parts.settings {
            Some(settings) => settings.clone(),
            None => ModelSettings::defaults_for(self.config.choose(&parts.model)?.name()),
        };
        let mut settings = below.overlaid(kit).overlaid(&self.config.settings);
        if !parts.keeps_tool_choice && self.run.has_used_tools() {
            settings.tool_choice = None;
        }
        Ok(settings)
    }

    /// What the server keeps cannot be taken back from it.
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

/// Something between 0 and 1.
fn chance() -> f64 {
    let random = uuid::Uuid::new_v4().as_u128() & 0xffff;
    #[expect(clippy::cast_precision_loss, reason = "sixteen bits")]
    let part = random as f64 / 65_536.0;
    part
}
