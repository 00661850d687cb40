//! A hosted tool, which the model's server runs itself.

use std::fmt;

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::{Tool, ToolContext, ToolKind, ToolOutput, ToolSpec};
use crate::{AgentError, BoxError, Result};

/// A tool that the model's server runs itself. Its fields are sent unchanged.
///
/// ```
/// use sandbar_agent::{HostedTool, Tool};
///
/// let search = HostedTool::web_search().with("search_context_size", "low");
/// assert_eq!(search.spec().wire(), serde_json::json!({ "type": "web_search", "search_context_size": "low" }));
/// ```
#[derive(Clone, PartialEq)]
pub struct HostedTool {
    name: String,
    fields: Map<String, Value>,
}

impl HostedTool {
    /// A tool that searches the web.
    #[must_use]
    pub fn web_search() -> Self {
        Self::typed("web_search")
    }

    /// A tool that searches files in these vector stores on the server.
    pub fn file_search<Id: Into<String>>(vector_stores: impl IntoIterator<Item = Id>) -> Self {
        let ids: Vec<String> = vector_stores.into_iter().map(Into::into).collect();
        Self::typed("file_search").with("vector_store_ids", ids)
    }

    /// A tool that runs Python in a container of the server, which is created when needed.
    #[must_use]
    pub fn code_interpreter() -> Self {
        Self::typed("code_interpreter").with("container", json!({ "type": "auto" }))
    }

    /// A tool that creates images.
    #[must_use]
    pub fn image_generation() -> Self {
        Self::typed("image_generation")
    }

    /// The tools of an MCP server, with this label, which the model's server calls.
    pub fn mcp(label: impl Into<String>, url: impl Into<String>) -> Self {
        Self::typed("mcp").with("server_label", label.into()).with("server_url", url.into())
    }

    /// A tool by its complete JSON object.
    ///
    /// # Errors
    /// If the value is not an object with a `type`.
    pub fn of(json: Value) -> Result<Self> {
        let Value::Object(fields) = json else {
            return Err(AgentError::Misuse("a hosted tool is a JSON object".to_owned()));
        };
        let Some(name) = fields.get("type").and_then(Value::as_str).map(str::to_owned) else {
            return Err(AgentError::Misuse("a hosted tool says what it is under `type`".to_owned()));
        };
        Ok(Self { name, fields })
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, field: impl Into<String>, value: impl Into<Value>) -> Self {
        self.fields.insert(field.into(), value.into());
        self
    }

    fn typed(name: &str) -> Self {
        Self { name: name.to_owned(), fields: Map::from_iter([("type".to_owned(), Value::from(name))]) }
    }
}

#[async_trait]
impl Tool for HostedTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: self.name.clone(), description: String::new(), kind: ToolKind::Hosted(self.fields.clone()) }
    }

    async fn call(&self, _call: &ToolContext, _arguments: &str) -> Result<ToolOutput, BoxError> {
        Err(format!("{} is run by the model's server, and not here", self.name).into())
    }
}

/// Omits the fields, which may contain keys of other servers.
impl fmt::Debug for HostedTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostedTool({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::App;

    #[test]
    fn each_is_sent_as_it_is() {
        let computer = json!({ "type": "computer_use_preview", "display_width": 800 });
        for (tool, wire) in [
            (HostedTool::web_search(), json!({ "type": "web_search" })),
            (
                HostedTool::file_search(["vs_1"]).with("max_num_results", 3),
                json!({ "type": "file_search", "vector_store_ids": ["vs_1"], "max_num_results": 3 }),
            ),
            (HostedTool::code_interpreter(), json!({ "type": "code_interpreter", "container": { "type": "auto" } })),
            (HostedTool::image_generation(), json!({ "type": "image_generation" })),
            (
                HostedTool::mcp("wiki", "https://wiki.test/mcp").with("require_approval", "never"),
                json!({ "type": "mcp", "server_label": "wiki", "server_url": "https://wiki.test/mcp",
                    "require_approval": "never" }),
            ),
            (HostedTool::of(computer.clone()).unwrap(), computer),
        ] {
            assert_eq!(tool.spec().wire(), wire);
        }
    }

    #[test]
    fn what_is_no_tool_is_refused() {
        for json in [json!([]), json!({}), json!({ "type": 1 })] {
            assert_eq!(HostedTool::of(json).unwrap_err().code(), "misuse");
        }
    }

    #[tokio::test]
    async fn it_is_not_called_here() {
        let call = ToolContext::for_test("web_search", App::default());
        let error = HostedTool::web_search().call(&call, "").await.unwrap_err();
        assert_eq!(error.to_string(), "web_search is run by the model's server, and not here");
    }

    #[test]
    fn keys_are_not_printed() {
        let tool = HostedTool::mcp("a", "https://a.test").with("authorization", "hunter2");
        assert_eq!(format!("{tool:?}"), "HostedTool(mcp)");
    }
}
