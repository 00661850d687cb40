//! The spans that are open while a run goes on: its task, the agent at work, and the turn.

use serde_json::{Value, json};

use crate::{
    AgentError, RunConfig, Usage,
    run::Run,
    trace::{NewTrace, Scope, Span, SpanData, SpanError, Trace},
};

use super::equipment::Equipment;

/// What is open, the innermost first: that is the order in which it ends.
#[derive(Default)]
pub(super) struct Spans {
    turn: Span,
    agent: Span,
    agent_key: String,
    task: Span,
    _trace: Trace,
    used_before: Usage,
}

impl Spans {
    /// A run begins or is taken up: in a trace of its own, in the one it was in, or within a call of another run.
    pub(super) fn begin(config: &RunConfig, run: &mut Run, within: Option<&Scope>) -> Self {
        let used_before = Usage { entries: Vec::new(), ..run.usage().clone() };
        let workflow = || config.workflow.clone().unwrap_or_else(|| "Agent workflow".to_owned());
        if let Some(scope) = within {
            let task = scope.span(|| SpanData::task(workflow()));
            return Self { task, used_before, ..Self::default() };
        }
        let trace = match run.trace.clone() {
            Some(info) => config.tracer.attach(info),
            None => config.tracer.trace(|| {
                let new = NewTrace::new(workflow());
                let new = config.trace_metadata.iter().fold(new, |new, (key, value)| new.metadata(key, value.clone()));
                config.group.iter().fold(new, |new, group| new.group(group))
            }),
        };
        if let Some(info) = trace.info() {
            run.trace = Some(info.clone());
        }
        let task = trace.span(|| SpanData::task(workflow()));
        Self { task, _trace: trace, used_before, ..Self::default() }
    }

    /// An agent is at work.
    pub(super) fn agent(&mut self, equipment: &Equipment) {
        if self.agent_key == equipment.key {
            return;
        }
        self.turn = Span::off();
        self.agent = Span::off();
        self.agent_key.clone_from(&equipment.key);
        self.agent = self.task.span(|| SpanData::Agent {
            name: equipment.agent.name().to_owned(),
            handoffs: equipment.handoffs.keys().cloned().collect(),
            tools: equipment.tools.keys().cloned().collect(),
            output_type: Some(equipment.agent.output_type().name().to_owned()),
        });
    }

    /// A turn begins.
    pub(super) fn turn(&mut self, number: u32) {
        self.turn = Span::off();
        let agent = &self.agent_key;
        self.turn = self.agent.span(|| SpanData::turn(number, agent.clone()));
    }

    /// Opens a span for something that happens in the turn, or between turns.
    pub(super) fn open(&self, data: impl FnOnce() -> SpanData) -> Span {
        if self.turn.id().is_some() {
            return self.turn.span(data);
        }
        if self.agent.id().is_some() { self.agent.span(data) } else { self.task.span(data) }
    }

    /// The run has stopped: what it used, and why it failed if it did.
    pub(super) fn end(mut self, usage: &Usage, failure: Option<&AgentError>) {
        let used = usage.since(&self.used_before);
        self.task.usage(|| spent(&used));
        if let Some(error) = failure {
            for span in [&mut self.turn, &mut self.agent, &mut self.task] {
                span.fail(|| failed(error));
            }
        }
    }
}

/// What was used, in the words of the wire.
pub(super) fn spent(usage: &Usage) -> Value {
    json!({
        "requests": usage.requests,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    })
}

/// A failure, without what users' code may have put into it.
pub(super) fn failed(error: &AgentError) -> SpanError {
    SpanError { message: error.to_string(), data: Some(json!({ "code": error.code() })) }
}

/// A guardrail did not let things pass.
pub(super) fn tripped(span: &mut Span) {
    span.update(|data| {
        if let SpanData::Guardrail { triggered, .. } = data {
            *triggered = true;
        }
    });
}
