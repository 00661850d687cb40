//! How a run is made: what holds for all its agents, also for those that are used as tools.

use std::{
    fmt,
    num::NonZeroUsize,
    sync::{Arc, OnceLock},
};

use futures::future::{BoxFuture, FutureExt as _};
use serde_json::Value;

use crate::{
    Environment, Interruption, Item, Model, ModelSettings, ModelSource, Models, Result, Run,
    agent::ModelChoice,
    guardrail::{InputGuardrail, OutputGuardrail, Timing},
    handoff::InputFilter,
    run::{Budget, OnUnknown},
    trace::Tracer,
};

type Rejection = Arc<dyn Fn(&Interruption) -> String + Send + Sync>;

/// How a run is made. Cheap to clone; agents used as tools inherit it.
#[derive(Clone)]
pub struct RunConfig {
    pub(crate) model: ModelChoice,
    pub(crate) models: Option<Arc<dyn ModelSource>>,
    /// Those of the environment, made when they are first needed.
    usual_models: Arc<OnceLock<Models>>,
    pub(crate) settings: ModelSettings,
    pub(crate) input_guardrails: Vec<(Timing, InputGuardrail)>,
    pub(crate) output_guardrails: Vec<OutputGuardrail>,
    pub(crate) handoff_filter: Option<InputFilter>,
    pub(crate) input_filter: Option<ModelInputFilter>,
    pub(crate) tool_concurrency: Option<NonZeroUsize>,
    pub(crate) on_unknown: OnUnknown,
    pub(crate) rejection: Option<Rejection>,
    pub(crate) environment: Option<Arc<dyn Environment>>,
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

/// What is about to be sent to a model, as a filter may change it.
#[derive(Clone, Debug)]
pub struct ModelInput {
    /// What the agent is told to be.
    pub instructions: Option<String>,
    /// The conversation.
    pub items: Vec<Item>,
}

type Filter = Arc<dyn Fn(ModelInput, String) -> BoxFuture<'static, Result<ModelInput, crate::BoxError>> + Send + Sync>;

/// Changes what is sent to a model, right before it is; the run itself keeps everything.
#[derive(Clone)]
pub(crate) struct ModelInputFilter(pub(crate) Filter);

/// A run that cannot go on as it should, for whoever may have a way out.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// What happened.
    pub what: String,
    /// The run as it stands.
    pub run: Run,
}

/// The way out of a trouble: an output to end with.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovery {
    pub(crate) output: Value,
    pub(crate) kept: bool,
}

impl Recovery {
    /// Ends the run with this output, which is also added to the conversation.
    pub fn with(output: impl Into<Value>) -> Self {
        Self { output: output.into(), kept: true }
    }

    /// Leaves the output out of the conversation.
    #[must_use]
    pub fn not_in_history(mut self) -> Self {
        self.kept = false;
        self
    }
}

pub(crate) type Recover = Arc<dyn Fn(Trouble) -> BoxFuture<'static, Option<Recovery>> + Send + Sync>;

/// Ways out, by what they are a way out of.
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
                F: Fn(Trouble) -> Fut + Send + Sync + 'static,
                Fut: Future<Output = Option<Recovery>> + Send + 'static,
            {
                self.recoveries.$field = Some(Arc::new(move |trouble| recover(trouble).boxed()));
                self
            }
        )* }
    };
}

recoveries! {
    /// What to do when all turns are taken; `None` lets the run fail.
    on_max_turns => max_turns;
    /// What to do when the model refuses; `None` lets the run fail.
    on_refusal => refusal;
    /// What to do when the final output has not the shape it should have; `None` lets the run fail.
    on_invalid_output => invalid_output;
}

impl RunConfig {
    /// The usual: ten turns, no budget, models by name from the environment.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The model that thinks for every agent, whatever they say themselves.
    #[must_use]
    pub fn model(mut self, model: impl Into<ModelChoice>) -> Self {
        self.model = model.into();
        self
    }

    /// Where models come from by their names.
    #[must_use]
    pub fn models(mut self, source: impl ModelSource + 'static) -> Self {
        self.models = Some(Arc::new(source));
        self
    }

    /// Laid over every agent's settings.
    #[must_use]
    pub fn settings(mut self, settings: ModelSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Looks at what the run starts with, while the model is already asked.
    #[must_use]
    pub fn input_guardrail(mut self, guardrail: InputGuardrail) -> Self {
        self.input_guardrails.push((Timing::Parallel, guardrail));
        self
    }

    /// Looks at what the run starts with, before anything else happens.
    #[must_use]
    pub fn blocking_guardrail(mut self, guardrail: InputGuardrail) -> Self {
        self.input_guardrails.push((Timing::Blocking, guardrail));
        self
    }

    /// Looks at what the run ends with.
    #[must_use]
    pub fn output_guardrail(mut self, guardrail: OutputGuardrail) -> Self {
        self.output_guardrails.push(guardrail);
        self
    }

    /// What the next agent gets to see after a handoff that has no filter of its own.
    #[must_use]
    pub fn handoff_filter(mut self, filter: InputFilter) -> Self {
        self.handoff_filter = Some(filter);
        self
    }

    /// Changes what is sent to the model, right before it is; it gets the agent's name too.
    #[must_use]
    pub fn input_filter<F, Fut>(mut self, filter: F) -> Self
    where
        F: Fn(ModelInput, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ModelInput, crate::BoxError>> + Send + 'static,
    {
        self.input_filter = Some(ModelInputFilter(Arc::new(move |input, agent| filter(input, agent).boxed())));
        self
    }

    /// At most this many tools at a time; all of a turn unless said.
    #[must_use]
    pub fn tool_concurrency(mut self, most: NonZeroUsize) -> Self {
        self.tool_concurrency = Some(most);
        self
    }

    /// Tells the model when it calls a tool that is not there, where the run otherwise fails.
    #[must_use]
    pub fn tell_unknown_tools(mut self) -> Self {
        self.on_unknown = OnUnknown::Tell;
        self
    }

    /// What the model is told about a call that was refused without a message.
    #[must_use]
    pub fn rejection(mut self, word: impl Fn(&Interruption) -> String + Send + Sync + 'static) -> Self {
        self.rejection = Some(Arc::new(word));
        self
    }

    /// Where the agents work.
    #[must_use]
    pub fn environment(mut self, environment: Arc<dyn Environment>) -> Self {
        self.environment = Some(environment);
        self
    }

    /// The most turns; ten unless said, `None` for no limit.
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

    /// Who is told what happens, as a tree of spans; nobody unless said.
    #[must_use]
    pub fn tracer(mut self, tracer: Tracer) -> Self {
        self.tracer = tracer;
        self
    }

    /// What the run is for, in its trace.
    #[must_use]
    pub fn workflow(mut self, name: impl Into<String>) -> Self {
        self.workflow = Some(name.into());
        self
    }

    /// What the run belongs to, such as one conversation of many runs, in its trace.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Something to find the run's trace by.
    #[must_use]
    pub fn trace_metadata(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.trace_metadata.push((key.into(), value.into()));
        self
    }

    /// The model for an agent that wants this one.
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
