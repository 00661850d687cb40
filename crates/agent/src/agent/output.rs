//! Type of the final output: plain text, or a value that matches a schema.

use std::{any::type_name, fmt, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    OutputFormat,
    schema::{self, DecodeError, RESPONSE, SchemaError, decode},
};

/// Name of the format in requests.
const NAME: &str = "final_output";

const NO_OBJECT: &str = "a JSON object is needed";

/// Type of the final output of a run. Cheap to clone.
///
/// ```
/// use sandbar_agent::OutputType;
/// use serde_json::json;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Verdict {
///     good: bool,
///     reason: Option<String>,
/// }
/// let verdict = OutputType::of::<Verdict>();
/// assert_eq!(verdict.parse(r#"{"good":true,"reason":null}"#), Ok(json!({ "good": true, "reason": null })));
/// assert_eq!(verdict.parse(r#"{"good":1}"#).unwrap_err(), "/good: invalid type: integer `1`, expected a boolean");
///
/// // A value that is not an object is wrapped in one.
/// let words = OutputType::of::<Vec<String>>();
/// assert_eq!(words.parse(r#"{"response":["a"]}"#), Ok(json!(["a"])));
/// ```
#[derive(Clone, Default)]
pub struct OutputType(Option<Arc<Shape>>);

#[derive(Clone)]
struct Shape {
    name: String,
    schema: Value,
    format: Result<Arc<OutputFormat>, SchemaError>,
    wrap: Wrap,
    check: Check,
}

/// Whether the value is wrapped under the key `response`.
#[derive(Clone, Copy, PartialEq)]
enum Wrap {
    Bare,
    Response,
}

/// Checks the text, and the unwrapped value in it.
type Check = Arc<dyn Fn(&str, &Value) -> Result<(), String> + Send + Sync>;

#[derive(Deserialize)]
struct Wrapped<T> {
    #[serde(rename = "response")]
    _response: T,
}

impl OutputType {
    /// Plain text.
    #[must_use]
    pub fn text() -> Self {
        Self::default()
    }

    /// A value of this type. The server gets its schema, and the output is decoded as a check.
    #[must_use]
    pub fn of<T: JsonSchema + DeserializeOwned>() -> Self {
        let bare = schema::schema_of::<T>();
        let (schema, wrap, check): (Value, Wrap, Check) = if schema::is_plain_object(&bare) {
            (bare, Wrap::Bare, Arc::new(|text, _| fits::<T>(text)))
        } else {
            (schema::wrapped_schema_of::<T>(), Wrap::Response, Arc::new(|text, _| fits::<Wrapped<T>>(text)))
        };
        Self::shaped(short_name(type_name::<T>()), schema, wrap, check)
    }

    /// A value with a hand-written object schema and a function that checks the output.
    pub fn by_hand<F>(name: impl Into<String>, schema: Value, check: F) -> Self
    where
        F: Fn(&Value) -> Result<(), String> + Send + Sync + 'static,
    {
        Self::shaped(name.into(), schema, Wrap::Bare, Arc::new(move |_, value| check(value)))
    }

    fn shaped(name: String, schema: Value, wrap: Wrap, check: Check) -> Self {
        let format = schema::strict(&schema)
            .map(|schema| Arc::new(OutputFormat { name: NAME.to_owned(), schema, strict: true }));
        Self(Some(Arc::new(Shape { name, schema, format, wrap, check })))
    }

    /// Sends the schema unchanged and not enforced, for types that have no strict form, such as maps.
    #[must_use]
    pub fn lenient(self) -> Self {
        let lenient = self.0.map(|shape| {
            let mut shape = Arc::unwrap_or_clone(shape);
            let format = OutputFormat { name: NAME.to_owned(), schema: shape.schema.clone(), strict: false };
            shape.format = Ok(Arc::new(format));
            Arc::new(shape)
        });
        Self(lenient)
    }

    /// Whether the type is plain text.
    #[must_use]
    pub fn is_text(&self) -> bool {
        self.0.is_none()
    }

    /// Name of the type in traces.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.as_ref().map_or("str", |shape| &shape.name)
    }

    /// Format for the model's server; `None` for plain text.
    ///
    /// # Errors
    /// When the type has no strict form.
    pub fn format(&self) -> Result<Option<Arc<OutputFormat>>, SchemaError> {
        self.0.as_ref().map(|shape| shape.format.clone()).transpose()
    }

    /// Parses the text of a model; plain text becomes a string.
    ///
    /// # Errors
    /// What is wrong and where, if the text does not match.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        let Some(shape) = &self.0 else { return Ok(Value::String(text.to_owned())) };
        let mut value: Value = decode(text).map_err(|error| error.to_string())?;
        if shape.wrap == Wrap::Response {
            let fields = value.as_object_mut().ok_or(NO_OBJECT)?;
            value = fields.remove(RESPONSE).ok_or_else(|| format!("missing field `{RESPONSE}`"))?;
        }
        (shape.check)(text, &value)?;
        Ok(value)
    }

    /// Checks a value that does not come from a model.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        let Some(shape) = &self.0 else { return Ok(()) };
        let text = match shape.wrap {
            Wrap::Bare => value.to_string(),
            Wrap::Response => serde_json::json!({ RESPONSE: value }).to_string(),
        };
        (shape.check)(&text, value)
    }
}

