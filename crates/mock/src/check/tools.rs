//! Checks of the tools of a request and of its tool choice.

use std::collections::HashSet;

use serde_json::Value;

use super::schema::{self, Rules};
use crate::refusal::Refusal;

/// The tools of a request.
#[derive(Debug, Default)]
pub(crate) struct Offered<'a> {
    /// Function and custom tools, in order.
    pub(crate) names: Vec<&'a str>,
    known: HashSet<&'a str>,
    kinds: HashSet<&'a str>,
}

/// Maximum number of tools of a request.
const MOST: usize = 1024;

/// Hosted tools, and their required fields.
const HOSTED: &[(&str, &[&str])] = &[
    ("web_search", &[]),
    ("web_search_2025_08_26", &[]),
    ("web_search_preview", &[]),
    ("file_search", &["vector_store_ids"]),
    ("code_interpreter", &["container"]),
    ("image_generation", &[]),
    ("mcp", &["server_label"]),
    ("computer", &[]),
    ("computer_use_preview", &["display_height", "display_width", "environment"]),
    ("local_shell", &[]),
    ("shell", &[]),
    ("apply_patch", &[]),
    ("tool_search", &[]),
    ("programmatic_tool_calling", &[]),
];

/// Checks the tools of a Responses request.
pub(crate) fn offered(tools: Option<&Value>) -> Result<Offered<'_>, Refusal> {
    let mut offered = Offered::default();
    match tools {
        None | Some(Value::Null) => {}
        Some(Value::Array(list)) if list.len() <= MOST => offered.add_all(list, "tools")?,
        Some(Value::Array(_)) => {
            return Err(Refusal::invalid("tools", format!("Array too long: at most {MOST} tools.")));
        }
        Some(_) => return Err(Refusal::invalid("tools", "Invalid type for 'tools': expected an array.")),
    }
    Ok(offered)
}

impl<'a> Offered<'a> {
    fn add_all(&mut self, tools: &'a [Value], place: &str) -> Result<(), Refusal> {
        for (at, tool) in tools.iter().enumerate() {
            self.add(tool, &format!("{place}[{at}]"))?;
        }
        Ok(())
    }

    fn add(&mut self, tool: &'a Value, place: &str) -> Result<(), Refusal> {
        let Some(kind) = tool.get("type").and_then(Value::as_str) else {
            return Err(Refusal::lacks(&format!("{place}.type")));
        };
        self.kinds.insert(kind);
        match kind {
            "function" => self.function(tool, place),
            "custom" => {
                self.custom(tool, place)?;
                custom_format(tool.get("format"), &format!("{place}.format"))
            }
            "namespace" => {
                text(tool, "name", place)?;
                let Some(Value::Array(inner)) = tool.get("tools") else {
                    return Err(Refusal::lacks(&format!("{place}.tools")));
                };
                // A namespace cannot contain a namespace.
                match inner.iter().position(|tool| tool.get("type").is_some_and(|kind| kind == "namespace")) {
                    Some(at) => Err(Refusal::invalid(format!("{place}.tools[{at}].type"), "Namespaces do not nest.")),
                    None => self.add_all(inner, &format!("{place}.tools")),
                }
            }
            _ => match HOSTED.iter().find(|(name, _)| *name == kind) {
                Some((_, needed)) => match needed.iter().find(|key| tool.get(**key).is_none_or(Value::is_null)) {
                    Some(key) => Err(Refusal::lacks(&format!("{place}.{key}"))),
                    None => Ok(()),
                },
                None => Err(Refusal::invalid(
                    format!("{place}.type"),
                    format!("Invalid value: '{kind}'. There is no such tool."),
                )),
            },
        }
    }

    /// Checks a function, in the form that Responses and Chat Completions (in the field `function`) share.
    pub(crate) fn function(&mut self, tool: &'a Value, place: &str) -> Result<(), Refusal> {
        self.kinds.insert("function");
        let name = self.name(tool, place)?;
        let rules = Rules::of(tool, place)?;
        match tool.get("parameters") {
            None | Some(Value::Null) if rules == Rules::Loose => Ok(()),
            None | Some(Value::Null) => Err(Refusal::lacks(&format!("{place}.parameters"))),
            Some(parameters) => {
                schema::root(parameters, rules, &format!("function '{name}'"), &format!("{place}.parameters"))
            }
        }
    }

