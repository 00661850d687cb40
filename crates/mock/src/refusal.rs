//! The refusal of a request: its status and error object.

use serde_json::{Value, json};

/// Reason why a request is refused, for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) code: Option<&'static str>,
    pub(crate) param: Option<String>,
    pub(crate) message: String,
}

impl Refusal {
    /// The request is invalid.
    pub(crate) fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::bare(400, message) }
    }

    /// The request is valid, but the script has no answer to it.
    pub(crate) fn script(code: &'static str, message: impl Into<String>) -> Self {
        Self { code: Some(code), param: Some("input".to_owned()), ..Self::bare(400, message) }
    }

    /// The resource does not exist.
    pub(crate) fn missing(message: impl Into<String>) -> Self {
        Self::bare(404, message)
    }

    /// A required field is missing.
    pub(crate) fn lacks(param: &str) -> Self {
        Self::invalid(param, format!("Missing required parameter: '{param}'.")).code("missing_required_parameter")
    }

    pub(crate) fn bare(status: u16, message: impl Into<String>) -> Self {
        Self { status, kind: "invalid_request_error", code: None, param: None, message: message.into() }
    }

    #[must_use]
    pub(crate) fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    pub(crate) fn body(&self) -> Value {
        envelope(&self.message, self.kind, self.param.as_deref(), self.code)
    }
}

/// The error object of the API.
pub(crate) fn envelope(message: &str, kind: &str, param: Option<&str>, code: Option<&str>) -> Value {
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
}
