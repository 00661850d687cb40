//! The thinking half of sandbar: an agent, what it may use, and the loop that asks a model until there is an answer.
//!
//! - An [`Agent`] is a value: a name, instructions, a model, tools, and the agents it may hand over to. No run changes it,
//!   and it can be in many runs at once.
//! - A [`Run`] is a value too: what was said and done so far, and what has to happen next. It does nothing itself, so it can
//!   be saved after any step, as a [`RunState`], and taken up again by another process.
//! - [`run`] makes runs happen: it asks the model, calls the tools it wants, hands over, stops for people, and ends with a
//!   [`RunResult`]. Awaiting it gives the result; its [`stream`](RunBuilder::stream) gives every event.
//! - A [`Tool`] is something the model may call: [`#[tool]`](macro@tool) on an async function, a [`FunctionTool`] or
//!   [`CustomTool`] made by hand, a [`HostedTool`] that the model's server runs, or another agent
//!   ([`Agent::as_tool`]). What a tool gets wrong is told to the model.
//! - A [`Model`] is somebody who can be asked: [`Responses`] and [`Chat`] over HTTP, [`ScriptedModel`] in tests. [`Models`]
//!   finds them by name; without a word about models it asks the environment (`OPENAI_API_KEY`, `OPENAI_BASE_URL`).
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
//! // In place of `.model("gpt-5.5")`, which would need a key.
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
//! # Where things are
//!
//! | to | look at |
//! |---|---|
//! | say what a run may do and spend | [`RunConfig`], [`Budget`], [`ModelSettings`] |
//! | get an answer of a type of your own | [`Agent::output`], [`RunResult::final_output_as`], [`schema`] |
//! | decide what follows a tool, a refusal, a wrong answer | [`agent::ToolUse`], [`Recovery`] |
//! | lay rules on a tool: approval, time, who may see it | [`ToolExt`], [`ToolRules`] |
//! | stop what should not happen | [`guardrail`] |
//! | give the conversation to another agent | [`Handoff`], [`handoff`] |
//! | be told while it happens | [`RunStream`], [`Hooks`] |
//! | look at it afterwards | [`RunResult::new_items`], [`trace`] |
//! | ask another server | [`Endpoint`], [`Models`], [`ModelSource`] |
//! | give an agent a place to work in | [`environment`] |
//! | make a run step by step, or look at one | [`RunBuilder::steps`], [`Run::next`], [`Step`] |

pub mod agent;
mod config;
pub mod environment;
mod error;
pub mod guardrail;
pub mod handoff;
pub mod hooks;
mod item;
mod model;
mod output;
mod result;
mod run;
mod runner;
pub mod schema;
mod scripted;
mod secrets;
mod settings;
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
    agent::Agent,
    config::{ModelInput, Recovery, RunConfig, Trouble},
    environment::{Environment, Kit, Lens, Look, Question},
    error::{AgentError, BoxError, Guarded, Result},
    handoff::Handoff,
    hooks::{HookContext, Hooks},
    item::{CustomCall, FunctionCall, Item, Items, Message, Part, Role, View},
    model::{
        ApiKey, Chat, Endpoint, Model, ModelError, ModelEvent, ModelReply, ModelRequest, ModelSource, ModelStream,
        Models, OutputFormat, Patience, Prompt, Proxies, Proxy, ProxyError, RawEvent, Responses, SseDecoder, SseEvent,
        Wire,
    },
    output::OutputType,
    result::{RunError, RunResult},
    run::{Approvals, Budget, Interruption, Price, Prices, Run, RunItem, RunItemKind, RunState, Spent, Step, Stop},
    runner::{Canceller, RunBuilder, RunEvent, RunInput, RunStream, run},
    scripted::{ScriptedModel, Turn},
    settings::{ModelSettings, Private, Reasoning, Retry, RetryOn, ToolChoice},
    tool::{
        App, Approval, ArgumentsError, CustomTool, Enabled, FunctionTool, Grammar, HostedTool, IntoToolOutput, Json,
        NoArguments, OnFailure, OnTimeout, Ruled, Tool, ToolContext, ToolExt, ToolKind, ToolOutput, ToolRules,
        ToolSpec, decode_arguments,
    },
    usage::{RequestUsage, Usage},
};

/// What the code that `#[tool]` writes is made of. Not for use by hand.
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
