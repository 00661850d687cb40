//! The data of spans, in the format of the export.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Data of a span.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum SpanData {
    /// Work of an agent.
    Agent {
        /// Name of the agent.
        name: String,
        /// Agents that the agent can hand over to.
        handoffs: Vec<String>,
        /// Tools of the agent.
        tools: Vec<String>,
        /// Type of the output.
        output_type: Option<String>,
    },
    /// A tool call.
    Function {
        /// Name of the tool.
        name: String,
        /// Arguments of the call.
        input: Option<String>,
        /// Output of the tool.
        output: Option<String>,
        /// Data about the MCP server, if the tool belongs to one.
        mcp_data: Option<Value>,
    },
    /// A model call, with its input and output.
    Generation {
        /// Input of the model.
        input: Option<Value>,
        /// Output of the model.
        output: Option<Value>,
        /// Name of the model.
        model: Option<String>,
        /// Settings of the model.
        model_config: Option<Value>,
        /// Usage of the call.
        usage: Option<Value>,
    },
    /// A model call, with the id of its response instead of its input and output.
    Response {
        /// Id of the response on the server.
        response_id: Option<String>,
        /// Usage of the call.
        usage: Option<Value>,
    },
    /// A handoff from one agent to another.
    Handoff {
        /// Agent that hands over.
        from_agent: Option<String>,
        /// Agent that takes over.
        to_agent: Option<String>,
    },
    /// A guardrail.
    Guardrail {
        /// Name of the guardrail.
        name: String,
        /// Whether the guardrail was triggered.
        triggered: bool,
    },
    /// A span of another kind.
    Custom {
        /// Name of the span.
        name: String,
        /// Data of the caller.
        data: Map<String, Value>,
    },
    /// A request to an MCP server for the list of its tools.
    McpTools {
        /// Name of the server.
        server: Option<String>,
        /// Names of the tools.
        result: Vec<String>,
    },
}

impl SpanData {
    /// Work of an agent.
    pub fn agent(name: impl Into<String>) -> Self {
        Self::Agent { name: name.into(), handoffs: Vec::new(), tools: Vec::new(), output_type: None }
    }

    /// A tool call.
    pub fn function(name: impl Into<String>, input: Option<&str>) -> Self {
        Self::Function { name: name.into(), input: input.map(str::to_owned), output: None, mcp_data: None }
    }

    /// A model call, with its input.
    pub fn generation(model: impl Into<String>) -> Self {
        Self::Generation { input: None, output: None, model: Some(model.into()), model_config: None, usage: None }
    }

    /// A model call, with the id of its response instead of its input and output.
    #[must_use]
    pub fn response() -> Self {
        Self::Response { response_id: None, usage: None }
    }

    /// A handoff whose target is not known yet.
    pub fn handoff(from: impl Into<String>) -> Self {
        Self::Handoff { from_agent: Some(from.into()), to_agent: None }
    }

    /// A guardrail that is not triggered yet.
    pub fn guardrail(name: impl Into<String>) -> Self {
        Self::Guardrail { name: name.into(), triggered: false }
    }

    /// A span of another kind.
    pub fn custom(name: impl Into<String>, data: Map<String, Value>) -> Self {
        Self::Custom { name: name.into(), data }
    }

    /// A whole run.
    pub fn task(name: impl Into<String>) -> Self {
        let data = [("sdk_span_type", "task".into()), ("name", name.into().into())];
        Self::custom("task", data.map(|(key, value): (&str, Value)| (key.to_owned(), value)).into_iter().collect())
    }

    /// One turn of a run.
    pub fn turn(turn: u32, agent: impl Into<String>) -> Self {
        let data = [("sdk_span_type", "turn".into()), ("turn", turn.into()), ("agent_name", agent.into().into())];
        Self::custom("turn", data.map(|(key, value): (&str, Value)| (key.to_owned(), value)).into_iter().collect())
    }

