//! What the model gets to see: everything so far, cleaned of what no server takes back, in one pass over what is new.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::{Run, RunItem, RunItemKind, Thread};
use crate::{Item, Items, handoff::HandoffInput};

/// What a handoff's filter made of everything up to one of the run's items.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rewritten {
    items: Vec<Item>,
    from: usize,
}

/// What was assembled already. Only a cache: it is made anew when a run is loaded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    items: Items,
    /// Where the caller's own input ends: that is sent as it is.
    given: usize,
    upto: Option<usize>,
    places: HashMap<String, usize>,
    open: HashSet<String>,
}

/// Fields that servers send and do not take back.
const SERVER_ONLY: &[&str] = &["created_by"];

/// Ids that stand for none.
const NO_ID: [&str; 2] = ["", "__fake_id__"];

impl Run {
    /// What the model gets to see now.
    pub(crate) fn model_input(&mut self) -> Items {
        if let (Thread::Responses(Some(_)) | Thread::Conversation(_), Some(last)) = (&self.thread, self.replies.last())
        {
            return self.items[last.to..].iter().map(|item| clean(&item.raw)).collect();
        }
        let upto = match self.seen.upto {
            Some(upto) => upto,
            None => self.begin_seeing(),
        };
        for item in &self.items[upto..] {
            self.seen.push(clean(&item.raw));
        }
        self.seen.upto = Some(self.items.len());
        self.seen.without_orphans()
    }

    fn begin_seeing(&mut self) -> usize {
        self.seen = Seen::default();
        match &self.rewritten {
            // What a filter made is not the caller's any more: the usual rules hold for it.
            Some(Rewritten { items, from }) => {
                items.iter().for_each(|item| self.seen.push(item.clone()));
                *from
            }
            None => {
                self.input.iter().for_each(|item| self.seen.push(item.clone()));
                self.seen.given = self.seen.items.len();
                0
            }
        }
    }

    /// The parts a handoff's filter may change; `from` is where the turn of the handoff begins.
    pub(crate) fn handoff_input(&self) -> HandoffInput {
        let turn = self.replies.last().map_or(self.items.len(), |reply| reply.from);
        let (history, from) = match &self.rewritten {
            Some(Rewritten { items, from }) => (items.clone(), *from),
            None => (self.input.clone(), 0),
        };
        let turn = turn.max(from);
        HandoffInput { history, before: self.items[from..turn].to_vec(), new: self.items[turn..].to_vec() }
    }

    /// From here on the model sees this in place of everything so far.
    pub(crate) fn rewrite(&mut self, seen: HandoffInput) {
        let kept = seen.before.into_iter().chain(seen.new).map(|item| clean(&item.raw));
        self.rewritten =
            Some(Rewritten { items: seen.history.into_iter().chain(kept).collect(), from: self.items.len() });
        self.seen = Seen::default();
    }

    /// From here on the model sees these items in place of everything so far.
    pub(crate) fn see_instead(&mut self, items: Vec<Item>) {
        self.rewritten = Some(Rewritten { items, from: self.items.len() });
        self.seen = Seen::default();
    }

    pub(super) fn rewritten_within(&self, items: usize) -> bool {
        self.rewritten.as_ref().is_none_or(|rewritten| rewritten.from <= items)
    }

    /// Something is said to the run before it goes on.
    pub(crate) fn add_input(&mut self, items: impl IntoIterator<Item = Item>) {
        let agent = self.agent.clone();
        self.items.extend(items.into_iter().map(|raw| RunItem {
            kind: RunItemKind::Input,
            agent: agent.clone(),
            raw,
            output: None,
        }));
    }

    /// The conversation so far as the input of a next run.
    #[must_use]
    pub fn input_list(&self) -> Vec<Item> {
        let mut seen = Seen::default();
        self.input.iter().for_each(|item| seen.push(item.clone()));
        self.items.iter().for_each(|item| seen.push(clean(&item.raw)));
        seen.items.into_vec()
    }
}

fn clean(item: &Item) -> Item {
    item.clone().without(SERVER_ONLY)
}

impl Seen {
    fn push(&mut self, item: Item) {
        if item.kind() == "compaction" {
            self.forget();
        }
        if let Some(call_id) = item.call_id() {
            if item.is_answer() {
                self.open.remove(call_id);
            } else if item.is_call() {
                self.open.insert(call_id.to_owned());
            }
        }
        // A server that repeats an item means its latest value, at the place where it was first.
        if let Some(id) = item.id().filter(|id| !NO_ID.contains(id)) {
            let same = |known: &Item| known.kind() == item.kind() && known.call_id() == item.call_id();
            match self.places.get(id) {
                Some(place) if self.items.get(*place).is_some_and(same) => {
                    self.items.replace(*place, item);
                    return;
                }
                // Some servers count anew in each response: another thing with that id is another thing.
                _ => self.places.insert(id.to_owned(), self.items.len()),
            };
        }
        self.items.push(item);
    }

    /// Everything before a compaction is in it; only calls that still wait for their answer must stay.
    fn forget(&mut self) {
        let open = &self.open;
        self.items.retain(|item| item.is_call() && item.call_id().is_some_and(|id| open.contains(id)));
        self.given = 0;
        let ids = self.items.iter().enumerate();
        self.places = ids.filter_map(|(place, item)| Some((item.id()?.to_owned(), place))).collect();
    }

    /// Without calls that nobody answered, and without the thought that led to such a call: servers refuse both.
    fn without_orphans(&self) -> Items {
        if self.open.is_empty() {
            return self.items.clone();
        }
        let mut kept: Vec<Item> = self.items[..self.given].to_vec();
        for item in &self.items[self.given..] {
            let orphan = item.is_call() && item.call_id().is_some_and(|id| self.open.contains(id));
            if !orphan {
                kept.push(item.clone());
            } else if kept.len() > self.given && kept.last().is_some_and(|last| last.kind() == "reasoning") {
                kept.pop();
            }
        }
        kept.into()
    }
}
