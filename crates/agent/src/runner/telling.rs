//! What a run tells while it happens, and to whom.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::{ModelEvent, RawEvent, RunItem};

/// Something that happens in a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RunEvent {
    /// The model says something; an event of its stream, as it came.
    Model(RawEvent),
    /// Something was added to the run: once the model's reply is complete, and before its calls are made; answers after.
    Item {
        /// What kind of thing: `tool_called`, `message_output_created` and so on.
        name: &'static str,
        /// The thing itself.
        item: RunItem,
    },
    /// Another agent is at work.
    Agent(String),
    /// A tool tells how far it is, before it answers: [`ToolContext::tell`](crate::ToolContext::tell).
    Progress {
        /// The call.
        call_id: String,
        /// What it says.
        text: String,
    },
}

impl RunEvent {
    /// The text that is new, if it is a piece of the model's answer.
    #[must_use]
    pub fn text_delta(&self) -> Option<&str> {
        match self {
            Self::Model(event) => event.text_delta(),
            _ => None,
        }
    }
}

/// Who is told.
#[derive(Clone, Default)]
pub(crate) enum Events {
    #[default]
    None,
    Channel(mpsc::Sender<RunEvent>),
    Call(Arc<dyn Fn(RunEvent) + Send + Sync>),
}

impl Events {
    pub(crate) async fn tell(&self, event: RunEvent) {
        match self {
            Self::None => {}
            Self::Channel(sender) => {
                let _reader_gone = sender.send(event).await;
            }
            Self::Call(tell) => tell(event),
        }
    }

    pub(super) async fn tell_model(&self, event: ModelEvent) {
        if let ModelEvent::Raw(event) = event
            && !matches!(self, Self::None)
        {
            self.tell(RunEvent::Model(event)).await;
        }
    }

    pub(super) async fn tell_items(&self, items: &[RunItem]) {
        if matches!(self, Self::None) {
            return;
        }
        for item in items {
            if let Some(name) = item.kind.event_name() {
                self.tell(RunEvent::Item { name, item: item.clone() }).await;
            }
        }
    }
}
