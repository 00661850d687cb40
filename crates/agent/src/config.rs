//! Configuration of a run; it applies to all agents of the run, including those used as tools.

use std::{
    fmt,
    num::NonZeroUsize,
    sync::{Arc, OnceLock},
};

use futures::future::{BoxFuture, FutureExt as _};
use serde_json::Value;

use crate::{
    Interruption, Item, Model, ModelSettings, ModelSource, Models, Result, Run, RunEnvironment,
    agent::ModelChoice,
    guardrail::{InputGuardrail, OutputGuardrail, Timing},
    handoff::InputFilter,
    run::{Budget, OnUnknown},
    trace::Tracer,
};

type Rejection = Arc<dyn Fn(&Interruption) -> String + Send + Sync>;

/// Configuration of a run. Cheap to clone; agents used as tools inherit it.
#[derive(Clone)]
pub struct RunConfig {
    pub(crate) model: ModelChoice,
    pub(crate) models: Option<Arc<dyn ModelSource>>,
    /// Models from environment variables, created when first needed.
    usual_models: Arc<OnceLock<Models>>,
    pub(crate) settings: ModelSettings,
    pub(crate) input_guardrails: Vec<(Timing, InputGuardrail)>,
    pub(crate) output_guardrails: Vec<OutputGuardrail>,
    pub(crate) handoff_filter: Option<InputFilter>,
    pub(crate) input_filter: Option<ModelInputFilter>,
    pub(crate) tool_concurrency: Option<NonZeroUsize>,
    pub(crate) on_unknown: OnUnknown,
    pub(crate) rejection: Option<Rejection>,
    pub(crate) environment: Option<Arc<dyn RunEnvironment>>,
    pub(crate) max_turns: Option<u32>,
    pub(crate) budget: Budget,
    pub(crate) recoveries: Recoveries,
    pub(crate) tracer: Tracer,
    pub(crate) workflow: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) trace_metadata: Vec<(String, Value)>,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            model: ModelChoice::Usual,
            models: None,
            usual_models: Arc::default(),
            settings: ModelSettings::default(),
            input_guardrails: Vec::new(),
            output_guardrails: Vec::new(),
            handoff_filter: None,
            input_filter: None,
            tool_concurrency: None,
            on_unknown: OnUnknown::Raise,
            rejection: None,
            environment: None,
            max_turns: Some(10),
            budget: Budget::default(),
            recoveries: Recoveries::default(),
            tracer: Tracer::off(),
            workflow: None,
            group: None,
            trace_metadata: Vec::new(),
        }
    }
}

/// Input of a model request, as a filter may change it.
#[derive(Clone, Debug)]
pub struct ModelInput {
    /// Instructions of the agent.
    pub instructions: Option<String>,
    /// The conversation.
    pub items: Vec<Item>,
}

type Filter = Arc<dyn Fn(ModelInput, String) -> BoxFuture<'static, Result<ModelInput, crate::BoxError>> + Send + Sync>;

/// Changes the input of each model request; the run itself keeps all items.
#[derive(Clone)]
pub(crate) struct ModelInputFilter(pub(crate) Filter);

/// A problem that would fail the run, as recovery functions get it.
#[derive(Clone, Debug)]
pub struct RunProblem {
    /// Description of the problem.
    pub what: String,
    /// The run so far.
    pub run: Run,
}

/// Output that ends a run in place of a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovery {
    pub(crate) output: Value,
    pub(crate) kept: bool,
}

impl Recovery {
    /// Ends the run with this output, and adds it to the conversation.
    pub fn with(output: impl Into<Value>) -> Self {
        Self { output: output.into(), kept: true }
    }

    /// Does not add the output to the conversation.
    #[must_use]
    pub fn not_in_history(mut self) -> Self {
        self.kept = false;
        self
    }
}

pub(crate) type Recover = Arc<dyn Fn(RunProblem) -> BoxFuture<'static, Option<Recovery>> + Send + Sync>;

/// Recovery functions, by kind of problem.
#[derive(Clone, Default)]
pub(crate) struct Recoveries {
    pub(crate) max_turns: Option<Recover>,
    pub(crate) refusal: Option<Recover>,
    pub(crate) invalid_output: Option<Recover>,
}

