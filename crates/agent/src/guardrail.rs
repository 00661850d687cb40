//! Checks around a run and its tools: they let pass, put words in place of something, or stop everything.

use std::{fmt, sync::Arc};

use futures::future::{BoxFuture, FutureExt as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{App, BoxError, Item, Role, ToolContext, ToolOutput, View};

/// What a guardrail finds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What it has to say, for the caller.
    pub info: Value,
    /// Whether the run must stop.
    pub tripped: bool,
}

impl Finding {
    /// All is well.
    #[must_use]
    pub fn pass() -> Self {
        Self::default()
    }

    /// The run must stop.
    pub fn trip(info: impl Into<Value>) -> Self {
        Self { info: info.into(), tripped: true }
    }
}

/// What a named guardrail found, as it is kept in results and saved runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuardrailResult {
    /// Which guardrail.
    pub guardrail: String,
    /// The agent it was for.
    pub agent: String,
    /// What it found.
    #[serde(flatten)]
    pub finding: Finding,
}

/// When an input guardrail runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timing {
    /// While the model is already asked; a trip stops the asking.
    #[default]
    Parallel,
    /// Before anything else happens.
    Blocking,
}

type Check<A, R> = Arc<dyn Fn(A) -> BoxFuture<'static, Result<R, BoxError>> + Send + Sync>;

/// What an input guardrail looks at.
#[derive(Clone, Debug)]
pub struct InputCheck {
    /// What the caller gave along.
    pub app: App,
    /// The agent that starts.
    pub agent: String,
    /// What the run starts with.
    pub input: Vec<Item>,
}

impl InputCheck {
    /// All that the user says, one message per line.
    #[must_use]
    pub fn text(&self) -> String {
        let said = self.input.iter().filter_map(|item| match item.view() {
            View::Message(message) if message.role == Role::User => Some(message.text()),
            _ => None,
        });
        said.collect::<Vec<_>>().join("\n")
    }
}

/// What an output guardrail looks at.
#[derive(Clone, Debug)]
pub struct OutputCheck {
    /// What the caller gave along.
    pub app: App,
    /// The agent that ends.
    pub agent: String,
    /// The final output: a string, or what the structured output holds.
    pub output: Value,
}

/// What a tool guardrail decides.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolVerdict {
    /// Go on.
    Allow,
    /// The model reads this instead.
    Reject(String),
    /// The run stops.
    Stop(Value),
}

/// Writes a named check: its constructor, its name, and how it is asked.
macro_rules! guardrails {
    ($($(#[$doc:meta])* $name:ident($($part:ident: $type:ty),*) -> $verdict:ty;)*) => { $(
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name {
            pub(crate) name: Arc<str>,
            check: Check<($($type,)*), $verdict>,
        }

        impl $name {
            /// A check by this name.
            pub fn new<F, Fut>(name: impl Into<Arc<str>>, check: F) -> Self
            where
                F: Fn($($type),*) -> Fut + Send + Sync + 'static,
                Fut: Future<Output = Result<$verdict, BoxError>> + Send + 'static,
            {
                Self { name: name.into(), check: Arc::new(move |($($part,)*)| check($($part),*).boxed()) }
            }

            /// What it is called.
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
    /// Looks at what a run starts with: only for its first agent, and once.
    InputGuardrail(input: InputCheck) -> Finding;
    /// Looks at what a run ends with.
    OutputGuardrail(output: OutputCheck) -> Finding;
    /// Looks at a call before it is made.
    ToolInputGuardrail(call: ToolContext) -> ToolVerdict;
    /// Looks at an answer before the model does.
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
