//! Executes runs: the builder, the event stream, and the driver behind both.

mod agent_setup;
mod checkpoint;
mod conclusion;
mod driver;
mod events;
mod guardrails;
mod handoff;
mod hooks;
mod model_call;
mod nested;
mod open_environment;
mod single_call;
mod spans;
mod tool_calls;

use std::{
    future::IntoFuture,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{Stream, StreamExt, future::BoxFuture};
use tokio::sync::{mpsc, watch};

use self::driver::{Cancel, Driver};
pub(crate) use self::events::Events;
pub use self::events::RunEvent;
use crate::{
    Agent, AgentError, App, Budget, Hooks, Item, RunConfig, RunEnvironment, RunError, RunResult, RunState,
    agent::{ModelChoice, Roster},
    run::{Run, Thread},
};

/// Capacity of the event channel; when it is full, the run waits for the reader.
const EVENTS: usize = 256;

/// Runs an agent. The run starts when this is awaited, or its [`stream`](RunBuilder::stream) is.
///
/// ```
/// # use sandbar_agent::{Agent, Item, ScriptedModel, run};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), sandbar_agent::RunError> {
/// # let model = ScriptedModel::new([vec![Item::assistant("4")]]);
/// let agent = Agent::new("maths").instructions("Answer with a number.").model(model);
/// let result = run(&agent, "What is 2 + 2?").max_turns(3).await?;
/// assert_eq!(result.final_output(), "4");
/// # Ok(())
/// # }
/// ```
pub fn run(agent: impl Into<Agent>, input: impl Into<RunInput>) -> RunBuilder {
    RunBuilder {
        agent: agent.into(),
        input: input.into(),
        config: RunConfig::default(),
        app: App::default(),
        hooks: None,
        thread: Thread::Ours,
        id: None,
        steps: None,
    }
}

/// What a run starts with: new input, or a saved run.
#[derive(Clone, Debug)]
pub enum RunInput {
    /// A conversation.
    Items(Vec<Item>),
    /// A saved run that is resumed.
    State(Box<RunState>),
}

impl From<&str> for RunInput {
    fn from(text: &str) -> Self {
        Self::Items(vec![Item::user(text)])
    }
}

impl From<String> for RunInput {
    fn from(text: String) -> Self {
        Self::Items(vec![Item::user(text)])
    }
}

impl From<Item> for RunInput {
    fn from(item: Item) -> Self {
        Self::Items(vec![item])
    }
}

impl From<Vec<Item>> for RunInput {
    fn from(items: Vec<Item>) -> Self {
        Self::Items(items)
    }
}

impl From<RunState> for RunInput {
    fn from(state: RunState) -> Self {
        Self::State(Box::new(state))
    }
}

/// A run that has not started yet.
#[derive(Clone)]
#[must_use = "a run does nothing unless it is awaited or streamed"]
pub struct RunBuilder {
    agent: Agent,
    input: RunInput,
    config: RunConfig,
    app: App,
    hooks: Option<Arc<dyn Hooks>>,
    thread: Thread,
    id: Option<String>,
    steps: Option<usize>,
}

impl RunBuilder {
    /// Replaces the whole configuration. Methods called after this one change the new configuration.
    pub fn config(mut self, config: RunConfig) -> Self {
        self.config = config;
        self
    }

    /// Environment that the agents work in.
    pub fn environment(mut self, environment: Arc<dyn RunEnvironment>) -> Self {
        self.config.environment = Some(environment);
        self
    }

    /// A value that tools, hooks and instructions can read.
    pub fn app(mut self, app: App) -> Self {
        self.app = app;
        self
    }

    /// Hooks that are called while the run executes.
    pub fn hooks(mut self, hooks: impl Hooks + 'static) -> Self {
        self.hooks = Some(Arc::new(hooks));
        self
    }

    /// The most turns. A resumed run keeps the limit it has.
    pub fn max_turns(mut self, most: u32) -> Self {
        self.config.max_turns = Some(most);
        self
    }

    /// What the run may spend. A resumed run keeps the budget it has.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.config.budget = budget;
        self
    }

    /// The model of every agent of this run.
    pub fn model(mut self, model: impl Into<ModelChoice>) -> Self {
        self.config.model = model.into();
        self
    }

    /// The run's id, in place of a random one.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Pauses after this many steps, so that the run can be saved and resumed. A model call is one step; so are all tool
    /// calls of a reply together, entering an agent, a handoff, and the conclusion of a turn.
    pub fn steps(mut self, most: usize) -> Self {
        self.steps = Some(most);
        self
    }

    /// The server keeps the conversation; it continues after this response of an earlier run.
    pub fn previous_response(mut self, id: impl Into<String>) -> Self {
        self.thread = Thread::Responses(Some(id.into()));
        self
    }

    /// The server keeps the conversation, from the first turn on.
    pub fn chain_responses(mut self) -> Self {
        self.thread = Thread::Responses(None);
        self
    }

    /// The server keeps the conversation, in the server-side conversation with this id.
    pub fn conversation(mut self, id: impl Into<String>) -> Self {
        self.thread = Thread::Conversation(id.into());
        self
    }

    /// Streams events as they happen. The run makes progress only while the stream is read. Dropping the stream stops the
    /// run at once without leaving the environment; cancel the run to end it cleanly.
    pub fn stream(self) -> RunStream {
        let (sender, events) = mpsc::channel(EVENTS);
        let (cancel, cancelled) = watch::channel(Cancel::No);
        RunStream { state: State::Running(self.drive(Events::Channel(sender), cancelled)), events, cancel }
    }

    /// Runs on its own single-threaded runtime, for programs without a runtime.
    ///
    /// # Errors
    /// When the run fails, or when this is called from within a runtime.
    pub fn blocking(self) -> Result<RunResult, RunError> {
        let runtime = match tokio::runtime::Handle::try_current() {
            Ok(_) => Err("a run cannot block inside a runtime; await it instead".to_owned()),
            Err(_) => {
                let mut builder = tokio::runtime::Builder::new_current_thread();
                builder.enable_all().build().map_err(|error| format!("no runtime for the run: {error}"))
            }
        };
        match runtime {
            Ok(runtime) => runtime.block_on(self.into_future()),
            Err(why) => Err(RunError::new(AgentError::Misuse(why), self.start().1)),
        }
    }

    fn drive(self, events: Events, cancel: watch::Receiver<Cancel>) -> BoxFuture<'static, Result<RunResult, RunError>> {
        let (app, hooks, steps, config) = (self.app.clone(), self.hooks.clone(), self.steps, self.config.clone());
        let (roster, run) = self.start();
        let driver = Driver::new(roster, config, run).with(app, hooks, events, cancel);
        Box::pin(driver.at_most(steps).drive(None))
    }

    /// The agents, and the new or resumed run.
    fn start(self) -> (Roster, Run) {
        let roster = Roster::of(&self.agent);
        let run = match self.input {
            RunInput::State(state) => {
                let mut run = state.0;
                if self.thread != Thread::Ours {
                    run.thread = self.thread;
                }
                run
            }
            RunInput::Items(items) => {
                let id = self.id.unwrap_or_else(|| format!("run_{}", uuid::Uuid::now_v7().simple()));
                let mut run = Run::new(id, roster.root(), items);
                (run.max_turns, run.budget) = (self.config.max_turns, self.config.budget.clone());
                run.thread = self.thread;
                run
            }
        };
        (roster, run)
    }
}

