//! An agent as a tool of another agent: each call is a nested run.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use futures::future::{BoxFuture, FutureExt as _};
use serde_json::{Value, json};

use crate::{
    Agent, BoxError, Hooks, Item, Result, RunConfig, RunEnvironment, RunEvent, RunResult, Tool, ToolContext, ToolKind,
    ToolOutput, ToolSpec,
};

type BuildInput = Arc<dyn Fn(Value) -> Result<Vec<Item>, BoxError> + Send + Sync>;
type Extract = Arc<dyn Fn(RunResult) -> BoxFuture<'static, Result<String, BoxError>> + Send + Sync>;

/// An agent as a tool. The nested run counts towards the usage and budget of the outer run. Its approvals are its own; they
/// are listed by the outer run and decided there. It inherits the outer run's configuration, except the limit of turns,
/// unless it has its own.
#[derive(Clone)]
pub struct AgentTool {
    pub(crate) agent: Agent,
    name: String,
    description: String,
    parameters: ToolKind,
    build: BuildInput,
    pub(crate) config: Option<RunConfig>,
    pub(crate) environment: NestedEnvironment,
    max_turns: Option<Option<u32>>,
    pub(crate) hooks: Option<Arc<dyn Hooks>>,
    pub(crate) on_event: Option<Arc<dyn Fn(NestedEvent) + Send + Sync>>,
    extract: Option<Extract>,
}

/// Environment of a nested run.
#[derive(Clone, Debug)]
pub(crate) enum NestedEnvironment {
    /// A new session in the environment of its configuration, which by default is the outer run's.
    Configured,
    /// A new session in this environment.
    Given(Arc<dyn RunEnvironment>),
    /// The session of the outer run.
    Shared,
}

/// Event of a nested run.
#[derive(Clone, Debug)]
pub struct NestedEvent {
    /// Agent behind the tool.
    pub agent: String,
    /// Id of the call that the run answers.
    pub call_id: String,
    /// The event.
    pub event: RunEvent,
}

impl AgentTool {
    pub(super) fn new(agent: Agent, name: String, description: String) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": { "input": { "type": "string" } },
            "required": ["input"],
            "additionalProperties": false,
        });
        let parameters = ToolKind::Function { parameters, strict: true };
        let build = Arc::new(|value: Value| match value.get("input").and_then(Value::as_str) {
            Some(text) => Ok(vec![Item::user(text)]),
            None => Err("the argument input is missing, or is not a string".into()),
        });
        Self {
            agent,
            name,
            description,
            parameters,
            build,
            config: None,
            environment: NestedEnvironment::Configured,
            max_turns: None,
            hooks: None,
            on_event: None,
            extract: None,
        }
    }

    /// Typed arguments in place of one `input` string. The function makes the input of the nested run from them.
    #[must_use]
    pub fn parameters<T, F>(mut self, input: F) -> Self
    where
        T: schemars::JsonSchema + serde::de::DeserializeOwned,
        F: Fn(T) -> Vec<Item> + Send + Sync + 'static,
    {
        self.parameters = ToolSpec::parameters_of::<T>();
        self.build = Arc::new(move |value| Ok(input(serde_json::from_value(value)?)));
        self
    }

    /// Sets a configuration, in place of the outer run's.
    #[must_use]
    pub fn config(mut self, config: RunConfig) -> Self {
        self.config = Some(config);
        self
    }

    /// Sets an environment; overrides the one of the configuration.
    #[must_use]
    pub fn environment(mut self, environment: Arc<dyn RunEnvironment>) -> Self {
        self.environment = NestedEnvironment::Given(environment);
        self
    }

    /// Works in the session of the calling agent. By default the nested run has a session of its own.
    #[must_use]
    pub fn share_place(mut self) -> Self {
        self.environment = NestedEnvironment::Shared;
        self
    }

    /// The most turns of a call. The default is the limit of its own configuration, or 10 without one.
    #[must_use]
    pub fn max_turns(mut self, most: Option<u32>) -> Self {
        self.max_turns = Some(most);
        self
    }

    /// Sets hooks of the nested run.
    #[must_use]
    pub fn hooks(mut self, hooks: impl Hooks + 'static) -> Self {
        self.hooks = Some(Arc::new(hooks));
        self
    }

    /// Sets a function that gets all events of the nested run.
    #[must_use]
    pub fn on_event(mut self, tell: impl Fn(NestedEvent) + Send + Sync + 'static) -> Self {
        self.on_event = Some(Arc::new(tell));
        self
    }

    /// Sets a function that makes the answer, in place of the final output.
    #[must_use]
    pub fn extract<F, Fut>(mut self, extract: F) -> Self
    where
        F: Fn(RunResult) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, BoxError>> + Send + 'static,
    {
        self.extract = Some(Arc::new(move |result| extract(result).boxed()));
        self
    }

    pub(crate) fn turns(&self) -> Option<u32> {
        let own = self.config.as_ref().map_or(Some(10), |config| config.max_turns);
        self.max_turns.unwrap_or(own)
    }

    pub(crate) fn input(&self, arguments: Value) -> Result<Vec<Item>, BoxError> {
        (self.build)(arguments)
    }

    /// The answer of a call: the extracted text, or the final output, or the last text of the run if that is empty.
    pub(crate) async fn answer(&self, result: RunResult) -> Result<ToolOutput, BoxError> {
        if let Some(extract) = &self.extract {
            return extract(result).await.map(ToolOutput::Text);
        }
        let output = result.output().cloned().unwrap_or_default();
        match output {
            Value::Null => Ok(ToolOutput::Text(result.last_text())),
            Value::String(text) if text.is_empty() => Ok(ToolOutput::Text(result.last_text())),
            Value::String(text) => Ok(ToolOutput::Text(text)),
            value => Ok(ToolOutput::Json(value)),
        }
    }
}

#[async_trait]
impl Tool for AgentTool {
    fn spec(&self) -> ToolSpec {
        let Self { name, description, parameters, .. } = self;
        ToolSpec { name: name.clone(), description: description.clone(), kind: parameters.clone() }
    }

    async fn call(&self, _call: &ToolContext, _arguments: &str) -> Result<ToolOutput, BoxError> {
        Err("an agent is run, not called".into())
    }

    fn as_agent(&self) -> Option<&AgentTool> {
        Some(self)
    }
}

impl fmt::Debug for AgentTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AgentTool({} as {})", self.agent.name(), self.name)
    }
}
