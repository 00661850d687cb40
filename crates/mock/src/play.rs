//! A prepared script: its items are complete, and the marks that each turn leaves in a transcript are known.

use std::{collections::HashMap, sync::atomic::AtomicUsize};

use serde_json::Value;

use crate::{Authorization, Events, Fault, MockError, Script, When, item, script::Turn};

/// Limits of a script, which bound its ids and caches.
const MOST_CONVERSATIONS: usize = 1_000;
const MOST_TURNS: usize = 100_000;
const MOST_ITEMS: usize = 1_000_000;

/// Position of an item in a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) conversation: usize,
    pub(crate) turn: usize,
    pub(crate) item: usize,
}

/// A prepared script.
#[derive(Debug)]
pub(crate) struct Play {
    pub(crate) scenes: Vec<Scene>,
    pub(crate) marks: Marks,
    pub(crate) closing: bool,
    pub(crate) authorization: Authorization,
    pub(crate) events: Events,
    pub(crate) delta_chars: usize,
}

/// A prepared conversation. If the script has a closing, the closing is the last turn.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) name: String,
    pub(crate) when: When,
    pub(crate) turns: Vec<Ready>,
}

/// A prepared turn.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) output: Vec<Value>,
    pub(crate) usage: Value,
    pub(crate) faults: Vec<Fault>,
    /// Number of times that the turn was played.
    pub(crate) attempts: AtomicUsize,
}

/// Marks that show in a transcript that an item was sent. Positions are sorted.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    pub(crate) ids: HashMap<String, Vec<Position>>,
    pub(crate) calls: HashMap<String, Vec<Position>>,
    pub(crate) texts: HashMap<String, Vec<Position>>,
}

impl Play {
    pub(crate) fn new(script: Script) -> Result<Self, MockError> {
        let turns: usize = script.conversations.iter().map(|conversation| conversation.turns.len()).sum();
        let items: usize = script
            .conversations
            .iter()
            .flat_map(|conversation| &conversation.turns)
            .map(|turn| turn.output.len())
            .sum();
        for (what, count, most) in [
            ("conversations", script.conversations.len(), MOST_CONVERSATIONS),
            ("turns", turns, MOST_TURNS),
            ("items", items, MOST_ITEMS),
        ] {
            if count > most {
                return Err(MockError::script("script", format!("it has {count} {what}; {most} is the most")));
            }
        }
        let mut play = Self {
            scenes: Vec::new(),
            marks: Marks::default(),
            closing: script.closing.is_some(),
            authorization: script.authorization,
            events: script.events,
            delta_chars: script.delta_chars,
        };
        let single = script.conversations.len() == 1 && script.conversations[0].name.is_none();
        for (at, mut conversation) in script.conversations.into_iter().enumerate() {
            conversation.turns.extend(script.closing.as_ref().map(|text| Turn::new([item::text(text.as_str())])));
            let place = if single { String::new() } else { format!("conversations[{at}].") };
            let count = conversation.turns.len();
            let mut turns = Vec::with_capacity(count);
            for (number, turn) in conversation.turns.into_iter().enumerate() {
                let place = format!("{place}turns[{number}]");
                if turn.output.is_empty() && number + 1 < count {
                    return Err(MockError::script(
                        place,
                        "only a last turn may say nothing: it shows in no transcript",
                    ));
                }
                turns.push(play.ready(Position { conversation: at, turn: number, item: 0 }, turn, &place)?);
            }
            let name = conversation.name.map_or_else(|| format!("conversation {at}"), |name| format!("{name:?}"));
            play.scenes.push(Scene { name, when: conversation.when, turns });
        }
        Ok(play)
    }

    fn ready(&mut self, at: Position, turn: Turn, place: &str) -> Result<Ready, MockError> {
        for (number, fault) in turn.faults.iter().enumerate() {
            if let Some((field, reason)) = fault.flaw() {
                return Err(MockError::script(format!("{place}.faults[{number}].{field}"), reason));
            }
        }
        let mut output = Vec::with_capacity(turn.output.len());
        let mut said = Vec::new();
        for (number, item) in turn.output.into_iter().enumerate() {
            let at = Position { item: number, ..at };
            // Items of the first conversation have short ids, for scripts with one conversation.
            let name = match at.conversation {
                0 => format!("{}_{number}", at.turn),
                other => format!("{other}_{}_{number}", at.turn),
            };
            let item = item::complete(item, &name)
                .map_err(|reason| MockError::script(format!("{place}.output[{number}]"), reason))?;
            self.marks.add(at, &item);
            said.extend(item::message_text(&item).filter(|text| !text.is_empty()).map(|text| (at, text)));
            output.push(item);
        }
        // Chat completions have one text per turn.
        if let [_, .., (last, _)] = said.as_slice() {
            let whole = said.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n");
            self.marks.texts.entry(whole).or_default().push(*last);
        }
        Ok(Ready { output, usage: turn.usage, faults: turn.faults, attempts: AtomicUsize::new(0) })
    }

    /// The turn with this index, if there is one.
    pub(crate) fn turn(&self, conversation: usize, turn: usize) -> Option<&Ready> {
        self.scenes.get(conversation)?.turns.get(turn)
    }

    /// Whether an item of a request has the id of an item of the script.
    pub(crate) fn has_item(&self, item: &Value) -> bool {
        item.get("id").and_then(Value::as_str).is_some_and(|id| self.marks.ids.contains_key(id))
    }
}

impl Marks {
    fn add(&mut self, at: Position, item: &Value) {
        let mark = |key: &str| item.get(key).and_then(Value::as_str).map(str::to_owned);
        // A client returns opaque content unchanged, even if it drops the id.
        for id in [mark("id"), mark("encrypted_content")].into_iter().flatten() {
            add(&mut self.ids, id, at);
        }
        mark("call_id").into_iter().for_each(|call| add(&mut self.calls, call, at));
        item::message_text(item).into_iter().for_each(|text| add(&mut self.texts, text, at));
    }
}

fn add(marks: &mut HashMap<String, Vec<Position>>, mark: String, at: Position) {
    if !mark.is_empty() {
        marks.entry(mark).or_default().push(at);
    }
}
