//! JSON schemas: those of Rust types, and the strict form that servers can hold a model to.

mod place;
mod strict;
#[cfg(test)]
mod tests;

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Value, json};

pub(crate) use self::place::{Misfit, decode};
pub use self::strict::strict;

/// The formats of strings that strict servers know.
const FORMATS: &[&str] = &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// The key under which a value that is no object is put, where an object is asked for.
pub(crate) const RESPONSE: &str = "response";

/// Why a schema has no strict form, and at which place (a JSON pointer).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schema cannot be strict: at {}: {fault}", if .at.is_empty() { "its root" } else { .at })]
pub struct SchemaError {
    /// Where: a JSON pointer into the schema; empty for its root.
    pub at: String,
    /// What is wrong there.
    pub fault: SchemaFault,
}

/// What keeps a schema from being strict.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaFault {
    /// Something else stands where a schema should be.
    #[error("this is not a schema; an object is needed here")]
    NotASchema,
    /// It says nothing about the value.
    #[error("nothing is said about the type, so anything would be allowed; name a type, or make it lenient")]
    Anything,
    /// Properties nobody named are allowed.
    #[error("properties nobody named are allowed (a map?); use a list of pairs, or make it lenient")]
    OpenObject,
    /// A reference stands beside keywords that would add to what it says.
    #[error("a `$ref` beside {0} cannot be merged")]
    RefBeside(String),
    /// A reference that leads nowhere, or out of the schema.
    #[error("`$ref` to {0} leads to no part of this schema")]
    UnknownRef(String),
    /// An `allOf` of one says something else than the schema around it.
    #[error("`allOf` and the schema around it disagree about `{0}`")]
    Conflict(String),
    /// What the root of a strict schema may not be.
    #[error("the root must be an object, and may not be {0}")]
    Root(&'static str),
    /// Nested too deeply.
    #[error("nested more than {0} levels deep")]
    TooDeep(usize),
    /// Too many parts.
    #[error("more than {0} parts")]
    TooLarge(usize),
    /// Too much text, once references are put in place.
    #[error("more than {0} bytes of text, once references are put in place")]
    TooLong(usize),
}

/// The schema of a type, as it is decoded, without what only people or other programs need.
///
/// ```
/// use sandbar_agent::schema;
///
/// #[derive(schemars::JsonSchema)]
/// struct City {
///     /// Its name.
///     name: String,
///     people: Option<u32>,
/// }
/// let schema = schema::strict(&schema::schema_of::<City>())?;
/// assert_eq!(schema["required"], serde_json::json!(["name", "people"]));
/// assert_eq!(schema["properties"]["name"]["description"], "Its name.");
/// assert_eq!(schema["properties"]["people"]["type"], serde_json::json!(["integer", "null"]));
/// # Ok::<(), schema::SchemaError>(())
/// ```
#[must_use]
pub fn schema_of<T: JsonSchema>() -> Value {
    let mut schema = generator().into_root_schema_for::<T>().to_value();
    if let Value::Object(fields) = &mut schema {
        fields.remove("title");
    }
    drop_formats(&mut schema);
    schema
}

/// The schema of an object that holds the type under the one key `response`.
pub(crate) fn wrapped_schema_of<T: JsonSchema>() -> Value {
    let mut generator = generator();
    let inner = generator.subschema_for::<T>().to_value();
    let definitions = generator.take_definitions(true);
    let mut schema = json!({ "type": "object", "properties": { RESPONSE: inner }, "required": [RESPONSE] });
    if !definitions.is_empty() {
        schema["$defs"] = Value::Object(definitions);
    }
    drop_formats(&mut schema);
    schema
}

/// Whether a schema is that of an object and nothing else.
pub(crate) fn is_plain_object(schema: &Value) -> bool {
    let choices = ["anyOf", "oneOf", "allOf", "$ref"];
    schema["type"] == "object" && !choices.iter().any(|key| schema.get(key).is_some())
}

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().with(|settings| settings.meta_schema = None).into_generator()
}

/// Drops the formats that strict servers refuse, such as those of numbers.
fn drop_formats(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    if fields.get("format").and_then(Value::as_str).is_some_and(|format| !FORMATS.contains(&format)) {
        fields.remove("format");
    }
    for (key, value) in fields.iter_mut() {
        match (key.as_str(), value) {
            ("$defs" | "definitions" | "properties", Value::Object(schemas)) => {
                schemas.iter_mut().for_each(|(_, schema)| drop_formats(schema));
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(schemas)) => {
                schemas.iter_mut().for_each(drop_formats);
            }
            ("items" | "additionalProperties", schema) => drop_formats(schema),
            _ => {}
        }
    }
}
