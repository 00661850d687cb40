//! Output of a tool: text, parts with images and files, or any JSON value.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{BoxError, Part};

/// Output of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutput {
    /// Text, sent unchanged.
    Text(String),
    /// Texts, images and files.
    Parts(Vec<Part>),
    /// Any JSON value: sent to the model as JSON text, but unchanged if it becomes the final output.
    Json(Value),
    /// Error text. If outputs of this kind of call have a status, the status is `failed`.
    Failure(String),
}

impl ToolOutput {
    /// The `output` field of the output item.
    #[must_use]
    pub fn wire(&self) -> Value {
        match self {
            Self::Text(text) | Self::Failure(text) => Value::String(text.clone()),
            Self::Parts(parts) if parts.is_empty() => Value::String(String::new()),
            Self::Parts(parts) => serde_json::to_value(parts).unwrap_or_default(),
            Self::Json(Value::String(text)) => Value::String(text.clone()),
            Self::Json(value) => Value::String(value.to_string()),
        }
    }

    /// The output, converted to text if it is nested too deeply for a saved run.
    pub(crate) fn bounded(self) -> Self {
        match self {
            Self::Json(value) if deeper_than(&value, MAX_DEPTH) => Self::Text(value.to_string()),
            other => other,
        }
    }

    /// The final output, if this output ends the run.
    #[must_use]
    pub fn value(&self) -> Value {
        match self {
            Self::Json(value) => value.clone(),
            Self::Text(text) | Self::Failure(text) => Value::String(text.clone()),
            Self::Parts(parts) => serde_json::to_value(parts).unwrap_or_default(),
        }
    }
}

/// Maximum nesting of a value that is stored. JSON parsers stop at twice this depth.
pub(crate) const MAX_DEPTH: usize = 64;

/// Whether a value is nested deeper than this limit.
pub(crate) fn deeper_than(value: &Value, depth: usize) -> bool {
    let deeper = |value: &Value| depth == 0 || deeper_than(value, depth - 1);
    match value {
        Value::Array(values) => values.iter().any(deeper),
        Value::Object(fields) => fields.values().any(deeper),
        _ => false,
    }
}

/// Return type of the function of a tool: text, numbers, parts, any type in [`Json`], `()`, or one of these in an
/// [`Option`] or a [`Result`].
///
/// ```
/// use sandbar_agent::{IntoToolOutput as _, Json, ToolOutput};
///
/// let found: Option<&str> = None;
/// assert_eq!(found.into_tool_output()?, ToolOutput::Text(String::new()));
/// let sizes = Json([("small", 1), ("large", 9)]);
/// assert_eq!(sizes.into_tool_output()?.wire(), r#"[["small",1],["large",9]]"#);
/// # Ok::<(), sandbar_agent::BoxError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a tool cannot answer with `{Self}`",
    label = "not an answer that a model can read",
    note = "return `Json<{Self}>` and wrap the value in `Json(…)` if it implements `serde::Serialize`"
)]
pub trait IntoToolOutput {
    /// Converts the value to the output of a tool.
    ///
    /// # Errors
    /// If the value is a failure.
    fn into_tool_output(self) -> Result<ToolOutput, BoxError>;
}

/// Output of a tool that is any value that serializes to JSON.
#[derive(Clone, Debug)]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoToolOutput for Json<T> {
    fn into_tool_output(self) -> Result<ToolOutput, BoxError> {
        Ok(ToolOutput::Json(serde_json::to_value(self.0)?))
    }
}

impl<T: IntoToolOutput, E: Into<BoxError>> IntoToolOutput for Result<T, E> {
    fn into_tool_output(self) -> Result<ToolOutput, BoxError> {
        self.map_err(Into::into)?.into_tool_output()
    }
}

/// `()` is an empty text.
impl<T: IntoToolOutput> IntoToolOutput for Option<T> {
    fn into_tool_output(self) -> Result<ToolOutput, BoxError> {
        self.map_or_else(|| Ok(ToolOutput::Text(String::new())), T::into_tool_output)
    }
}

/// Implements the conversion for types that map to one variant.
macro_rules! answers {
    ($($type:ty => |$value:ident| $output:expr;)*) => {
        $(impl IntoToolOutput for $type {
            fn into_tool_output(self) -> Result<ToolOutput, BoxError> {
                let $value = self;
                Ok($output)
            }
        })*
    };
}

answers! {
    ToolOutput => |output| output;
    String => |text| ToolOutput::Text(text);
    &str => |text| ToolOutput::Text(text.to_owned());
    Cow<'_, str> => |text| ToolOutput::Text(text.into_owned());
    Box<str> => |text| ToolOutput::Text(text.into_string());
    () => |_nothing| ToolOutput::Text(String::new());
    Part => |part| ToolOutput::Parts(vec![part]);
    Vec<Part> => |parts| ToolOutput::Parts(parts);
    Vec<String> => |texts| ToolOutput::Json(texts.into());
    Value => |value| ToolOutput::Json(value);
    bool => |value| ToolOutput::Json(value.into());
    i8 => |value| ToolOutput::Json(value.into());
    i16 => |value| ToolOutput::Json(value.into());
    i32 => |value| ToolOutput::Json(value.into());
    i64 => |value| ToolOutput::Json(value.into());
    u8 => |value| ToolOutput::Json(value.into());
    u16 => |value| ToolOutput::Json(value.into());
    u32 => |value| ToolOutput::Json(value.into());
    u64 => |value| ToolOutput::Json(value.into());
    usize => |value| ToolOutput::Json(value.into());
    f32 => |value| ToolOutput::Json(widened(value).into());
    f64 => |value| ToolOutput::Json(value.into());
}

/// Keeps the shortest digits of an `f32`: 0.1 stays 0.1 and does not become 0.10000000149011612.
fn widened(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| value.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_goes_as_it_is_and_values_as_json_text() {
        for (output, wire) in [
            (ToolOutput::Text("a\n".to_owned()), json!("a\n")),
            (ToolOutput::Json(json!({ "a": [1] })), json!("{\"a\":[1]}")),
            (ToolOutput::Json(json!("bare")), json!("bare")),
            (ToolOutput::Parts(vec![]), json!("")),
            (ToolOutput::Parts(vec![Part::text("x")]), json!([{ "type": "input_text", "text": "x" }])),
        ] {
            assert_eq!(output.wire(), wire);
        }
    }

    #[test]
    fn functions_may_return_what_they_have() {
        fn of(answer: impl IntoToolOutput) -> Value {
            answer.into_tool_output().unwrap().wire()
        }
        for (wire, expected) in [
            (of(Some("x")), "x"),
            (of(None::<u8>), ""),
            (of(Ok::<_, BoxError>(Some(Json([1])))), "[1]"),
            (of(Cow::Borrowed("x")), "x"),
            (of(Box::<str>::from("x")), "x"),
            (of(vec!["a".to_owned(), "b".to_owned()]), r#"["a","b"]"#),
            (of(Vec::<String>::new()), "[]"),
            (of(u8::MAX), "255"),
            (of(u16::MAX), "65535"),
            (of(i8::MIN), "-128"),
            (of(i16::MIN), "-32768"),
            (of(0.1_f32), "0.1"),
            (of(f32::NAN), "null"),
        ] {
            assert_eq!(wire, expected);
        }
        assert_eq!(Some(Err::<String, _>("broken")).into_tool_output().unwrap_err().to_string(), "broken");
    }
}
