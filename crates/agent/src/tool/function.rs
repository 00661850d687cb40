//! A tool that calls a function with decoded arguments.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use futures::future::{BoxFuture, FutureExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{IntoToolOutput, Tool, ToolContext, ToolKind, ToolOutput, ToolSpec};
use crate::{
    BoxError,
    schema::{self, DecodeError, SchemaError, decode},
};

/// A tool that calls a function. Cheap to clone.
///
/// ```
/// use sandbar_agent::{App, FunctionTool, Tool, ToolContext, ToolOutput};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Sum {
///     /// What to add up.
///     numbers: Vec<i64>,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), sandbar_agent::BoxError> {
/// let sum = FunctionTool::new("sum", "Adds numbers up.", |_call, sum: Sum| async move { sum.numbers.iter().sum::<i64>() });
///
/// let call = ToolContext::for_test("sum", App::default());
/// assert_eq!(sum.call(&call, r#"{"numbers":[1,2]}"#).await?, ToolOutput::Json(3.into()));
/// let error = sum.call(&call, r#"{"numbers":["x"]}"#).await.unwrap_err();
/// assert_eq!(error.to_string(), "argument /numbers/0: invalid type: string \"x\", expected i64");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct FunctionTool {
    schema: Arc<FunctionSchema>,
    function: Function,
}

type Function = Arc<dyn Fn(ToolContext, &str) -> BoxFuture<'static, Result<ToolOutput, BoxError>> + Send + Sync>;

/// Arguments of a tool without arguments.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
pub struct NoArguments {}

impl FunctionTool {
    /// A function with typed arguments, which must be a struct with named fields. Its schema is strict. If the type has no
    /// strict form, [`schema_fault`](Self::schema_fault) returns the reason, and a run starts only if the tool is
    /// [`lenient`](Self::lenient).
    pub fn new<Args, F, Fut, Answer>(name: impl Into<String>, description: impl Into<String>, function: F) -> Self
    where
        Args: DeserializeOwned + JsonSchema,
        F: Fn(ToolContext, Args) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answer> + Send + 'static,
        Answer: IntoToolOutput + 'static,
    {
        let schema = FunctionSchema::of::<Args>(name, description);
        let function: Function = Arc::new(move |call, arguments| match decode_arguments::<Args>(arguments) {
            Ok(arguments) => function(call, arguments).map(IntoToolOutput::into_tool_output).boxed(),
            Err(error) => futures::future::err(error.into()).boxed(),
        });
        Self { schema: Arc::new(schema), function }
    }

    /// A function that takes a JSON object, with an explicit schema. The schema is converted to its strict form.
    pub fn raw<F, Fut, Answer>(
        name: impl Into<String>,
        description: impl Into<String>,
        schema: Value,
        function: F,
    ) -> Self
    where
        F: Fn(ToolContext, Value) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answer> + Send + 'static,
        Answer: IntoToolOutput + 'static,
    {
        let schema = FunctionSchema::new(name, description, schema);
        let function: Function = Arc::new(move |call, arguments| match decode_arguments::<Value>(arguments) {
            Ok(arguments) => function(call, arguments).map(IntoToolOutput::into_tool_output).boxed(),
            Err(error) => futures::future::err(error.into()).boxed(),
        });
        Self { schema: Arc::new(schema), function }
    }

    /// Sends the schema unchanged and not enforced, for arguments that have no strict form, such as maps.
    #[must_use]
    pub fn lenient(self) -> Self {
        Self { schema: Arc::new(Arc::unwrap_or_clone(self.schema).lenient()), ..self }
    }

    /// Reason why the arguments have no strict schema, unless the tool is lenient.
    #[must_use]
    pub fn schema_fault(&self) -> Option<&SchemaError> {
        self.schema.fault()
    }
}

#[async_trait]
impl Tool for FunctionTool {
    fn spec(&self) -> ToolSpec {
        self.schema.spec().clone()
    }

    fn fault(&self) -> Option<String> {
        self.schema.fault().map(|fault| format!("{fault}; make it lenient to send its schema as it is"))
    }

