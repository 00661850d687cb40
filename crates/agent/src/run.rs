//! A run as a value without I/O: its history, its phase, and the next step.

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

/// A run: serialisable, without I/O. [`next`](Self::next) returns the next step; the driver executes it and reports the
/// outcome to the run. [`RunState`] is its saved form.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Run {
    id: String,
    agent: String,
    turn: u32,
    pub(crate) max_turns: Option<u32>,
    pub(crate) phase: Phase,
    input: Vec<Item>,
    items: Vec<RunItem>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rewritten: Option<input::ReplacedInput>,
    replies: Vec<ReplyRecord>,
    ledger: ledger::Ledger,
    pub(crate) approvals: Approvals,
    pub(crate) usage: Usage,
    tools_used: BTreeMap<String, BTreeSet<String>>,
    pub(crate) checks: Checks,
    /// Whether the start hook of the current agent was called.
    pub(crate) greeted: bool,
    pub(crate) thread: Thread,
    pub(crate) budget: Budget,
    /// Time that counts against the budget.
    elapsed: Duration,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<TraceInfo>,
    pub(crate) environment: Option<Value>,
    /// Mark of the secret references, in a run that was loaded and does not have the values yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<Seal>,
    #[serde(skip)]
    secrets: Option<Arc<dyn KnownSecrets>>,
    #[serde(skip)]
    model_input_cache: Option<input::ModelInputCache>,
}

/// Record of one model call: the range of items it added, and its usage.
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

impl ReplyRecord {
    /// The items that the call added, of all items of the run.
    fn items<'r>(&self, all: &'r [RunItem]) -> &'r [RunItem] {
        all.get(self.from..self.to).unwrap_or_default()
    }
}

/// Results of guardrails, and which kinds of input guardrails are done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Checks {
    pub(crate) blocking_done: bool,
    pub(crate) parallel_done: bool,
    pub(crate) input: Vec<GuardrailResult>,
    pub(crate) output: Vec<GuardrailResult>,
    pub(crate) tool_input: Vec<GuardrailResult>,
    pub(crate) tool_output: Vec<GuardrailResult>,
}

/// Where the conversation is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Thread {
    /// In this run; each request sends all of it.
    #[default]
    Ours,
    /// On the server, as a chain of responses; the chain may continue after a response of an earlier run.
    Responses(Option<String>),
    /// On the server, as a conversation with this id.
    Conversation(String),
}

impl Run {
    /// A new run that starts with this agent.
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
            model_input_cache: None,
        }
    }

    /// Id of the run.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Key of the current agent.
    #[must_use]
    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// Number of finished turns, which are model calls that were answered.
    #[must_use]
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// Input that the run started with.
    #[must_use]
    pub fn input(&self) -> &[Item] {
        &self.input
    }

    /// Items that were added since, in order.
    #[must_use]
    pub fn items(&self) -> &[RunItem] {
        &self.items
    }

    /// Usage, including nested runs.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Budget of the run.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Time that counts against the budget.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Replies of the model.
    pub fn replies(&self) -> impl Iterator<Item = ModelReply> + '_ {
        self.replies.iter().map(|record| ModelReply {
            output: record.items(&self.items).iter().map(|item| item.raw.clone()).collect(),
            usage: record.usage.clone(),
            response_id: record.response_id.clone(),
            request_id: record.request_id.clone(),
        })
    }

    /// Trace that the run is recorded in.
    #[must_use]
    pub fn trace(&self) -> Option<&TraceInfo> {
        self.trace.as_ref()
    }

    /// The server's id of the last reply.
    #[must_use]
    pub fn last_response_id(&self) -> Option<&str> {
        self.replies.last()?.response_id.as_deref()
    }

    /// Usage of the last reply.
    pub(crate) fn last_usage(&self) -> Option<&Usage> {
        Some(&self.replies.last()?.usage)
    }

    /// Items of the last reply.
    pub(crate) fn last_reply(&self) -> &[RunItem] {
        self.replies.last().map_or(&[], |reply| reply.items(&self.items))
    }

    /// Adds a message in the name of the model.
    pub(crate) fn add_message(&mut self, raw: Item) -> usize {
        self.items.push(RunItem { kind: RunItemKind::Message, agent: self.agent.clone(), raw, output: None });
        self.items.len() - 1
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.elapsed = self.elapsed.saturating_add(time);
    }

    /// Whether the current agent has used a tool in this run.
    pub(crate) fn has_used_tools(&self) -> bool {
        self.tools_used.get(&self.agent).is_some_and(|tools| !tools.is_empty())
    }
}

// The derived code becomes inherent functions (`remote = "Self"`). These two traits wrap them: a loaded run is checked, and
// a saved run has references instead of secret values.
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
        run.check_references().map_err(D::Error::custom)?;
        Ok(run)
    }
}
