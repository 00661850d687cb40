//! JSON schemas: those of Rust types, and the strict form that servers can enforce.

mod decode;
mod strict;
#[cfg(test)]
mod tests;

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Value, json};

pub(crate) use self::decode::{DecodeError, decode};
pub use self::strict::strict;

/// String formats that servers accept in strict schemas.
const FORMATS: &[&str] = &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// Key that wraps a value that is not an object where an object is required.
pub(crate) const RESPONSE: &str = "response";

/// Why a schema has no strict form, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schema cannot be strict: at {}: {fault}", if .at.is_empty() { "its root" } else { .at })]
pub struct SchemaError {
    /// JSON pointer into the schema; empty for its root.
    pub at: String,
    /// What is wrong at that position.
    pub fault: SchemaFault,
}

/// Why a part of a schema cannot be strict.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaFault {
    /// The value is not a schema.
    #[error("this is not a schema; an object is needed here")]
    NotASchema,
    /// The schema allows any value.
    #[error("nothing is said about the type, so anything would be allowed; name a type, or make it lenient")]
    Anything,
    /// Properties that are not declared are allowed.
    #[error("properties that are not declared are allowed (a map?); use a list of pairs, or make it lenient")]
    OpenObject,
    /// A reference has sibling keywords that restrict it.
    #[error("a `$ref` beside {0} cannot be merged")]
    RefBeside(String),
    /// A reference to nothing, or outside of the schema.
    #[error("`$ref` to {0} leads to no part of this schema")]
    UnknownRef(String),
    /// An `allOf` with one schema contradicts the schema around it.
    #[error("`allOf` and the schema around it disagree about `{0}`")]
    Conflict(String),
    /// The root is not a plain object.
    #[error("the root must be an object, and may not be {0}")]
    Root(&'static str),
    /// The schema is nested too deeply.
    #[error("nested more than {0} levels deep")]
    TooDeep(usize),
    /// The schema has too many parts.
    #[error("more than {0} parts")]
    TooLarge(usize),
    /// The schema has too much text after references are inlined.
    #[error("more than {0} bytes of text, once references are put in place")]
    TooLong(usize),
}

/// The schema of a type for deserialization, without title and without formats that strict servers reject.
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

/// The schema of an object with the type under the single key `response`.
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

/// Whether a schema describes an object without alternatives or references.
pub(crate) fn is_plain_object(schema: &Value) -> bool {
    let choices = ["anyOf", "oneOf", "allOf", "$ref"];
    schema["type"] == "object" && !choices.iter().any(|key| schema.get(key).is_some())
}

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().with(|settings| settings.meta_schema = None).into_generator()
}

/// Drops the formats that strict servers reject, such as those of numbers.
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