    async fn call(&self, call: &ToolContext, arguments: &str) -> Result<ToolOutput, BoxError> {
        (self.function)(call.clone(), arguments).await
    }
}

impl fmt::Debug for FunctionTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FunctionTool({})", self.schema.spec().name)
    }
}

/// Schema of the arguments of a function, with the reason if it has no strict form.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct FunctionSchema {
    spec: ToolSpec,
    schema: Value,
    fault: Option<SchemaError>,
}

impl FunctionSchema {
    /// Schema of a function with arguments of this type.
    pub fn of<Args: JsonSchema>(name: impl Into<String>, description: impl Into<String>) -> Self {
        let mut schema = schema::schema_of::<Args>();
        if let Value::Object(fields) = &mut schema {
            // The tool has its own description; the description of the type is for readers of the code.
            fields.remove("description");
        }
        Self::new(name, description, schema)
    }

    fn new(name: impl Into<String>, description: impl Into<String>, schema: Value) -> Self {
        let spec = ToolSpec::function(name, description, Value::Null);
        match schema::strict(&schema) {
            Ok(strict) => {
                let kind = ToolKind::Function { parameters: strict, strict: true };
                Self { spec: ToolSpec { kind, ..spec }, schema, fault: None }
            }
            Err(fault) => {
                let kind = ToolKind::Function { parameters: schema.clone(), strict: false };
                Self { spec: ToolSpec { kind, ..spec }, schema, fault: Some(fault) }
            }
        }
    }

    /// The schema, not enforced.
    #[must_use]
    pub fn lenient(mut self) -> Self {
        self.spec.kind = ToolKind::Function { parameters: self.schema.clone(), strict: false };
        self.fault = None;
        self
    }

    /// Specification of the tool for the model.
    #[must_use]
    pub fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Reason why the schema is not strict, if strictness was requested.
    #[must_use]
    pub fn fault(&self) -> Option<&SchemaError> {
        self.fault.as_ref()
    }
}

/// Error in the arguments of a call. The model reads its message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArgumentsError {
    /// The text is not JSON.
    #[error("the arguments are {0}")]
    NotJson(String),
    /// The JSON is not an object.
    #[error("the arguments must be a JSON object")]
    NotAnObject,
    /// An argument is missing, unknown, or of the wrong type.
    #[error("{}{reason}", if .at.is_empty() { String::new() } else { format!("argument {}: ", .at) })]
    Wrong {
        /// JSON pointer to the argument; empty if a top-level argument is missing.
        at: String,
        /// Fault of the argument.
        reason: String,
    },
}

/// Decodes the arguments of a call. An empty text stands for an empty object.
///
/// # Errors
/// If the text is not a JSON object, or does not match the type.
pub fn decode_arguments<Args: DeserializeOwned>(arguments: &str) -> Result<Args, ArgumentsError> {
    let arguments = match arguments.trim() {
        "" => "{}",
        given => given,
    };
    let decoded = decode(arguments);
    if arguments.starts_with('{') {
        return decoded.map_err(ArgumentsError::from);
    }
    // Serde would decode a struct from a list too, but no schema allows that.
    match decode::<Value>(arguments) {
        Ok(_) => Err(ArgumentsError::NotAnObject),
        Err(error) => Err(error.into()),
    }
}

