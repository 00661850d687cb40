//! Scripts: conversations of turns, written in code or read from JSON.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Fault, MockError};

mod read;

/// A script: conversations, and settings of the server.
///
/// ```
/// use sandbar_mock::{Script, item};
///
/// let script = Script::new()
///     .turn(item::function_call("add", serde_json::json!({"a": 1, "b": 2})))
///     .turn(item::text("The sum is 3."));
/// # drop(script);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    pub(crate) conversations: Vec<Conversation>,
    pub(crate) closing: Option<String>,
    pub(crate) authorization: Authorization,
    pub(crate) events: Events,
    pub(crate) delta_chars: usize,
    pub(crate) log_entries: usize,
}

/// A sequence of turns, and the requests that it answers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct Conversation {
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) when: When,
    pub(crate) turns: Vec<Turn>,
}

/// One reply of the model, with its faults.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct Turn {
    pub(crate) output: Vec<Value>,
    #[serde(default = "usual_usage", deserialize_with = "read::tokens")]
    pub(crate) usage: Value,
    #[serde(default)]
    pub(crate) faults: Vec<Fault>,
}

/// Conditions of a conversation. A request must meet all of them; without conditions, every request matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "an object")]
pub struct When {
    pub(crate) last_user: Option<String>,
    pub(crate) tool: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) instructions: Option<String>,
}

/// Whether requests need a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Authorization {
    /// The header is not checked.
    #[default]
    Optional,
    /// `Authorization: Bearer` with any key.
    AnyKey,
    /// `Authorization: Bearer` with this key.
    Key(String),
}

/// Events of a stream that are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Events {
    /// Every event that a real server sends.
    #[default]
    Full,
    /// Only the events for the created response, for each completed item, and for the completed response.
    Minimal,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            conversations: Vec::new(),
            closing: None,
            authorization: Authorization::Optional,
            events: Events::Full,
            delta_chars: 8,
            log_entries: 10_000,
        }
    }
}

impl Script {
    /// An empty script.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a script from JSON: `{"turns": [{"output": [ … ]}]}`, or `{"conversations": [{"when": …, "turns": …}]}`.
    ///
    /// # Errors
    ///
    /// If a field is unknown, missing or of the wrong type. The error names its position.
    pub fn from_json(text: &str) -> Result<Self, MockError> {
        read::script(text)
    }

    /// Adds a turn to the last conversation.
    #[must_use]
    pub fn turn(mut self, turn: impl Into<Turn>) -> Self {
        if self.conversations.is_empty() {
            self.conversations.push(Conversation::new());
        }
        if let Some(last) = self.conversations.last_mut() {
            last.turns.push(turn.into());
        }
        self
    }

    /// Adds a conversation. The first one that matches a request answers it.
    #[must_use]
    pub fn conversation(mut self, conversation: Conversation) -> Self {
        self.conversations.push(conversation);
        self
    }

    /// Sets the reply after the last turn of a conversation. Without it, a request after the last turn is an error.
    #[must_use]
    pub fn closing(mut self, text: impl Into<String>) -> Self {
        self.closing = Some(text.into());
        self
    }

    /// Sets whether requests need a key.
    #[must_use]
    pub fn authorization(mut self, authorization: Authorization) -> Self {
        self.authorization = authorization;
        self
    }

    /// Sets the events of a stream that are sent.
    #[must_use]
    pub fn events(mut self, events: Events) -> Self {
        self.events = events;
        self
    }

    /// Sets the number of characters of each delta. The default is 8; zero means one.
    #[must_use]
    pub fn delta_chars(mut self, characters: usize) -> Self {
        self.delta_chars = characters.max(1);
        self
    }

    /// Sets the maximum number of requests and problems in the log; the oldest are dropped first. The default is 10,000.
    #[must_use]
    pub fn log_entries(mut self, entries: usize) -> Self {
        self.log_entries = entries;
        self
    }
}

impl Conversation {
    /// A conversation without turns, for every request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name in error messages.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the conditions of the conversation.
    #[must_use]
    pub fn when(mut self, when: When) -> Self {
        self.when = when;
        self
    }

    /// Adds a turn.
    #[must_use]
    pub fn turn(mut self, turn: impl Into<Turn>) -> Self {
        self.turns.push(turn.into());
        self
    }
}

impl Turn {
    /// A turn with these output items, see [`item`](crate::item).
    pub fn new(output: impl IntoIterator<Item = Value>) -> Self {
        Self { output: output.into_iter().collect(), usage: usual_usage(), faults: Vec::new() }
    }

    /// Sets the usage of the turn. The default is 100 input tokens and 10 output tokens.
    #[must_use]
    pub fn tokens(mut self, input: u64, output: u64) -> Self {
        self.usage = usage(input, output);
        self
    }

    /// Sets the usage as JSON. Real servers also send `null`.
    #[must_use]
    pub fn usage(mut self, usage: Value) -> Self {
        self.usage = usage;
        self
    }

    /// Adds a fault for the next attempt without one.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }
}

impl From<Value> for Turn {
    fn from(item: Value) -> Self {
        Self::new([item])
    }
}

impl From<Vec<Value>> for Turn {
    fn from(output: Vec<Value>) -> Self {
        Self::new(output)
    }
}

impl<const N: usize> From<[Value; N]> for Turn {
    fn from(output: [Value; N]) -> Self {
        Self::new(output)
    }
}

impl When {
    /// No condition.
    pub fn any() -> Self {
        Self::default()
    }

    /// Matches if the last message of the user contains this text.
    #[must_use]
    pub fn last_user(mut self, text: impl Into<String>) -> Self {
        self.last_user = Some(text.into());
        self
    }

    /// Matches if a tool with this name is offered.
    #[must_use]
    pub fn tool(mut self, name: impl Into<String>) -> Self {
        self.tool = Some(name.into());
        self
    }

    /// Matches if the request names this model.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.model = Some(name.into());
        self
    }

    /// Matches if the instructions, or a system or developer message, contain this text.
    #[must_use]
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.instructions = Some(text.into());
        self
    }
}

fn usual_usage() -> Value {
    usage(100, 10)
}

/// A complete usage object.
pub(crate) fn usage(input: u64, output: u64) -> Value {
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input.saturating_add(output),
    })
}
