//! Checks of strict JSON schemas: closed objects, all properties required, only keywords that a server can enforce.

use serde_json::{Map, Value};

use super::text;
use crate::refusal::Refusal;

/// Whether the holder of a schema, a tool or a format, asks for the strict rules.
pub(super) fn is_strict(holder: &Value) -> bool {
    holder.get("strict") == Some(&Value::Bool(true))
}

/// Keywords that strict schemas must not contain.
const FORBIDDEN: &[&str] = &[
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "patternProperties",
    "unevaluatedProperties",
    "propertyNames",
];

/// Checks the schema of the parameters of a function, or of an output. `holder` is the tool or the format.
pub(super) fn root(schema: &Value, holder: &Value, kind: &str, place: &str) -> Result<(), Refusal> {
    let name = text(holder, "name").unwrap_or_default();
    let wrong = |why: &str| {
        Err(Refusal::invalid(place, format!("Invalid schema for {kind} '{name}': {why}")).code("invalid_schema"))
    };
    let Some(object) = schema.as_object() else { return wrong("it is not an object.") };
    let is_strict = is_strict(holder);
    if is_strict && object.contains_key("anyOf") {
        return wrong("In context=(), 'anyOf' is not permitted at the root.");
    }
    let has_properties = is_strict || object.get("properties").is_none_or(Value::is_object);
    if text(schema, "type") != Some("object") || !has_properties {
        return wrong("schema must be a JSON Schema of 'type: \"object\"'.");
    }
    if !is_strict {
        return Ok(());
    }
    let mut path = Vec::new();
    strict(schema, schema, &mut path).or_else(|why| {
        let path: Vec<String> = path.iter().map(|step| format!("'{step}'")).collect();
        wrong(&format!("In context=({}), {why}", path.join(", ")))
    })
}

/// Checks a part of a schema. After an error, `path` is the path to the fault.
fn strict(schema: &Value, root: &Value, path: &mut Vec<String>) -> Result<(), String> {
    let Some(object) = schema.as_object() else {
        return Err("a schema must be an object.".to_owned());
    };
    if let Some(word) = FORBIDDEN.iter().find(|word| object.contains_key(**word)) {
        return Err(format!("'{word}' is not permitted."));
    }
    reference(object, root)?;
    let is_object = match object.get("type") {
        Some(Value::String(kind)) => kind == "object",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        _ => false,
    };
    if is_object || object.contains_key("properties") {
        closed(object)?;
    }
    for word in ["properties", "$defs", "definitions"] {
        let Some(inner) = object.get(word) else { continue };
        let inner = inner.as_object().ok_or_else(|| format!("'{word}' must be an object."))?;
        for (name, schema) in inner {
            path.extend([word.to_owned(), name.clone()]);
            strict(schema, root, path)?;
            path.truncate(path.len() - 2);
        }
    }
    for (at, schema) in object.get("anyOf").and_then(Value::as_array).into_iter().flatten().enumerate() {
        path.extend(["anyOf".to_owned(), at.to_string()]);
        strict(schema, root, path)?;
        path.truncate(path.len() - 2);
    }
    if let Some(items) = object.get("items") {
        path.push("items".to_owned());
        strict(items, root, path)?;
        path.pop();
    }
    Ok(())
}

fn closed(object: &Map<String, Value>) -> Result<(), String> {
    if object.get("additionalProperties") != Some(&Value::Bool(false)) {
        return Err("'additionalProperties' is required to be supplied and to be false.".to_owned());
    }
    let empty = Map::new();
    let properties = object.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let required: std::collections::HashSet<&str> =
        object.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let missing = properties.keys().find(|name| !required.contains(name.as_str()));
    let extra = required.iter().find(|name| !properties.contains_key(**name));
    match (missing, extra) {
        (Some(missing), _) => Err(format!(
            "'required' is required to be supplied and to be an array including every key in properties. Missing '{missing}'."
        )),
        (None, Some(extra)) => Err(format!("Extra required key '{extra}' supplied.")),
        (None, None) => Ok(()),
    }
}

/// Checks that a reference leads to a definition of the same schema.
fn reference(object: &Map<String, Value>, root: &Value) -> Result<(), String> {
    let Some(reference) = object.get("$ref") else { return Ok(()) };
    let target = reference.as_str().and_then(|text| text.strip_prefix('#')).and_then(|pointer| root.pointer(pointer));
    if target.is_none() {
        return Err(format!("reference can only point to definitions of the schema, and {reference} does not."));
    }
    Ok(())
}