impl From<DecodeError> for ArgumentsError {
    fn from(error: DecodeError) -> Self {
        match error {
            error @ DecodeError::Syntax(_) => Self::NotJson(error.to_string()),
            DecodeError::Shape { at, reason } => Self::Wrong { at, reason },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::json;

    use super::*;
    use crate::{App, schema::SchemaFault};

    #[derive(Deserialize, JsonSchema)]
    /// Not for the model.
    struct Greet {
        /// Whom.
        name: String,
        times: Option<u8>,
    }

    fn greet() -> FunctionTool {
        FunctionTool::new("greet", "Greets.", |call, Greet { name, times }| async move {
            if name == "ghost" {
                return Err("ghosts are not greeted");
            }
            Ok(format!("{}: {}", call.tool(), format!("hi {name} ").repeat(times.unwrap_or(1).into())))
        })
    }

    async fn answer(tool: &FunctionTool, arguments: &str) -> Result<Value, String> {
        let call = ToolContext::for_test("greet", App::default());
        tool.call(&call, arguments).await.map(|output| output.value()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_model_sees_a_strict_schema() {
        let expected = json!({
            "type": "function", "name": "greet", "description": "Greets.", "strict": true,
            "parameters": {
                "type": "object",
                "properties": {
                    "name": { "description": "Whom.", "type": "string" },
                    "times": { "type": ["integer", "null"], "minimum": 0, "maximum": 255 },
                },
                "required": ["name", "times"],
                "additionalProperties": false,
            },
        });
        assert_eq!(greet().spec().wire(), expected);
        assert_eq!(greet().schema_fault(), None);
        let lenient = greet().lenient().spec().wire();
        assert_eq!((&lenient["strict"], &lenient["parameters"]["required"]), (&json!(false), &json!(["name"])));
    }

    #[tokio::test]
    async fn arguments_arrive_or_the_model_reads_what_is_wrong_with_them() {
        for (arguments, expected) in [
            (r#"{"name":"Ann","times":2}"#, Ok("greet: hi Ann hi Ann ")),
            (r#" {"name":"Ann","times":null} "#, Ok("greet: hi Ann ")),
            (r#"{"name":"ghost"}"#, Err("ghosts are not greeted")),
            ("", Err("missing field `name`")),
            (r#"{"name":5}"#, Err("argument /name: invalid type: integer `5`, expected a string")),
            (r#"{"name":"Ann","times":300}"#, Err("argument /times: invalid value: integer `300`, expected u8")),
            (r#"["Ann", 1]"#, Err("the arguments must be a JSON object")),
            ("null", Err("the arguments must be a JSON object")),
            ("{name", Err("the arguments are not valid JSON: key must be a string at line 1 column 2")),
            ("hello", Err("the arguments are not valid JSON: expected value at line 1 column 1")),
        ] {
            let answer = answer(&greet(), arguments).await;
            assert_eq!(answer, expected.map(|text| json!(text)).map_err(str::to_owned), "{arguments}");
        }
    }

    #[tokio::test]
    async fn nothing_at_all_is_no_arguments() {
        let now = FunctionTool::new("now", "The time.", |_, NoArguments {}| async { "noon" });
        for arguments in ["", " ", "{}", r#"{"more":1}"#] {
            assert_eq!(answer(&now, arguments).await, Ok(json!("noon")), "{arguments:?}");
        }
        assert_eq!(now.spec().wire()["parameters"]["properties"], json!({}));
    }

    #[tokio::test]
    async fn a_raw_function_gets_the_object_as_it_is() {
        let schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
        let raw = FunctionTool::raw("raw", "", schema, |_, arguments: Value| async move { arguments });
        assert_eq!(raw.spec().wire()["parameters"]["required"], json!(["a"]));
        assert_eq!(answer(&raw, r#"{"a":1,"b":[2]}"#).await, Ok(json!({ "a": 1, "b": [2] })));
        assert_eq!(answer(&raw, "").await, Ok(json!({})));
        assert_eq!(answer(&raw, "[]").await, Err("the arguments must be a JSON object".to_owned()));
    }

    #[test]
    fn what_has_no_strict_form_says_so_unless_it_is_lenient() {
        #[derive(Deserialize, JsonSchema)]
        struct Labels {
            labels: HashMap<String, String>,
        }
        let tool = FunctionTool::new("label", "", |_, Labels { labels }| async move { labels.len() });
        let fault = tool.schema_fault().cloned().unwrap();
        assert_eq!((fault.at.as_str(), fault.fault), ("/properties/labels", SchemaFault::OpenObject));
        assert_eq!(tool.spec().wire()["strict"], false);
        assert_eq!(tool.lenient().schema_fault(), None);
        let list = FunctionTool::new("list", "", |_, list: Vec<String>| async move { list.len() });
        assert_eq!(list.schema_fault().unwrap().fault, SchemaFault::Root("anything else"));
    }
}
