//! A model that replies from a script, for tests, demonstrations and benchmarks.

use std::{collections::VecDeque, sync::Arc};

use async_trait::async_trait;
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{Item, Model, ModelError, ModelEvent, ModelReply, ModelRequest, ModelStream, RawEvent, Usage, Wire};

/// A model that replies from a script, turn by turn, and records the requests.
///
/// ```
/// # use sandbar_agent::{Agent, Item, ScriptedModel, run};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), sandbar_agent::RunError> {
/// let model = ScriptedModel::new([vec![Item::assistant("Hello.")]]);
/// let result = run(&Agent::new("greeter").model(model.clone()), "Hi!").await?;
/// assert_eq!(result.final_output(), "Hello.");
/// assert_eq!(model.requests().len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ScriptedModel {
    name: Arc<str>,
    wire: Wire,
    script: Arc<Mutex<Script>>,
}

#[derive(Debug, Default)]
struct Script {
    turns: VecDeque<Turn>,
    asked: Vec<ModelRequest>,
    answered: usize,
}

/// One turn of a script: a reply or a failure.
#[derive(Clone, Debug)]
pub enum Turn {
    /// A reply with these items.
    Items(Vec<Item>),
    /// Exactly this reply.
    Reply(ModelReply),
    /// A failure.
    Error(ModelError),
    /// These events, and then a failure.
    Broken(Vec<RawEvent>, ModelError),
}

impl From<Vec<Item>> for Turn {
    fn from(items: Vec<Item>) -> Self {
        Self::Items(items)
    }
}

impl From<ModelError> for Turn {
    fn from(error: ModelError) -> Self {
        Self::Error(error)
    }
}

impl From<ModelReply> for Turn {
    fn from(reply: ModelReply) -> Self {
        Self::Reply(reply)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonScript {
    turns: Vec<JsonTurn>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonTurn {
    output: Vec<Item>,
    #[serde(default)]
    usage: Option<crate::usage::WireUsage>,
}

impl ScriptedModel {
    /// A model that plays these turns in order.
    pub fn new<T: Into<Turn>>(turns: impl IntoIterator<Item = T>) -> Self {
        let script = Script { turns: turns.into_iter().map(Into::into).collect(), ..Script::default() };
        Self { name: Arc::from("scripted"), wire: Wire::Responses, script: Arc::new(Mutex::new(script)) }
    }

    /// Reads a script from JSON: `{"turns":[{"output":[…]}…]}`, where `output` has items of the Responses API.
    ///
    /// # Errors
    /// When the text is not such a script; the message gives the position.
    pub fn from_json(text: &str) -> Result<Self, ModelError> {
        let script: JsonScript = serde_json::from_str(text)
            .map_err(|error| ModelError::Unusable(format!("the script of the model is wrong: {error}")))?;
        Ok(Self::new(script.turns.into_iter().map(|turn| match turn.usage {
            None => Turn::Items(turn.output),
            Some(usage) => {
                Turn::Reply(ModelReply { output: turn.output, usage: usage.into(), ..ModelReply::default() })
            }
        })))
    }

    /// Sets the name of the model.
    #[must_use]
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the API that the model claims to use.
    #[must_use]
    pub fn with_wire(mut self, wire: Wire) -> Self {
        self.wire = wire;
        self
    }

    /// All requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.lock(|script| script.asked.clone())
    }

    /// Number of turns that were not played yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.lock(|script| script.turns.len())
    }

    fn lock<T>(&self, use_script: impl FnOnce(&mut Script) -> T) -> T {
        use_script(&mut self.script.lock())
    }

    /// The number of the next turn, and the turn.
    fn take(&self, request: ModelRequest) -> Result<(usize, Turn), ModelError> {
        self.lock(|script| {
            script.asked.push(request);
            script.answered += 1;
            let turn = script.turns.pop_front().ok_or_else(|| {
                ModelError::Unusable(format!("the script of the model has no turn {}", script.answered))
            })?;
            Ok((script.answered, turn))
        })
    }
}

#[async_trait]
impl Model for ScriptedModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn wire(&self) -> Wire {
        self.wire
    }

    async fn stream(&self, request: ModelRequest) -> Result<ModelStream, ModelError> {
        let (number, turn) = self.take(request)?;
        let reply = match turn {
            Turn::Error(error) => return Err(error),
            Turn::Broken(events, error) => {
                let events = events.into_iter().map(|event| Ok(ModelEvent::Raw(event)));
                return Ok(stream::iter(events.chain([Err(error)])).boxed());
            }
            Turn::Reply(reply) => reply,
            Turn::Items(output) => ModelReply {
                output,
                usage: Usage { requests: 1, ..Usage::default() },
                response_id: Some(format!("resp_{number}")),
                request_id: None,
            },
        };
        let mut events = narrate(&reply);
        events.push(Ok(ModelEvent::Done(reply)));
        Ok(stream::iter(events).boxed())
    }
}

/// Events that a server would send before this reply.
fn narrate(reply: &ModelReply) -> Vec<Result<ModelEvent, ModelError>> {
    let mut events = vec![event("response.created", json!({}))];
    for (index, item) in reply.output.iter().enumerate() {
        events.push(event("response.output_item.added", json!({ "output_index": index, "item": item })));
        if let crate::View::Message(message) = item.view() {
            let delta = json!({ "output_index": index, "content_index": 0, "delta": message.text() });
            events.push(event("response.output_text.delta", delta));
        }
        events.push(event("response.output_item.done", json!({ "output_index": index, "item": item })));
    }
    events.push(event("response.completed", json!({})));
    events.into_iter().map(|event| Ok(ModelEvent::Raw(event))).collect()
}

fn event(kind: &str, fields: Value) -> RawEvent {
    let mut all = Map::from_iter([("type".to_owned(), Value::from(kind))]);
    if let Value::Object(fields) = fields {
        all.extend(fields);
    }
    RawEvent(all)
}
