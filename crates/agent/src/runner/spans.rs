//! The open trace spans of a run: task, agent and turn.

use serde_json::{Value, json};

use crate::{
    AgentError, RunConfig, Usage,
    run::Run,
    trace::{NewTrace, Scope, Span, SpanData, SpanError, Trace},
};

use super::agent_setup::AgentSetup;

/// Open spans. The innermost is the first field because fields are dropped in order, and a drop ends the span.
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
    /// Opens the task span: in a new trace, in the trace of a resumed run, or within a call of the outer run.
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

    /// Opens the agent span, unless this agent's span is open already.
    pub(super) fn agent(&mut self, setup: &AgentSetup) {
        if self.agent_key == setup.key {
            return;
        }
        self.turn = Span::off();
        self.agent = Span::off();
        self.agent_key.clone_from(&setup.key);
        self.agent = self.task.span(|| SpanData::Agent {
            name: setup.agent.name().to_owned(),
            handoffs: setup.handoffs.keys().cloned().collect(),
            tools: setup.tools.keys().cloned().collect(),
            output_type: Some(setup.agent.output_type().name().to_owned()),
        });
    }

    /// Opens the span of a turn.
    pub(super) fn turn(&mut self, number: u32) {
        self.turn = Span::off();
        let agent = &self.agent_key;
        self.turn = self.agent.span(|| SpanData::turn(number, agent.clone()));
    }

    /// Opens a span below the innermost open span.
    pub(super) fn open(&self, data: impl FnOnce() -> SpanData) -> Span {
        if self.turn.id().is_some() {
            return self.turn.span(data);
        }
        if self.agent.id().is_some() { self.agent.span(data) } else { self.task.span(data) }
    }

    /// Ends all spans, with the usage of the run and its failure.
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

/// Usage with the field names of the trace format.
pub(super) fn spent(usage: &Usage) -> Value {
    json!({
        "requests": usage.requests,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    })
}

/// A failure, without the sources, which may contain data of the user's code.
pub(super) fn failed(error: &AgentError) -> SpanError {
    SpanError { message: error.to_string(), data: Some(json!({ "code": error.code() })) }
}

/// Marks the span of a guardrail as triggered.
pub(super) fn tripped(span: &mut Span) {
    span.update(|data| {
        if let SpanData::Guardrail { triggered, .. } = data {
            *triggered = true;
        }
    });
}
