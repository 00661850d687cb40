//! What the server says, and when: conversations of turns, written in code or read from JSON.

use serde_json::{Value, json};

use crate::{Fault, MockError};

mod read;

/// Everything a server needs to know: its conversations, and how it behaves.
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

/// Turns that follow one another, and which requests they answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    pub(crate) name: Option<String>,
    pub(crate) when: When,
    pub(crate) turns: Vec<Turn>,
}

/// One answer of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    pub(crate) output: Vec<Value>,
    pub(crate) usage: Value,
    pub(crate) faults: Vec<Fault>,
}

/// Which requests a conversation answers: all conditions given must hold. Without any, it answers all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct When {
    pub(crate) last_user: Option<String>,
    pub(crate) tool: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) instructions: Option<String>,
}

/// Whether requests must carry a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Authorization {
    /// Nobody looks.
    #[default]
    Optional,
    /// `Authorization: Bearer` and anything.
    AnyKey,
    /// This key and no other.
    Key(String),
}

/// How much of a stream is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Events {
    /// Every event a real server sends.
    #[default]
    Full,
    /// Only that the response was created, that each item is done, and that the response is completed.
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
    /// A script that has nothing to say yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a script from JSON: `{"turns": [{"output": [ … ]}]}`, or `{"conversations": [{"when": …, "turns": …}]}`.
    ///
    /// # Errors
    ///
    /// Names the place of whatever is unknown, missing or of the wrong kind.
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

    /// What is said when a conversation is over. Without it, a request past the last turn is an error.
    #[must_use]
    pub fn closing(mut self, text: impl Into<String>) -> Self {
        self.closing = Some(text.into());
        self
    }

    /// Asks for a key.
    #[must_use]
    pub fn authorization(mut self, authorization: Authorization) -> Self {
        self.authorization = authorization;
        self
    }

    /// How much of a stream is sent.
    #[must_use]
    pub fn events(mut self, events: Events) -> Self {
        self.events = events;
        self
    }

    /// How many characters each delta has. The default is 8; zero is taken as one.
    #[must_use]
    pub fn delta_chars(mut self, characters: usize) -> Self {
        self.delta_chars = characters.max(1);
        self
    }

    /// How many requests and problems are remembered, at most. The oldest go first. The default is 10,000.
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

    /// A name for error messages.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only for requests such as these.
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
    /// A turn in which the model says all of these. See [`item`](crate::item).
    pub fn new(output: impl IntoIterator<Item = Value>) -> Self {
        Self { output: output.into_iter().collect(), usage: usage(100, 10), faults: Vec::new() }
    }

    /// How many tokens it is said to cost. The default is 100 in and 10 out.
    #[must_use]
    pub fn tokens(mut self, input: u64, output: u64) -> Self {
        self.usage = usage(input, output);
        self
    }

    /// The usage as it is on the wire. `null` is something clients must live with.
    #[must_use]
    pub fn usage(mut self, usage: Value) -> Self {
        self.usage = usage;
        self
    }

    /// Adds a fault for the next attempt that has none.
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

    /// The last thing the user said contains this.
    #[must_use]
    pub fn last_user(mut self, text: impl Into<String>) -> Self {
        self.last_user = Some(text.into());
        self
    }

    /// A tool of this name is offered.
    #[must_use]
    pub fn tool(mut self, name: impl Into<String>) -> Self {
        self.tool = Some(name.into());
        self
    }

    /// The model is this one.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.model = Some(name.into());
        self
    }

    /// The instructions, or a system or developer message, contain this.
    #[must_use]
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.instructions = Some(text.into());
        self
    }
}

/// A whole usage object.
pub(crate) fn usage(input: u64, output: u64) -> Value {
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input.saturating_add(output),
    })
}