    /// A request to an MCP server for the list of its tools.
    pub fn mcp_tools(server: impl Into<String>) -> Self {
        Self::McpTools { server: Some(server.into()), result: Vec::new() }
    }

    /// Kind of the span in one word, and its name if it has one.
    #[must_use]
    pub fn label(&self) -> (&'static str, &str) {
        match self {
            Self::Agent { name, .. } => ("agent", name),
            Self::Function { name, .. } => ("function", name),
            Self::Generation { model, .. } => ("generation", model.as_deref().unwrap_or_default()),
            Self::Response { response_id, .. } => ("response", response_id.as_deref().unwrap_or_default()),
            Self::Handoff { to_agent, .. } => ("handoff", to_agent.as_deref().unwrap_or_default()),
            Self::Guardrail { name, .. } => ("guardrail", name),
            Self::Custom { name, .. } => ("custom", name),
            Self::McpTools { server, .. } => ("mcp_tools", server.as_deref().unwrap_or_default()),
        }
    }

    pub(super) fn set_output(&mut self, value: Value) {
        match self {
            Self::Function { output, .. } => {
                *output = Some(match value {
                    Value::String(text) => text,
                    other => other.to_string(),
                });
            }
            Self::Generation { output, .. } => *output = Some(value),
            Self::Custom { data, .. } => drop(data.insert("output".to_owned(), value)),
            _ => {}
        }
    }

    pub(super) fn set_usage(&mut self, value: Value) {
        match self {
            Self::Generation { usage, .. } | Self::Response { usage, .. } => *usage = Some(value),
            Self::Custom { data, .. } => drop(data.insert("usage".to_owned(), value)),
            _ => {}
        }
    }

    /// Removes inputs and outputs.
    pub(super) fn leave_out_sensitive(&mut self) {
        match self {
            Self::Function { input, output, .. } => (*input, *output) = (None, None),
            Self::Generation { input, output, .. } => (*input, *output) = (None, None),
            Self::Custom { data, .. } => drop(data.shift_remove("output")),
            _ => {}
        }
    }

    /// Cuts each input and output to this many bytes.
    pub(super) fn shorten(&mut self, limit: usize) {
        match self {
            Self::Function { input, output, .. } => {
                for text in [input, output].into_iter().flatten() {
                    cut(text, limit);
                }
            }
            Self::Generation { input, output, .. } => {
                for value in [input, output].into_iter().flatten() {
                    let mut text = value.to_string();
                    if text.len() > limit {
                        cut(&mut text, limit);
                        *value = Value::String(text);
                    }
                }
            }
            _ => {}
        }
    }

    /// Approximate size of the data, in bytes.
    pub(super) fn weight(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let all = |texts: &[String]| texts.iter().map(|text| text.len() + 24).sum::<usize>();
        let value = |value: &Option<Value>| value.as_ref().map_or(0, weight);
        match self {
            Self::Agent { name, handoffs, tools, .. } => name.len() + all(handoffs) + all(tools),
            Self::Function { name, input, output, mcp_data } => {
                name.len() + text(input) + text(output) + value(mcp_data)
            }
            Self::Generation { input, output, model_config, usage, .. } => {
                value(input) + value(output) + value(model_config) + value(usage)
            }
            Self::Custom { name, data } => {
                name.len() + data.iter().map(|(key, value)| key.len() + weight(value)).sum::<usize>()
            }
            Self::McpTools { result, .. } => all(result),
            Self::Response { usage, .. } => value(usage),
            Self::Handoff { .. } | Self::Guardrail { .. } => 0,
        }
    }
}

/// Cuts a text to this many bytes and marks the cut.
pub(super) fn cut(text: &mut String, limit: usize) {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit));
        text.push_str("… [shortened]");
    }
}

/// Approximate size of a value, in bytes.
pub(super) fn weight(value: &Value) -> usize {
    let inside = match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(weight).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + weight(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    inside + size_of::<Value>()
}
