//! A freeform tool, whose input is text instead of JSON: a patch, a program, a query.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use futures::future::{BoxFuture, FutureExt as _};

use super::{Grammar, IntoToolOutput, Tool, ToolContext, ToolKind, ToolOutput, ToolSpec};
use crate::BoxError;

/// A freeform tool: its input is any text that the model writes. Cheap to clone.
///
/// ```
/// use sandbar_agent::{App, CustomTool, Grammar, Tool, ToolContext, ToolOutput};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), sandbar_agent::BoxError> {
/// let shout = CustomTool::new("shout", "Says it loudly.", |_call, text: String| async move { text.to_uppercase() })
///     .grammar(Grammar::regex("[a-z ]+"));
/// let call = ToolContext::for_test("shout", App::default());
/// assert_eq!(shout.call(&call, "hi there").await?, ToolOutput::Text("HI THERE".to_owned()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CustomTool {
    spec: ToolSpec,
    function: Function,
}

type Function = Arc<dyn Fn(ToolContext, String) -> BoxFuture<'static, Result<ToolOutput, BoxError>> + Send + Sync>;

impl CustomTool {
    /// A tool that calls a function with the text.
    pub fn new<F, Fut, Answer>(name: impl Into<String>, description: impl Into<String>, function: F) -> Self
    where
        F: Fn(ToolContext, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answer> + Send + 'static,
        Answer: IntoToolOutput + 'static,
    {
        let kind = ToolKind::Custom { grammar: None };
        let function: Function =
            Arc::new(move |call, text| function(call, text).map(IntoToolOutput::into_tool_output).boxed());
        Self { spec: ToolSpec { name: name.into(), description: description.into(), kind }, function }
    }

    /// Sets the grammar of the text. Servers that support grammars enforce it.
    #[must_use]
    pub fn grammar(mut self, grammar: Grammar) -> Self {
        self.spec.kind = ToolKind::Custom { grammar: Some(grammar) };
        self
    }
}

impl Grammar {
    /// A grammar in the syntax of Lark.
    pub fn lark(definition: impl Into<String>) -> Self {
        Self { syntax: "lark".to_owned(), definition: definition.into() }
    }

    /// A regular expression.
    pub fn regex(definition: impl Into<String>) -> Self {
        Self { syntax: "regex".to_owned(), definition: definition.into() }
    }
}

#[async_trait]
impl Tool for CustomTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    async fn call(&self, call: &ToolContext, arguments: &str) -> Result<ToolOutput, BoxError> {
        (self.function)(call.clone(), arguments.to_owned()).await
    }
}

impl fmt::Debug for CustomTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CustomTool({})", self.spec.name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::App;

    #[test]
    fn a_grammar_is_sent_if_there_is_one() {
        let plain = CustomTool::new("say", "Says.", |_, text| async { text });
        assert_eq!(
            plain.spec().wire(),
            json!({ "type": "custom", "name": "say", "description": "Says.", "format": { "type": "text" } })
        );
        let bound = plain.grammar(Grammar::lark("start: \"a\""));
        assert_eq!(
            bound.spec().wire()["format"],
            json!({ "type": "grammar", "syntax": "lark", "definition": "start: \"a\"" })
        );
    }

    #[tokio::test]
    async fn the_text_arrives_as_it_is() {
        let echo = CustomTool::new("echo", "", |call, text| async move { format!("{} {text:?}", call.call_id()) });
        let call = ToolContext::for_test("echo", App::default());
        let output = echo.call(&call, "{not json\n").await.unwrap();
        assert_eq!(output, ToolOutput::Text("call_test \"{not json\\n\"".to_owned()));
    }
}