impl IntoFuture for RunBuilder {
    type Output = Result<RunResult, RunError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.drive(Events::None, watch::channel(Cancel::No).1)
    }
}

/// The events of a run that is being executed.
///
/// ```
/// # use sandbar_agent::{Agent, Item, RunEvent, ScriptedModel, run};
/// # use futures::StreamExt as _;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), sandbar_agent::RunError> {
/// # let agent = Agent::new("greeter").model(ScriptedModel::new([vec![Item::assistant("Hello.")]]));
/// let mut stream = run(&agent, "Hi!").stream();
/// let mut text = String::new();
/// while let Some(event) = stream.next().await {
///     text += event.text_delta().unwrap_or_default();
/// }
/// assert_eq!(text, "Hello.");
/// assert_eq!(stream.result().await?.final_output(), "Hello.");
/// # Ok(())
/// # }
/// ```
#[must_use = "a run makes progress only while its stream is read"]
pub struct RunStream {
    state: State,
    events: mpsc::Receiver<RunEvent>,
    cancel: watch::Sender<Cancel>,
}

enum State {
    Running(BoxFuture<'static, Result<RunResult, RunError>>),
    Over(Box<Result<RunResult, RunError>>),
    Taken,
}

/// Stops a run from another task or a signal handler. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Canceller(watch::Sender<Cancel>);

impl Canceller {
    /// Stops the run at once. Answers of completed calls are kept. If the run is resumed, the model is told that the effect
    /// of tools that were interrupted is unknown, and agents used as tools continue where they stopped.
    pub fn now(&self) {
        self.0.send_replace(Cancel::Now);
    }

    /// Stops the run when the current turn is finished.
    pub fn after_turn(&self) {
        self.0.send_if_modified(|cancel| {
            let first = *cancel == Cancel::No;
            if first {
                *cancel = Cancel::AfterTurn;
            }
            first
        });
    }
}

impl RunStream {
    /// The next event; `None` when the run is over.
    pub async fn next(&mut self) -> Option<RunEvent> {
        StreamExt::next(self).await
    }

    /// A handle that stops the run while its stream is read.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller(self.cancel.clone())
    }

    /// Stops the run at once: [`Canceller::now`].
    pub fn cancel_now(&self) {
        self.canceller().now();
    }

    /// Stops the run when the current turn is finished: [`Canceller::after_turn`].
    pub fn cancel_after_turn(&self) {
        self.canceller().after_turn();
    }

    /// Runs to the end and returns the result; events that were not read are dropped.
    ///
    /// # Errors
    /// When the run failed.
    pub async fn result(mut self) -> Result<RunResult, RunError> {
        while self.next().await.is_some() {}
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Over(result) => *result,
            State::Running(run) => run.await,
            State::Taken => Err(RunError::new(
                AgentError::Misuse("the result was taken".to_owned()),
                Run::new(String::new(), String::new(), Vec::new()),
            )),
        }
    }
}

impl Stream for RunStream {
    type Item = RunEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<RunEvent>> {
        loop {
            if let Poll::Ready(Some(event)) = self.events.poll_recv(cx) {
                return Poll::Ready(Some(event));
            }
            // The channel closes when the run ends. Until then an empty channel means: poll the run itself.
            let State::Running(run) = &mut self.state else { return self.events.poll_recv(cx) };
            match run.as_mut().poll(cx) {
                Poll::Ready(result) => self.state = State::Over(Box::new(result)),
                Poll::Pending => return self.events.poll_recv(cx),
            }
        }
    }
}
