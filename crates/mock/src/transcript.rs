//! The transcript of a request: its instructions, tools and items, from which the next turn follows.

use std::{borrow::Cow, fmt};

use serde_json::Value;

use crate::{
    When,
    chain::Chain,
    item,
    play::{Play, Position},
    refusal::Refusal,
};

/// A request of any endpoint.
#[derive(Debug, Default)]
pub(crate) struct Ask<'a> {
    pub(crate) model: Option<&'a str>,
    pub(crate) instructions: Option<&'a str>,
    pub(crate) tools: Vec<&'a str>,
    pub(crate) entries: Vec<Entry<'a>>,
    /// Earlier response or conversation that the request refers to.
    pub(crate) previous: Chain,
}

/// One item of a transcript.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) place: ItemPosition,
    pub(crate) item: Cow<'a, Value>,
}

/// Position of an item in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemPosition {
    Input(usize),
    /// The input is a string.
    InputText,
    /// An item of a stored conversation.
    Stored(usize),
    /// An item that is being added to a stored conversation.
    Item(usize),
    Message(usize),
    ToolCall(usize, usize),
}

impl fmt::Display for ItemPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(at) => write!(f, "input[{at}]"),
            Self::InputText => write!(f, "input"),
            Self::Stored(at) => write!(f, "conversation.items[{at}]"),
            Self::Item(at) => write!(f, "items[{at}]"),
            Self::Message(at) => write!(f, "messages[{at}]"),
            Self::ToolCall(at, call) => write!(f, "messages[{at}].tool_calls[{call}]"),
        }
    }
}

/// Position of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) conversation: usize,
    pub(crate) turn: usize,
    /// Progress of all conversations after the answer.
    pub(crate) chain: Chain,
}

impl Ask<'_> {
    /// The next turn and its conversation. The choice depends only on the request.
    pub(crate) fn choose(&self, play: &Play) -> Result<Choice, Refusal> {
        let mut chain = self.seen(play);
        let told = self.told();
        let Some(conversation) =
            play.scenes.iter().enumerate().position(|(at, scene)| self.meets(&scene.when, at, &told))
        else {
            return Err(Refusal::script("no_conversation", "No conversation of the script answers such a request."));
        };
        let scene = &play.scenes[conversation];
        let mut turn = chain.next_turn(conversation);
        if turn >= scene.turns.len() {
            if !play.closing {
                let (name, count) = (&scene.name, scene.turns.len());
                let message = format!(
                    "The transcript is past the end of {name}: it has {count} turns, and none is number {turn}."
                );
                return Err(Refusal::script("script_exhausted", message));
            }
            turn = scene.turns.len() - 1;
        }
        chain.advance(Position { conversation, turn, item: usize::MAX });
        Ok(Choice { conversation, turn, chain })
    }

    /// Progress of each conversation, from its marks in the transcript.
    pub(crate) fn seen(&self, play: &Play) -> Chain {
        let mut chain = self.previous.clone();
        for entry in &self.entries {
            see(&mut chain, &entry.item, play);
        }
        chain
    }

    fn meets(&self, when: &When, conversation: usize, told: &RequestFacts) -> bool {
        let user = when.last_user.as_ref().is_none_or(|wanted| match &told.last_user {
            Some(text) => text.contains(wanted.as_str()),
            // The message of the user is in the stored part: the conversation that answered then continues.
            None => self.previous.knows(conversation),
        });
        let tool = when.tool.as_ref().is_none_or(|wanted| self.tools.contains(&wanted.as_str()));
        let model = when.model.as_ref().is_none_or(|wanted| self.model == Some(wanted.as_str()));
        let instructions = when.instructions.as_ref().is_none_or(|wanted| {
            self.instructions.is_some_and(|text| text.contains(wanted.as_str()))
                || told.instructions.iter().any(|text| text.contains(wanted.as_str()))
        });
        user && tool && model && instructions
    }

    fn told(&self) -> RequestFacts {
        let texts_of = |roles: &'static [&'static str]| {
            let told = move |entry: &&Entry<'_>| role(&entry.item).is_some_and(|role| roles.contains(&role));
            self.entries.iter().filter(told).filter_map(|entry| item::message_text(&entry.item))
        };
        RequestFacts {
            last_user: texts_of(&["user"]).next_back(),
            instructions: texts_of(&["system", "developer"]).collect(),
        }
    }
}

/// Data of a request that conditions are compared with.
struct RequestFacts {
    last_user: Option<String>,
    instructions: Vec<String>,
}

fn see(chain: &mut Chain, item: &Value, play: &Play) {
    let field = |key: &str| item.get(key).and_then(Value::as_str);
    let opaque = field("encrypted_content");
    if let Some(kept) =
        opaque.and_then(|content| content.strip_prefix(COMPACTED)).and_then(|text| Chain::read(text, play))
    {
        return chain.merge(&kept);
    }
    let marks = &play.marks;
    let known = [
        field("id").and_then(|id| marks.ids.get(id)),
        field("call_id").and_then(|id| marks.calls.get(id)),
        opaque.and_then(|content| marks.ids.get(content)),
    ];
    if let Some(positions) = known.into_iter().flatten().next() {
        // An output shows progress only if its call is missing; otherwise the call already shows it.
        let is_output = field("type").is_some_and(|kind| kind.ends_with("_output"));
        if !is_output || !chain.covers(positions[0]) {
            chain.advance_to_next(positions);
        }
        return;
    }
    if role(item) == Some("assistant")
        && let Some(positions) = item::message_text(item).and_then(|text| marks.texts.get(&text))
    {
        chain.advance_to_next(positions);
    }
}

/// Prefix of the content of a compaction item; a [`Chain`] follows.
pub(crate) const COMPACTED: &str = "mock:";

/// Role of a message.
pub(crate) fn role(item: &Value) -> Option<&str> {
    item.get("role")?.as_str()
}
