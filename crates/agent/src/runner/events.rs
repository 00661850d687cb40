//! Events of a run, and where they are sent.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::{ModelEvent, RawEvent, RunItem};

/// Event of a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RunEvent {
    /// An event of the model's stream, unchanged.
    Model(RawEvent),
    /// An item was added to the run. Items of a reply come when the reply is complete and before its calls are made; outputs
    /// of tools come afterwards.
    Item {
        /// Name of the event: `tool_called`, `message_output_created` and so on.
        name: &'static str,
        /// The item.
        item: RunItem,
    },
    /// The conversation was handed over to this agent.
    Agent(String),
    /// A tool reports progress before it answers: [`ToolContext::tell`](crate::ToolContext::tell).
    Progress {
        /// Id of the call.
        call_id: String,
        /// What the tool reports.
        text: String,
    },
}

impl RunEvent {
    /// New text, if the event is a piece of the model's answer.
    #[must_use]
    pub fn text_delta(&self) -> Option<&str> {
        match self {
            Self::Model(event) => event.text_delta(),
            _ => None,
        }
    }
}

/// Receiver of events.
#[derive(Clone, Default)]
pub(crate) enum Events {
    #[default]
    None,
    Channel(mpsc::Sender<RunEvent>),
    Call(Arc<dyn Fn(RunEvent) + Send + Sync>),
}

impl Events {
    pub(crate) async fn emit(&self, event: RunEvent) {
        match self {
            Self::None => {}
            Self::Channel(sender) => {
                let _reader_gone = sender.send(event).await;
            }
            Self::Call(callback) => callback(event),
        }
    }

    pub(super) async fn emit_model_event(&self, event: ModelEvent) {
        if let ModelEvent::Raw(event) = event
            && !matches!(self, Self::None)
        {
            self.emit(RunEvent::Model(event)).await;
        }
    }

    pub(super) async fn emit_items(&self, items: &[RunItem]) {
        if matches!(self, Self::None) {
            return;
        }
        for item in items {
            if let Some(name) = item.kind.event_name() {
                self.emit(RunEvent::Item { name, item: item.clone() }).await;
            }
        }
    }
}
