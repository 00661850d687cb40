//! What a span is about, in the form it is exported in.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a span is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum SpanData {
    /// An agent at work.
    Agent {
        /// Its name.
        name: String,
        /// To whom it can hand over.
        handoffs: Vec<String>,
        /// What it can use.
        tools: Vec<String>,
        /// What it answers with.
        output_type: Option<String>,
    },
    /// A tool that is called.
    Function {
        /// Its name.
        name: String,
        /// What it is called with.
        input: Option<String>,
        /// What it answers.
        output: Option<String>,
        /// Where it comes from, if that is an MCP server.
        mcp_data: Option<Value>,
    },
    /// A model that is asked, with all that is said.
    Generation {
        /// What it is asked.
        input: Option<Value>,
        /// What it answers.
        output: Option<Value>,
        /// Its name.
        model: Option<String>,
        /// How it is asked.
        model_config: Option<Value>,
        /// What it costs.
        usage: Option<Value>,
    },
    /// A model that is asked, by the server's name for its answer.
    Response {
        /// The server's name for it.
        response_id: Option<String>,
        /// What it costs.
        usage: Option<Value>,
    },
    /// One agent hands over to another.
    Handoff {
        /// Who gives.
        from_agent: Option<String>,
        /// Who takes.
        to_agent: Option<String>,
    },
    /// A check.
    Guardrail {
        /// Its name.
        name: String,
        /// Whether it stopped something.
        triggered: bool,
    },
    /// Anything else.
    Custom {
        /// What it is called.
        name: String,
        /// What there is to say.
        data: Map<String, Value>,
    },
    /// An MCP server that is asked for its tools.
    McpTools {
        /// Its name.
        server: Option<String>,
        /// What it has.
        result: Vec<String>,
    },
}

impl SpanData {
    /// An agent at work.
    pub fn agent(name: impl Into<String>) -> Self {
        Self::Agent { name: name.into(), handoffs: Vec::new(), tools: Vec::new(), output_type: None }
    }

    /// A tool that is called.
    pub fn function(name: impl Into<String>, input: Option<&str>) -> Self {
        Self::Function { name: name.into(), input: input.map(str::to_owned), output: None, mcp_data: None }
    }

    /// A model that is asked, with what is said.
    pub fn generation(model: impl Into<String>) -> Self {
        Self::Generation { input: None, output: None, model: Some(model.into()), model_config: None, usage: None }
    }

    /// A model that is asked, by the server's name for its answer.
    #[must_use]
    pub fn response() -> Self {
        Self::Response { response_id: None, usage: None }
    }

    /// One agent hands over, to nobody yet.
    pub fn handoff(from: impl Into<String>) -> Self {
        Self::Handoff { from_agent: Some(from.into()), to_agent: None }
    }

    /// A check that has not stopped anything yet.
    pub fn guardrail(name: impl Into<String>) -> Self {
        Self::Guardrail { name: name.into(), triggered: false }
    }

    /// Anything else.
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

    /// An MCP server that is asked for its tools.
    pub fn mcp_tools(server: impl Into<String>) -> Self {
        Self::McpTools { server: Some(server.into()), result: Vec::new() }
    }

    /// What it is, in one word, and what it is called, if it has a name.
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

    /// Forgets what was said and done, and keeps that it was.
    pub(super) fn leave_out_sensitive(&mut self) {
        match self {
            Self::Function { input, output, .. } => (*input, *output) = (None, None),
            Self::Generation { input, output, .. } => (*input, *output) = (None, None),
            Self::Custom { data, .. } => drop(data.shift_remove("output")),
            _ => {}
        }
    }

    /// Cuts what was said and done to this many bytes each.
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

    /// About how many bytes it holds.
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

/// Cuts a text to this many bytes, and says so.
pub(super) fn cut(text: &mut String, limit: usize) {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit));
        text.push_str("… [shortened]");
    }
}

/// About how many bytes a value holds.
pub(super) fn weight(value: &Value) -> usize {
    let inside = match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(weight).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + weight(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    inside + size_of::<Value>()
}
