//! Checks of the tools of a request, its tool choice and its output format, in the form of either API.

use std::collections::HashSet;

use serde_json::Value;

use super::{schema, text};
use crate::refusal::Refusal;

/// The tools of a request.
#[derive(Default)]
struct Offered<'a> {
    /// Function and custom tools, in order.
    names: Vec<&'a str>,
    known: HashSet<&'a str>,
    kinds: HashSet<&'a str>,
}

/// Checks the tools, the tool choice and the output format. Returns the names of the function and custom tools.
pub(crate) fn offered(body: &Value) -> Result<Vec<&str>, Refusal> {
    let mut offered = Offered::default();
    offered.add_all(body.get("tools"), "tools")?;
    offered.check_choice(body.get("tool_choice"))?;
    for (pointer, place) in
        [("/text/format", "text.format"), ("/response_format/json_schema", "response_format.json_schema")]
    {
        if let Some(format) = body.pointer(pointer)
            && let Some(output) = format.get("schema")
        {
            schema::root(output, format, "response_format", &format!("{place}.schema"))?;
        }
    }
    Ok(offered.names)
}

impl<'a> Offered<'a> {
    fn add_all(&mut self, tools: Option<&'a Value>, place: &str) -> Result<(), Refusal> {
        for (at, tool) in tools.and_then(Value::as_array).into_iter().flatten().enumerate() {
            self.add(tool, &format!("{place}[{at}]"))?;
        }
        Ok(())
    }

    fn add(&mut self, tool: &'a Value, place: &str) -> Result<(), Refusal> {
        let kind = text(tool, "type").unwrap_or_default();
        self.kinds.insert(kind);
        match kind {
            "namespace" if place.contains('.') => {
                Err(Refusal::invalid(format!("{place}.type"), "Namespaces do not nest."))
            }
            "namespace" => self.add_all(tool.get("tools"), &format!("{place}.tools")),
            "function" | "custom" => match tool.get(kind) {
                // Chat Completions nests the tool in a field with the name of its kind.
                Some(inner) => self.add_named(kind, inner, &format!("{place}.{kind}")),
                None => self.add_named(kind, tool, place),
            },
            _ => Ok(()),
        }
    }

    fn add_named(&mut self, kind: &str, tool: &'a Value, place: &str) -> Result<(), Refusal> {
        let name = text(tool, "name").unwrap_or_default();
        let param = format!("{place}.name");
        let legal = (1..=128).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if !legal {
            let message = format!("Invalid '{param}': string does not match pattern '^[a-zA-Z0-9_-]+$'.");
            return Err(Refusal::invalid(param, message));
        }
        if !self.known.insert(name) {
            return Err(Refusal::invalid(param, format!("Duplicate tool name: '{name}'.")));
        }
        self.names.push(name);
        let place = format!("{place}.parameters");
        match tool.get("parameters").filter(|parameters| kind == "function" && !parameters.is_null()) {
            Some(parameters) => schema::root(parameters, tool, "function", &place),
            None if kind == "function" && schema::is_strict(tool) => Err(Refusal::lacks(&place)),
            None => Ok(()),
        }
    }

    fn check_choice(&self, choice: Option<&Value>) -> Result<(), Refusal> {
        let wrong = |message: String| Err(Refusal::invalid("tool_choice", message));
        let check_name = |name: &str| match self.known.contains(name) {
            true => Ok(()),
            false => wrong(format!("Tool choice '{name}' not found in 'tools' parameter.")),
        };
        let Some(choice) = choice else { return Ok(()) };
        match choice.as_str() {
            Some("required") if self.kinds.is_empty() => {
                return wrong("Tool choice 'required' must be specified with 'tools' parameter.".to_owned());
            }
            Some("auto" | "none" | "required") => return Ok(()),
            Some(other) => return wrong(format!("Invalid value: '{other}'.")),
            None => {}
        }
        match text(choice, "type") {
            Some(kind @ ("function" | "custom")) => {
                let named = text(choice.get(kind).unwrap_or(choice), "name");
                check_name(named.ok_or_else(|| Refusal::lacks("tool_choice.name"))?)
            }
            Some("allowed_tools") => {
                let tools = choice.get("tools").and_then(Value::as_array).into_iter().flatten();
                tools.filter_map(|tool| text(tool, "name")).try_for_each(check_name)
            }
            Some(kind) if !self.kinds.contains(kind) => check_name(kind),
            _ => Ok(()),
        }
    }
}
