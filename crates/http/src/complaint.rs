//! Error bodies of servers, in the forms that servers use.

use serde_json::Value;

/// An error of a server. Its texts may contain secrets of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The server's code for the error.
    pub code: Option<String>,
    /// The server's message.
    pub message: String,
    /// Whether the body is an error in one of the known forms; otherwise it is any text.
    pub is_error: bool,
}

impl Complaint {
    /// Reads the known forms: `{"error":{"message","code","type"}}`, `{"error":"…"}`, `{"message","code"}`, `{"detail"}`, and
    /// the same in a list; anything else is taken as text.
    #[must_use]
    pub fn read(body: &[u8]) -> Self {
        let parsed = serde_json::from_slice::<Value>(body).ok();
        let object = parsed.as_ref().map(|value| value.get(0).unwrap_or(value));
        if let Some(error) = object.and_then(|object| object.get("error")).filter(|error| !error.is_null()) {
            let (code, message) = error_parts(error);
            return Self { code, message, is_error: true };
        }
        let said = ["message", "detail"].iter().find_map(|name| object?.get(*name)?.as_str());
        let code = said.and(object).and_then(|object| text(object, "code"));
        let message = match said {
            Some(message) => message.to_owned(),
            None => String::from_utf8_lossy(body).trim().to_owned(),
        };
        let message = if message.is_empty() { "no explanation".to_owned() } else { message };
        Self { code, message, is_error: false }
    }
}

/// Code and message of an error, in any of its forms.
#[must_use]
pub fn error_parts(error: &Value) -> (Option<String>, String) {
    let code = text(error, "code").or_else(|| text(error, "type").filter(|kind| kind != "error"));
    let message = error.as_str().map(str::to_owned).or_else(|| text(error, "message"));
    let message = message.or_else(|| code.clone()).unwrap_or_else(|| "no explanation".to_owned());
    (code, message)
}

fn text(object: &Value, name: &str) -> Option<String> {
    match object.get(name)? {
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_understood_in_every_form_servers_use() {
        for (body, code, message) in [
            (r#"{"error":{"message":"m","type":"t","code":"c"}}"#, Some("c"), "m"),
            (r#"{"error":{"message":"m","type":"t","code":null}}"#, Some("t"), "m"),
            (r#"{"error":{"message":"m","code":404}}"#, Some("404"), "m"),
            (r#"{"error":"model not found"}"#, None, "model not found"),
            (r#"[{"error":{"message":"m"}}]"#, None, "m"),
            (r#"{"detail":"Not Found"}"#, None, "Not Found"),
            (r#"{"message":"m"}"#, None, "m"),
            (r#"{"code":"not_found","message":"m"}"#, Some("not_found"), "m"),
            (r#"{"code":404,"message":"m"}"#, Some("404"), "m"),
            (r#"{"code":404}"#, None, r#"{"code":404}"#),
            ("<h1>Bad gateway</h1>\n", None, "<h1>Bad gateway</h1>"),
            ("", None, "no explanation"),
            (r#"{"error":{}}"#, None, "no explanation"),
        ] {
            let told = Complaint::read(body.as_bytes());
            assert_eq!((told.code.as_deref(), told.message.as_str()), (code, message), "{body}");
        }
        assert!(!Complaint::read(b"\xFF\xFE\x00").is_error);
    }
}