fn fits<T: DeserializeOwned>(text: &str) -> Result<(), String> {
    if !text.trim_start().starts_with('{') {
        return Err(NO_OBJECT.to_owned());
    }
    decode::<T>(text).map(drop).map_err(|error: DecodeError| error.to_string())
}

/// `Vec<String>` for `alloc::vec::Vec<alloc::string::String>`.
fn short_name(full: &str) -> String {
    let mut short = String::new();
    for piece in full.split_inclusive(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')) {
        short.push_str(piece.rsplit("::").next().unwrap_or(piece));
    }
    short
}

impl fmt::Debug for OutputType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OutputType({})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::{Map, json};

    use super::*;
    use crate::schema::SchemaFault;

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only decoded")]
    struct Point {
        x: u32,
        label: Option<String>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only decoded")]
    enum Choice {
        None,
        One(Point),
    }

    fn schema(output: &OutputType) -> Value {
        let format = output.format().unwrap().unwrap();
        assert_eq!((format.name.as_str(), format.strict), ("final_output", true));
        format.schema.clone()
    }

    #[test]
    fn text_is_a_string_of_any_kind() {
        let text = OutputType::text();
        assert!(text.is_text() && text.format().unwrap().is_none());
        assert_eq!(text.parse("{"), Ok(json!("{")));
        assert_eq!(text.name(), "str");
    }

    #[test]
    fn objects_travel_bare_and_everything_else_under_one_key() {
        assert_eq!(schema(&OutputType::of::<Point>())["required"], json!(["x", "label"]));
        for (output, name) in [
            (OutputType::of::<Vec<Point>>(), "Vec<Point>"),
            (OutputType::of::<u8>(), "u8"),
            (OutputType::of::<Choice>(), "Choice"),
            (OutputType::of::<Option<Point>>(), "Option<Point>"),
            (OutputType::of::<(String, bool)>(), "(String, bool)"),
        ] {
            assert_eq!(output.name(), name);
            let schema = schema(&output);
            assert_eq!(schema["required"], json!(["response"]), "{name}");
            assert_eq!(schema["properties"].as_object().map(Map::len), Some(1), "{name}");
            assert_eq!(schema["additionalProperties"], false, "{name}");
        }
    }

    #[test]
    fn what_comes_is_unwrapped_or_the_error_says_what_and_where() {
        let (point, points) = (OutputType::of::<Point>(), OutputType::of::<Vec<Point>>());
        for (output, text, expected) in [
            (&point, r#" {"x":1,"label":null}"#, Ok(json!({ "x": 1, "label": null }))),
            (&point, r#"{"x":-1}"#, Err("/x: invalid value: integer `-1`, expected u32")),
            (&point, r#"[1,null]"#, Err("a JSON object is needed")),
            (&point, "hello", Err("not valid JSON: expected value at line 1 column 1")),
            (&points, r#"{"response":[{"x":1}]}"#, Ok(json!([{ "x": 1 }]))),
            (
                &points,
                r#"{"response":[{"x":1},{"x":"1"}]}"#,
                Err("/response/1/x: invalid type: string \"1\", expected u32"),
            ),
            (&points, r#"[{"x":1}]"#, Err("a JSON object is needed")),
            (&points, "{}", Err("missing field `response`")),
        ] {
            assert_eq!(output.parse(text), expected.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn a_map_needs_a_lenient_schema() {
        let map = OutputType::of::<HashMap<String, u8>>();
        assert_eq!(map.format().unwrap_err().fault, SchemaFault::OpenObject);
        let map = map.lenient();
        assert!(!map.format().unwrap().unwrap().strict);
        assert_eq!(map.parse(r#"{"a":1}"#), Ok(json!({ "a": 1 })));
    }

    #[test]
    fn a_shape_made_by_hand_is_checked_by_hand() {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        let even = OutputType::by_hand("Even", schema, |value| match value["n"].as_i64() {
            Some(n) if n % 2 == 0 => Ok(()),
            _ => Err("/n: must be even".to_owned()),
        });
        assert_eq!(even.parse(r#"{"n":2}"#), Ok(json!({ "n": 2 })));
        assert_eq!(even.parse(r#"{"n":3}"#), Err("/n: must be even".to_owned()));
        assert_eq!(even.format().unwrap().unwrap().schema["required"], json!(["n"]));
    }
}
