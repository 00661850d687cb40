//! Guardrails: checks of inputs, outputs and tool calls. A check passes, replaces a text, or stops the run.

use std::{fmt, sync::Arc};

use futures::future::{BoxFuture, FutureExt as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{App, BoxError, Item, Role, ToolContext, ToolOutput, View};

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Details for the caller.
    pub info: Value,
    /// Whether the run must stop.
    pub tripped: bool,
}

impl Finding {
    /// The check passed.
    #[must_use]
    pub fn pass() -> Self {
        Self::default()
    }

    /// The run must stop.
    pub fn trip(info: impl Into<Value>) -> Self {
        Self { info: info.into(), tripped: true }
    }
}

/// Result of a named guardrail, as results and saved runs contain it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuardrailResult {
    /// Name of the guardrail.
    pub guardrail: String,
    /// Agent that was current.
    pub agent: String,
    /// Result of the check.
    #[serde(flatten)]
    pub finding: Finding,
}

/// When an input guardrail runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timing {
    /// During the first model call; a trip cancels the call.
    #[default]
    Parallel,
    /// Before the first model call.
    Blocking,
}

type Check<A, R> = Arc<dyn Fn(A) -> BoxFuture<'static, Result<R, BoxError>> + Send + Sync>;

/// What an input guardrail checks.
#[derive(Clone, Debug)]
pub struct InputCheck {
    /// The caller's [`App`] value.
    pub app: App,
    /// First agent of the run.
    pub agent: String,
    /// Input of the run.
    pub input: Vec<Item>,
}

impl InputCheck {
    /// Text of all user messages, joined by newlines.
    #[must_use]
    pub fn text(&self) -> String {
        let texts = self.input.iter().filter_map(|item| match item.view() {
            View::Message(message) if message.role == Role::User => Some(message.text()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// What an output guardrail checks.
#[derive(Clone, Debug)]
pub struct OutputCheck {
    /// The caller's [`App`] value.
    pub app: App,
    /// Agent that made the output.
    pub agent: String,
    /// Final output: a string, or the value of the structured output.
    pub output: Value,
}

/// Decision of a tool guardrail.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolVerdict {
    /// Continue.
    Allow,
    /// The model reads this text instead of the output of the tool.
    Reject(String),
    /// The run stops.
    Stop(Value),
}

/// Defines a guardrail type: a named async check.
macro_rules! guardrails {
    ($($(#[$doc:meta])* $name:ident($($part:ident: $type:ty),*) -> $verdict:ty;)*) => { $(
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name {
            pub(crate) name: Arc<str>,
            check: Check<($($type,)*), $verdict>,
        }

        impl $name {
            /// A guardrail with this name.
            pub fn new<F, Fut>(name: impl Into<Arc<str>>, check: F) -> Self
            where
                F: Fn($($type),*) -> Fut + Send + Sync + 'static,
                Fut: Future<Output = Result<$verdict, BoxError>> + Send + 'static,
            {
                Self { name: name.into(), check: Arc::new(move |($($part,)*)| check($($part),*).boxed()) }
            }

            /// Name of the guardrail.
            #[must_use]
            pub fn name(&self) -> &str {
                &self.name
            }

            pub(crate) async fn check(&self, $($part: $type),*) -> Result<$verdict, BoxError> {
                (self.check)(($($part,)*)).await
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.name)
            }
        }
    )* };
}

guardrails! {
    /// Checks the input of a run once, for its first agent.
    InputGuardrail(input: InputCheck) -> Finding;
    /// Checks the final output of a run.
    OutputGuardrail(output: OutputCheck) -> Finding;
    /// Checks a tool call before it is made.
    ToolInputGuardrail(call: ToolContext) -> ToolVerdict;
    /// Checks the output of a tool before the model reads it.
    ToolOutputGuardrail(call: ToolContext, answer: ToolOutput) -> ToolVerdict;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Part;

    #[test]
    fn the_text_of_an_input_is_what_the_user_says() {
        let check = |input| InputCheck { app: App::default(), agent: "a".to_owned(), input };
        let input = vec![
            Item::developer("be kind"),
            Item::user("one"),
            Item::assistant("hm"),
            Item::function_output("c", "42"),
            Item::user_parts([Part::text("two"), Part::image_url("https://a.test/x.png")]),
        ];
        assert_eq!(check(input).text(), "one\ntwo");
        assert_eq!(check(vec![]).text(), "");
    }
}
