//! Input of the next model request: the conversation so far, without items and fields that servers reject. Only new items
//! are processed for each request.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::{Run, RunItem, RunItemKind, Thread};
use crate::{Item, Items, handoff::HandoffInput};

/// Items that replace the input and the run's items before index `from` in requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReplacedInput {
    items: Vec<Item>,
    pub(super) from: usize,
}

/// Input that was assembled already. It is not saved; a loaded run builds it again.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelInputCache {
    items: Items,
    /// Number of items of the caller's own input, which are sent unchanged.
    given: usize,
    /// Number of items of the run that were processed.
    upto: usize,
    places: HashMap<String, usize>,
    open: HashSet<String>,
}

/// Fields that servers send and reject in requests.
const SERVER_ONLY: &[&str] = &["created_by"];

/// Ids that mean "no id".
const NO_ID: [&str; 2] = ["", "__fake_id__"];

impl Run {
    /// Input of the next model request.
    pub(crate) fn model_input(&mut self) -> Items {
        if let (Thread::Responses(Some(_)) | Thread::Conversation(_), Some(last)) = (&self.thread, self.replies.last())
        {
            return self.items[last.to..].iter().map(|item| clean(&item.raw)).collect();
        }
        let cache =
            self.model_input_cache.get_or_insert_with(|| ModelInputCache::begin(&self.input, self.rewritten.as_ref()));
        for item in &self.items[cache.upto..] {
            cache.push(clean(&item.raw));
        }
        cache.upto = self.items.len();
        cache.without_orphans()
    }

    /// The conversation in the parts that a handoff filter may change.
    pub(crate) fn handoff_input(&self) -> HandoffInput {
        let turn = self.replies.last().map_or(self.items.len(), |reply| reply.from);
        let (history, from) = match &self.rewritten {
            Some(ReplacedInput { items, from }) => (items.clone(), *from),
            None => (self.input.clone(), 0),
        };
        let turn = turn.max(from);
        HandoffInput { history, before: self.items[from..turn].to_vec(), new: self.items[turn..].to_vec() }
    }

    /// Replaces the conversation so far in later requests by these items.
    pub(crate) fn replace_model_input(&mut self, items: Vec<Item>) {
        self.rewritten = Some(ReplacedInput { items, from: self.items.len() });
        self.model_input_cache = None;
    }

    /// Adds input before the run continues.
    pub(crate) fn add_input(&mut self, items: impl IntoIterator<Item = Item>) {
        let agent = self.agent.clone();
        self.items.extend(items.into_iter().map(|raw| RunItem {
            kind: RunItemKind::Input,
            agent: agent.clone(),
            raw,
            output: None,
        }));
    }

    /// The conversation so far, as input for another run.
    #[must_use]
    pub fn input_list(&self) -> Vec<Item> {
        let mut seen = ModelInputCache::default();
        self.input.iter().for_each(|item| seen.push(item.clone()));
        self.items.iter().for_each(|item| seen.push(clean(&item.raw)));
        seen.items.into_vec()
    }
}

fn clean(item: &Item) -> Item {
    item.clone().without(SERVER_ONLY)
}

/// What a handoff filter left, as input of the model.
pub(super) fn joined(seen: HandoffInput) -> Vec<Item> {
    let kept = seen.before.into_iter().chain(seen.new).map(|item| clean(&item.raw));
    seen.history.into_iter().chain(kept).collect()
}

impl ModelInputCache {
    /// The input before the items of the run, or the items that replace it.
    fn begin(input: &[Item], replaced: Option<&ReplacedInput>) -> Self {
        let mut cache = Self::default();
        let (items, upto) = replaced.map_or((input, 0), |replaced| (&replaced.items, replaced.from));
        items.iter().for_each(|item| cache.push(item.clone()));
        // Items from a filter are not the caller's own input, so they are cleaned like all others.
        cache.given = if replaced.is_none() { cache.items.len() } else { 0 };
        cache.upto = upto;
        cache
    }

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
        // If a server repeats an item, its latest value replaces the first one in place.
        if let Some(id) = item.id().filter(|id| !NO_ID.contains(id)) {
            let same = |known: &Item| known.kind() == item.kind() && known.call_id() == item.call_id();
            match self.places.get(id) {
                Some(place) if self.items.get(*place).is_some_and(same) => {
                    self.items.replace(*place, item);
                    return;
                }
                // Some servers restart their ids in each response: the same id on a different kind of item is a new item.
                _ => self.places.insert(id.to_owned(), self.items.len()),
            };
        }
        self.items.push(item);
    }

    /// Drops everything before a compaction item, which contains it, except calls that are not answered yet.
    fn forget(&mut self) {
        let open = &self.open;
        self.items.retain(|item| item.is_call() && item.call_id().is_some_and(|id| open.contains(id)));
        self.given = 0;
        let ids = self.items.iter().enumerate();
        self.places = ids.filter_map(|(place, item)| Some((item.id()?.to_owned(), place))).collect();
    }

    /// The items without unanswered calls and the reasoning items right before them: servers reject both.
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
