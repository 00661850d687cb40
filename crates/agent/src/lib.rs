//! Agents: models, tools, and the loop that calls the model until it gives a final answer. Nothing here needs a machine.
//!
//! - An [`Agent`] is a value: a name, instructions, a model, tools, and the agents that it may hand over to. Runs do not
//!   change it, and many runs can use it at the same time.
//! - A [`Run`] is a value: the conversation so far, and the next step. It performs no I/O, so it can be saved after any
//!   step, as a [`RunState`], and resumed by another process.
//! - [`run`] executes runs: it calls the model and the tools, hands over, waits for approvals, and ends with a
//!   [`RunResult`]. Awaiting it returns the result; its [`stream`](RunBuilder::stream) returns every event.
//! - A [`Tool`] is a tool that the model may call: [`#[tool]`](macro@tool) on an async function, a [`FunctionTool`] or
//!   [`CustomTool`], a [`HostedTool`] that the model's server runs, or another agent ([`Agent::as_tool`]). The model reads
//!   the error of a tool that fails.
//! - A [`Model`] is the interface to a model: [`Responses`] and [`Chat`] over HTTP, [`ScriptedModel`] in tests. [`Models`]
//!   finds models by name. By default, it reads environment variables (`OPENAI_API_KEY`, `OPENAI_BASE_URL`).
//!
//! ```
//! use sandbar_agent::{Agent, BoxError, Item, RunState, ScriptedModel, Stop, run, tool};
//!
//! /// Sends a letter.
//! #[tool(needs_approval)]
//! async fn send(to: String, text: String) -> String {
//!     format!("sent {} bytes to {to}", text.len())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! // `.model("gpt-5.5")` would need a key; a script does not.
//! let model = ScriptedModel::new([
//!     vec![Item::function_call("call_1", "send", r#"{"to":"Ada","text":"Hello."}"#)],
//!     vec![Item::assistant("It is on its way.")],
//! ]);
//! let agent = Agent::new("clerk").instructions("You write letters.").model(model).tool(send);
//!
//! let paused = run(&agent, "Greet Ada.").await?;
//! assert_eq!(*paused.stop(), Stop::Interrupted);
//!
//! let mut state = RunState::from_json(&paused.to_state().to_json()?)?;
//! for call in state.interruptions() {
//!     assert_eq!((call.tool.as_str(), call.arguments.as_str()), ("send", r#"{"to":"Ada","text":"Hello."}"#));
//!     state.approve(&call)?;
//! }
//! assert_eq!(run(&agent, state).await?.final_output(), "It is on its way.");
//! # Ok(())
//! # }
//! ```
//!
//! # Guide
//!
//! | to | look at |
//! |---|---|
//! | limit what a run may do and spend | [`RunConfig`], [`Budget`], [`ModelSettings`] |
//! | get a final output of your own type | [`Agent::output`], [`RunResult::final_output_as`], [`schema`] |
//! | handle a tool output, a refusal, an invalid output | [`agent::ToolUse`], [`Recovery`] |
//! | set rules of a tool: approval, timeout, guardrails, whether it is offered | [`ToolExt`], [`ToolRules`] |
//! | stop a run, or reject a call | [`guardrail`] |
//! | hand the conversation over to another agent | [`Handoff`], [`handoff`] |
//! | receive events while a run executes | [`RunStream`], [`Hooks`] |
//! | inspect a run afterwards | [`RunResult::new_items`], [`trace`] |
//! | use another server | [`ModelEndpoint`], [`Models`], [`ModelSource`] |
//! | give an agent an environment to work in | [`environment`] |
//! | execute a run step by step | [`RunBuilder::steps`], [`Run::next`], [`Step`] |

pub mod agent;
mod config;
pub mod environment;
mod error;
pub mod guardrail;
pub mod handoff;
pub mod hooks;
mod item;
mod model;
mod result;
mod run;
mod runner;
pub mod schema;
mod secrets;
mod tool;
pub mod trace;
mod usage;

/// ```
/// use sandbar_agent::{App, Tool, ToolContext, ToolOutput, tool};
///
/// /// Looks up the weather.
/// #[tool(timeout = "5s")]
/// async fn weather(
///     call: &ToolContext,
///     /// The city's name.
///     city: String,
///     /// For how many days; one if nothing is said.
///     days: Option<u8>,
/// ) -> Result<String, std::io::Error> {
///     Ok(format!("sunny in {city} for {} days", days.unwrap_or(1)))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), sandbar_agent::BoxError> {
/// assert_eq!(weather.spec().description, "Looks up the weather.");
/// let call = ToolContext::for_test("weather", App::default());
/// let answer = weather.call(&call, r#"{"city":"Oslo","days":null}"#).await?;
/// assert_eq!(answer, ToolOutput::Text("sunny in Oslo for 1 days".to_owned()));
/// assert_eq!(weather::direct(&call, "Rome".to_owned(), Some(2)).await?, "sunny in Rome for 2 days");
/// # Ok(())
/// # }
/// ```
pub use sandbar_macros::tool;

pub use self::{
    agent::{Agent, output::OutputType},
    config::{ModelInput, Recovery, RunConfig, RunProblem},
    environment::{FilteredInput, InputTransform, Kit, Question, RunEnvironment},
    error::{AgentError, BoxError, Guarded, Result},
    handoff::Handoff,
    hooks::{HookContext, Hooks},
    item::{CustomCall, FunctionCall, Item, Items, Message, Part, Role, View},
    model::{
        ApiKey, Chat, Model, ModelEndpoint, ModelError, ModelEvent, ModelReply, ModelRequest, ModelSettings,
        ModelSource, ModelStream, Models, OutputFormat, Patience, Private, Prompt, Proxies, Proxy, ProxyError,
        RawEvent, Reasoning, Responses, Retry, RetryOn, ScriptedModel, SseDecoder, SseEvent, ToolChoice, Turn, Wire,
    },
    result::{RunError, RunResult},
    run::{Approvals, Budget, Interruption, Price, Prices, Run, RunItem, RunItemKind, RunState, Spent, Step, Stop},
    runner::{Canceller, RunBuilder, RunEvent, RunInput, RunStream, run},
    tool::{
        App, Approval, ArgumentsError, CustomTool, Enabled, FunctionTool, Grammar, HostedTool, IntoToolOutput, Json,
        NoArguments, OnFailure, OnTimeout, Ruled, Tool, ToolContext, ToolExt, ToolKind, ToolOutput, ToolRules,
        ToolSpec, decode_arguments,
    },
    usage::{RequestUsage, Usage},
};

/// Names that the code of `#[tool]` uses. Not a public interface.
#[doc(hidden)]
pub mod __private {
    pub use async_trait::async_trait;
    pub use sandbar_macros::sandbar_tool;
    pub use schemars;
    pub use serde;

    pub use crate::{
        Approval, BoxError, IntoToolOutput, Tool, ToolContext, ToolOutput, ToolRules, ToolSpec,
        tool::{FunctionSchema, decode_arguments},
    };
}
