//! The patch as JSON, in every shape that tools and models give it.

use serde_json::{Map, Value};

use super::{
    Ending, Operation,
    body::{Lines, added, hunks},
    envelope::{self, named},
    text::patch_lines,
};
use crate::{Result, SandboxError};

/// Reads the whole text.
pub(super) fn parse(text: &str) -> Result<Vec<Operation>> {
    let value = serde_json::from_str(text).map_err(|error| malformed(&error.to_string()).because(error))?;
    let mut operations = Vec::new();
    match &value {
        Value::Object(object) => from_object(object, &mut operations)?,
        Value::Array(list) => from_list(list, &mut operations)?,
        _ => return Err(malformed("it is neither an object nor a list")),
    }
    if operations.is_empty() {
        return Err(malformed("it names no operation"));
    }
    Ok(operations)
}

fn malformed(reason: &str) -> SandboxError {
    SandboxError::apply_patch_invalid_diff("", format!("The patch is not JSON that can be understood: {reason}"))
}

fn from_object(object: &Map<String, Value>, into: &mut Vec<Operation>) -> Result<()> {
    for name in ["patch", "input"] {
        if let Some(Value::String(patch)) = object.get(name) {
            into.extend(envelope::parse(patch)?);
            return Ok(());
        }
    }
    if let Some(Value::Array(list)) = object.get("command").or_else(|| object.get("operations")) {
        return from_list(list, into);
    }
    let inner = object.get("operation").unwrap_or_else(|| object.get("operations").unwrap_or(&Value::Null));
    match inner {
        Value::Object(inner) => into.push(operation(inner)?),
        _ => into.push(operation(object)?),
    }
    Ok(())
}

/// A list of operations, or `["apply_patch", text]`.
fn from_list(list: &[Value], into: &mut Vec<Operation>) -> Result<()> {
    if let [Value::String(program), Value::String(patch)] = list
        && program == "apply_patch"
    {
        into.extend(envelope::parse(patch)?);
        return Ok(());
    }
    for item in list {
        match item {
            Value::Object(object) => {
                into.push(operation(object.get("operation").and_then(Value::as_object).unwrap_or(object))?)
            }
            _ => return Err(malformed("a list must hold operations, or \"apply_patch\" and the patch")),
        }
    }
    Ok(())
}

fn operation(object: &Map<String, Value>) -> Result<Operation> {
    let text = |name: &str| match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(malformed(&format!("`{name}` is not a string"))),
    };
    let kind = text("type")?.ok_or_else(|| malformed("an operation has no `type`"))?;
    let path = named(text("path")?.unwrap_or_default())?;
    let diff = text("diff")?.unwrap_or_default();
    let ending = Ending::of_first(diff);
    let all = patch_lines(diff);
    let mut lines = Lines::new(&all, 0);
    match kind {
        "create_file" => Ok(Operation::Create { lines: added(&mut lines, &path)?, path, ending }),
        "delete_file" => Ok(Operation::Delete { path }),
        "update_file" => {
            let move_to = text("move_to")?.or(text("moveTo")?).filter(|to| !to.trim().is_empty());
            let move_to = move_to.map(named).transpose()?;
            let hunks = hunks(&mut lines, &path)?;
            if hunks.is_empty() && move_to.is_none() {
                let reason = format!("Update file hunk for path '{path}' is empty");
                return Err(SandboxError::apply_patch_invalid_diff(path, reason));
            }
            Ok(Operation::Update { path, move_to, hunks, ending })
        }
        other => {
            let reason = format!("the type {other:?} is none of create_file, update_file and delete_file");
            Err(malformed(&reason))
        }
    }
}
