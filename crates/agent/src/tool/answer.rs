//! What a tool answers: text, parts with pictures and files, or any JSON.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{BoxError, Part};

/// What a tool answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutput {
    /// Text, sent as it is.
    Text(String),
    /// Texts, pictures and files.
    Parts(Vec<Part>),
    /// Any value: sent as JSON text, kept as it is where it becomes the final output.
    Json(Value),
    /// Text that says what went wrong. Where the kind of call has a word for failure, the answer has it.
    Failure(String),
}

impl ToolOutput {
    /// The `output` field of the answer's item.
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

    /// The same, as text where it is nested deeper than a saved run can be.
    pub(crate) fn bounded(self) -> Self {
        match self {
            Self::Json(value) if deeper_than(&value, MAX_DEPTH) => Self::Text(value.to_string()),
            other => other,
        }
    }

    /// The value a final output has when it is this answer.
    #[must_use]
    pub fn value(&self) -> Value {
        match self {
            Self::Json(value) => value.clone(),
            Self::Text(text) | Self::Failure(text) => Value::String(text.clone()),
            Self::Parts(parts) => serde_json::to_value(parts).unwrap_or_default(),
        }
    }
}

/// How deep a value may be nested to be kept: JSON readers stop at twice of that.
pub(crate) const MAX_DEPTH: usize = 64;

/// Whether a value is nested deeper than this.
pub(crate) fn deeper_than(value: &Value, depth: usize) -> bool {
    let deeper = |value: &Value| depth == 0 || deeper_than(value, depth - 1);
    match value {
        Value::Array(values) => values.iter().any(deeper),
        Value::Object(fields) => fields.values().any(deeper),
        _ => false,
    }
}

/// What a tool's function may return: text, numbers, parts, any type in [`Json`], nothing, or one of these in an
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
    /// The answer it stands for.
    ///
    /// # Errors
    /// When it stands for a failure.
    fn into_tool_output(self) -> Result<ToolOutput, BoxError>;
}

/// Any value that can be written as JSON, as a tool's answer.
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

/// Nothing is empty text.
impl<T: IntoToolOutput> IntoToolOutput for Option<T> {
    fn into_tool_output(self) -> Result<ToolOutput, BoxError> {
        self.map_or_else(|| Ok(ToolOutput::Text(String::new())), T::into_tool_output)
    }
}

/// Answers that are one variant away.
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

/// With the digits that it is written with: 0.1 stays 0.1, and is not 0.10000000149011612.
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