    /// Checks a custom tool, except its format, which differs between the two APIs.
    pub(crate) fn custom(&mut self, tool: &'a Value, place: &str) -> Result<(), Refusal> {
        self.kinds.insert("custom");
        self.name(tool, place).map(|_| ())
    }

    fn name(&mut self, tool: &'a Value, place: &str) -> Result<&'a str, Refusal> {
        let name = text(tool, "name", place)?;
        let param = format!("{place}.name");
        let legal = (1..=128).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if !legal {
            let message = format!("Invalid '{param}': string does not match pattern '^[a-zA-Z0-9_-]+$'.");
            return Err(Refusal::invalid(param, message));
        }
        if tool.get("description").is_some_and(|text| !text.is_string() && !text.is_null()) {
            return Err(Refusal::invalid(format!("{place}.description"), "Invalid type: expected a string."));
        }
        if !self.known.insert(name) {
            return Err(Refusal::invalid(param, format!("Duplicate tool name: '{name}'.")));
        }
        self.names.push(name);
        Ok(name)
    }

    /// Checks the tool choice of a request, in the form of either API.
    pub(crate) fn check_choice(&self, choice: Option<&Value>) -> Result<(), Refusal> {
        let wrong = |message: String| Err(Refusal::invalid("tool_choice", message));
        let choice = match choice {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::String(word)) => {
                return match word.as_str() {
                    "auto" | "none" => Ok(()),
                    "required" if !self.kinds.is_empty() => Ok(()),
                    "required" => wrong("Tool choice 'required' must be specified with 'tools' parameter.".to_owned()),
                    other => wrong(format!("Invalid value: '{other}'.")),
                };
            }
            Some(choice) => choice,
        };
        let Some(kind) = choice.get("type").and_then(Value::as_str) else {
            return Err(Refusal::lacks("tool_choice.type"));
        };
        match kind {
            "function" | "custom" => {
                let named = choice.get(kind).unwrap_or(choice).get("name").and_then(Value::as_str);
                match named {
                    None => Err(Refusal::lacks("tool_choice.name")),
                    Some(name) if self.known.contains(name) => Ok(()),
                    Some(name) => wrong(format!("Tool choice '{name}' not found in 'tools' parameter.")),
                }
            }
            "allowed_tools" => {
                let tools = choice.get("tools").and_then(Value::as_array).into_iter().flatten();
                let mut names = tools.filter_map(|tool| tool.get("name")?.as_str());
                match names.find(|name| !self.known.contains(name)) {
                    Some(name) => wrong(format!("Tool choice '{name}' not found in 'tools' parameter.")),
                    None => Ok(()),
                }
            }
            kind if self.kinds.contains(kind) => Ok(()),
            kind => wrong(format!("Tool choice '{kind}' not found in 'tools' parameter.")),
        }
    }
}

fn custom_format(format: Option<&Value>, place: &str) -> Result<(), Refusal> {
    let Some(format) = format.filter(|format| !format.is_null()) else { return Ok(()) };
    match format.get("type").and_then(Value::as_str) {
        Some("text") => Ok(()),
        Some("grammar") => {
            text(format, "definition", place)?;
            match text(format, "syntax", place)? {
                "lark" | "regex" => Ok(()),
                other => Err(Refusal::invalid(format!("{place}.syntax"), format!("Invalid value: '{other}'."))),
            }
        }
        _ => Err(Refusal::invalid(format!("{place}.type"), "Supported values are: 'text' and 'grammar'.")),
    }
}

/// Checks the format of the output: `text.format`, or the `json_schema` of `response_format` in a chat request.
pub(crate) fn answer_format(format: &Value, place: &str) -> Result<(), Refusal> {
    let name = text(format, "name", place)?;
    let rules = Rules::of(format, place)?;
    let schema = format.get("schema").ok_or_else(|| Refusal::lacks(&format!("{place}.schema")))?;
    schema::root(schema, rules, &format!("response_format '{name}'"), &format!("{place}.schema"))
}

fn text<'a>(holder: &'a Value, key: &str, place: &str) -> Result<&'a str, Refusal> {
    let param = format!("{place}.{key}");
    match holder.get(key) {
        None | Some(Value::Null) => Err(Refusal::lacks(&param)),
        Some(value) => value
            .as_str()
            .ok_or_else(|| Refusal::invalid(&param, format!("Invalid type for '{param}': expected a string."))),
    }
}
