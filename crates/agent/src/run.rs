//! A whole run as a value: what happened, where it stands, and what has to happen next. Nothing in here does any of it.

mod approvals;
mod budget;
mod calls;
mod input;
mod item;
mod ledger;
mod reply;
mod state;
mod step;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::Error as _};
use serde_json::Value;

pub(crate) use self::{
    approvals::Decision,
    calls::{Answer, CallKind, CallStatus, Origin, PendingCall},
    reply::{Offer, Offered, OnUnknown},
    step::Phase,
};
pub use self::{
    approvals::{Approvals, Interruption},
    budget::{Budget, Price, Prices, Spent},
    item::{RunItem, RunItemKind},
    state::RunState,
    step::{Step, Stop},
};
use crate::{
    Item, ModelReply, Usage, environment::KnownSecrets, guardrail::GuardrailResult, secrets::Seal, trace::TraceInfo,
};

/// A run: serialisable, without I/O. [`next`](Self::next) says what has to happen; the driver makes it happen, tells the run
/// so, and asks again. [`RunState`] is its saved form.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Run {
    id: String,
    agent: String,
    turn: u32,
    max_turns: Option<u32>,
    phase: Phase,
    input: Vec<Item>,
    items: Vec<RunItem>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rewritten: Option<input::Rewritten>,
    replies: Vec<ReplyRecord>,
    ledger: ledger::Ledger,
    pub(crate) approvals: Approvals,
    usage: Usage,
    tools_used: BTreeMap<String, BTreeSet<String>>,
    pub(crate) checks: Checks,
    /// Whether the current agent has been told that it starts.
    pub(crate) greeted: bool,
    pub(crate) thread: Thread,
    budget: Budget,
    /// What the budget's clock has counted.
    elapsed: Duration,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<TraceInfo>,
    pub(crate) environment: Option<Value>,
    /// What references in it carry, in a run that was loaded and does not have their values yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<Seal>,
    #[serde(skip)]
    secrets: Option<Arc<dyn KnownSecrets>>,
    #[serde(skip)]
    seen: input::Seen,
}

/// What one model call left behind: which of the run's items it made, and what it cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReplyRecord {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) usage: Usage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) response_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request_id: Option<String>,
}

/// What guardrails found, and which of those for the input have looked already.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Checks {
    pub(crate) blocking_done: bool,
    pub(crate) parallel_done: bool,
    pub(crate) input: Vec<GuardrailResult>,
    pub(crate) output: Vec<GuardrailResult>,
    pub(crate) tool_input: Vec<GuardrailResult>,
    pub(crate) tool_output: Vec<GuardrailResult>,
}

/// Who keeps the conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Thread {
    /// We do, and send it whole each time.
    #[default]
    Ours,
    /// The server does, as a chain of responses; the first one may go on after an earlier run's last.
    Responses(Option<String>),
    /// The server does, as a conversation.
    Conversation(String),
}

impl Run {
    /// A run that is about to start with this agent.
    pub(crate) fn new(id: String, agent: String, input: Vec<Item>) -> Self {
        Self {
            id,
            agent,
            turn: 0,
            max_turns: Some(10),
            phase: Phase::Enter,
            input,
            items: Vec::new(),
            rewritten: None,
            replies: Vec::new(),
            ledger: ledger::Ledger::default(),
            approvals: Approvals::default(),
            usage: Usage::default(),
            tools_used: BTreeMap::new(),
            checks: Checks::default(),
            greeted: false,
            thread: Thread::Ours,
            budget: Budget::default(),
            elapsed: Duration::ZERO,
            trace: None,
            environment: None,
            sealed: None,
            secrets: None,
            seen: input::Seen::default(),
        }
    }

    pub(crate) fn limits(&mut self, max_turns: Option<u32>, budget: Budget) {
        self.max_turns = max_turns;
        self.budget = budget;
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The agent at work.
    #[must_use]
    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// How many turns were finished: model calls that were answered.
    #[must_use]
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// What it started with.
    #[must_use]
    pub fn input(&self) -> &[Item] {
        &self.input
    }

    /// What happened since, in order.
    #[must_use]
    pub fn items(&self) -> &[RunItem] {
        &self.items
    }

    /// What it has used, nested runs included.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The budget it was given.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// What it has spent of its budget's time.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Each answer of the model as it came.
    pub fn replies(&self) -> impl Iterator<Item = ModelReply> + '_ {
        self.replies.iter().map(|record| ModelReply {
            output: self.made_by(record).iter().map(|item| item.raw.clone()).collect(),
            usage: record.usage.clone(),
            response_id: record.response_id.clone(),
            request_id: record.request_id.clone(),
        })
    }

    /// The trace it is recorded in.
    #[must_use]
    pub fn trace(&self) -> Option<&TraceInfo> {
        self.trace.as_ref()
    }

    /// The server's name for the last answer.
    #[must_use]
    pub fn last_response_id(&self) -> Option<&str> {
        self.replies.last()?.response_id.as_deref()
    }

    /// What the last answer cost.
    pub(crate) fn last_usage(&self) -> Option<&Usage> {
        Some(&self.replies.last()?.usage)
    }

    /// What the last reply said and wanted.
    pub(crate) fn last_reply(&self) -> &[RunItem] {
        self.replies.last().map_or(&[], |reply| self.made_by(reply))
    }

    fn made_by(&self, reply: &ReplyRecord) -> &[RunItem] {
        self.items.get(reply.from..reply.to).unwrap_or_default()
    }

    /// Adds something that is said in the model's place.
    pub(crate) fn add_message(&mut self, raw: Item) -> usize {
        self.items.push(RunItem { kind: RunItemKind::Message, agent: self.agent.clone(), raw, output: None });
        self.items.len() - 1
    }

    pub(crate) fn add_usage(&mut self, used: &Usage) {
        self.usage.add(used);
    }

    pub(crate) fn add_request(&mut self, model: &str, used: &Usage) {
        self.usage.add_request(model, used);
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.elapsed = self.elapsed.saturating_add(time);
    }

    pub(crate) fn set_budget(&mut self, budget: Budget) {
        self.budget = budget;
    }

    /// Whether this agent has used any tool in this run.
    pub(crate) fn has_used_tools(&self) -> bool {
        self.tools_used.get(&self.agent).is_some_and(|tools| !tools.is_empty())
    }
}

// Derived as functions of `Run` itself (`remote`), so that whatever is read is also looked over, and whatever is written
// has references in the place of secret values.
impl Serialize for Run {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.secrets {
            None => Self::serialize(self, serializer),
            Some(secrets) => self.sealed_with(secrets.as_ref()).map_err(S::Error::custom)?.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Run {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let run = Self::deserialize(deserializer)?;
        run.whole().map_err(D::Error::custom)?;
        Ok(run)
    }
}