macro_rules! recoveries {
    ($($(#[$doc:meta])* $method:ident => $field:ident;)*) => {
        impl RunConfig { $(
            $(#[$doc])*
            #[must_use]
            pub fn $method<F, Fut>(mut self, recover: F) -> Self
            where
                F: Fn(RunProblem) -> Fut + Send + Sync + 'static,
                Fut: Future<Output = Option<Recovery>> + Send + 'static,
            {
                self.recoveries.$field = Some(Arc::new(move |trouble| recover(trouble).boxed()));
                self
            }
        )* }
    };
}

recoveries! {
    /// Called when the limit of turns is reached; `None` lets the run fail.
    on_max_turns => max_turns;
    /// Called when the model refuses; `None` lets the run fail.
    on_refusal => refusal;
    /// Called when the final output does not match the output type; `None` lets the run fail.
    on_invalid_output => invalid_output;
}

impl RunConfig {
    /// The defaults: ten turns, no budget, models by name from environment variables.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The model of all agents; overrides the agents' own.
    #[must_use]
    pub fn model(mut self, model: impl Into<ModelChoice>) -> Self {
        self.model = model.into();
        self
    }

    /// Source of models by name.
    #[must_use]
    pub fn models(mut self, source: impl ModelSource + 'static) -> Self {
        self.models = Some(Arc::new(source));
        self
    }

    /// Settings that override those of all agents.
    #[must_use]
    pub fn settings(mut self, settings: ModelSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Adds a guardrail that checks the input of the run during the first model call.
    #[must_use]
    pub fn input_guardrail(mut self, guardrail: InputGuardrail) -> Self {
        self.input_guardrails.push((Timing::Parallel, guardrail));
        self
    }

    /// Adds a guardrail that checks the input of the run before the first model call.
    #[must_use]
    pub fn blocking_guardrail(mut self, guardrail: InputGuardrail) -> Self {
        self.input_guardrails.push((Timing::Blocking, guardrail));
        self
    }

    /// Adds a guardrail that checks the final output of the run.
    #[must_use]
    pub fn output_guardrail(mut self, guardrail: OutputGuardrail) -> Self {
        self.output_guardrails.push(guardrail);
        self
    }

    /// Filter for handoffs that have none of their own; it changes what the next agent sees.
    #[must_use]
    pub fn handoff_filter(mut self, filter: InputFilter) -> Self {
        self.handoff_filter = Some(filter);
        self
    }

    /// Changes the input of each model request. The function gets the input and the agent's name.
    #[must_use]
    pub fn input_filter<F, Fut>(mut self, filter: F) -> Self
    where
        F: Fn(ModelInput, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ModelInput, crate::BoxError>> + Send + 'static,
    {
        self.input_filter = Some(ModelInputFilter(Arc::new(move |input, agent| filter(input, agent).boxed())));
        self
    }

    /// The most concurrent tool calls. The default is all calls of a turn.
    #[must_use]
    pub fn tool_concurrency(mut self, most: NonZeroUsize) -> Self {
        self.tool_concurrency = Some(most);
        self
    }

    /// Answers calls of unknown tools with an error text for the model. By default the run fails.
    #[must_use]
    pub fn tell_unknown_tools(mut self) -> Self {
        self.on_unknown = OnUnknown::Tell;
        self
    }

    /// Makes the text that the model reads for a call that a person rejected without a message.
    #[must_use]
    pub fn rejection(mut self, message: impl Fn(&Interruption) -> String + Send + Sync + 'static) -> Self {
        self.rejection = Some(Arc::new(message));
        self
    }

    /// Environment that the agents work in.
    #[must_use]
    pub fn environment(mut self, environment: Arc<dyn RunEnvironment>) -> Self {
        self.environment = Some(environment);
        self
    }

    /// The most turns. The default is 10; `None` removes the limit.
    #[must_use]
    pub fn max_turns(mut self, most: Option<u32>) -> Self {
        self.max_turns = most;
        self
    }

    /// What the run may spend.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Tracer that records the run as a tree of spans. The default records nothing.
    #[must_use]
    pub fn tracer(mut self, tracer: Tracer) -> Self {
        self.tracer = tracer;
        self
    }

    /// Name of the workflow, in the trace.
    #[must_use]
    pub fn workflow(mut self, name: impl Into<String>) -> Self {
        self.workflow = Some(name.into());
        self
    }

    /// Group that the run belongs to, such as one conversation of many runs, in the trace.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Adds metadata to the trace.
    #[must_use]
    pub fn trace_metadata(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.trace_metadata.push((key.into(), value.into()));
        self
    }

    /// Resolves the model of an agent.
    pub(crate) fn choose(&self, wanted: &ModelChoice) -> Result<Arc<dyn Model>> {
        let name = match if matches!(self.model, ModelChoice::Usual) { wanted } else { &self.model } {
            ModelChoice::Given(model) => return Ok(Arc::clone(model)),
            ModelChoice::Named(name) => Some(name.as_str()),
            ModelChoice::Usual => None,
        };
        match &self.models {
            Some(source) => Ok(source.model(name)?),
            None => Ok(self.usual_models.get_or_init(Models::from_env).model(name)?),
        }
    }
}

impl fmt::Debug for RunConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunConfig")
            .field("model", &self.model)
            .field("max_turns", &self.max_turns)
            .finish_non_exhaustive()
    }
}
