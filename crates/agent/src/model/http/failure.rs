//! What a server says when it refuses: its error, when to come back, and nothing that must stay secret.

use std::time::Duration;

use jiff::{Timestamp, fmt::rfc2822};
use reqwest::header::HeaderMap;
use serde_json::Value;

/// How much of a message is kept.
const LONGEST_MESSAGE: usize = 1000;

/// What a server says about an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    pub(super) code: Option<String>,
    pub(super) message: String,
    /// Whether it is an error in one of the known forms, or any text at all.
    pub(super) is_error: bool,
}

impl Complaint {
    /// Reads the known forms: `{"error":{"message","code","type"}}`, `{"error":"…"}`, `{"message"}`, `{"detail"}`, and the
    /// same in a list; anything else is taken as text.
    pub(super) fn read(body: &[u8]) -> Self {
        let parsed = serde_json::from_slice::<Value>(body).ok();
        let object = parsed.as_ref().map(|value| value.get(0).unwrap_or(value));
        if let Some(error) = object.and_then(|object| object.get("error")).filter(|error| !error.is_null()) {
            let (code, message) = error_parts(error);
            return Self { code, message, is_error: true };
        }
        let said = ["message", "detail"].iter().find_map(|name| object?.get(*name)?.as_str());
        let message = match said {
            Some(message) => message.to_owned(),
            None => String::from_utf8_lossy(body).trim().to_owned(),
        };
        let message = if message.is_empty() { "no explanation".to_owned() } else { message };
        Self { code: None, message, is_error: false }
    }
}

/// Code and message of an error, in whichever of its forms.
pub(in crate::model) fn error_parts(error: &Value) -> (Option<String>, String) {
    let text = |name: &str| match error.get(name)? {
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let code = text("code").or_else(|| text("type").filter(|kind| kind != "error"));
    let message = error.as_str().map(str::to_owned).or_else(|| text("message"));
    let message = message.or_else(|| code.clone()).unwrap_or_else(|| "no explanation".to_owned());
    (code, message)
}

/// When the server wants to be asked again: milliseconds, seconds or a date. What lies in the past is no wish.
pub(super) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |name| text(name)?.parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|millis| millis / 1000.0).or_else(|| number("retry-after"));
    let seconds = seconds.or_else(|| {
        let date = rfc2822::DateTimeParser::new().parse_timestamp(text("retry-after")?).ok()?;
        Some(date.duration_since(now).as_secs_f64())
    });
    // A wish beyond any patience is still a wish: it must not turn into none.
    let seconds = seconds.filter(|seconds| *seconds > 0.0)?.min(1e9);
    Duration::try_from_secs_f64(seconds).ok()
}

/// What the server says about trying again.
pub(super) fn should_retry(headers: &HeaderMap) -> Option<bool> {
    match headers.get("x-should-retry")?.to_str().ok()? {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// What must appear in no message, even if a server repeats it.
pub(super) struct Redaction(Vec<String>);

impl Redaction {
    pub(super) fn new(mut secrets: Vec<String>) -> Self {
        // What is as short as a word would make messages unreadable, and is no secret worth the name.
        secrets.retain(|secret| secret.len() >= 6);
        // A secret that contains another goes first, or its rest would stay.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(secrets)
    }

    /// One line that can be shown: bounded, without control characters, without secrets.
    pub(super) fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.0 {
            if text.contains(secret) {
                text = text.replace(secret, "[secret]");
            }
        }
        let mut clean: String =
            text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(LONGEST_MESSAGE).collect();
        if clean.len() < text.len() && text.chars().nth(LONGEST_MESSAGE).is_some() {
            clean.push('…');
        }
        clean
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
            ("<h1>Bad gateway</h1>\n", None, "<h1>Bad gateway</h1>"),
            ("", None, "no explanation"),
            (r#"{"error":{}}"#, None, "no explanation"),
        ] {
            let told = Complaint::read(body.as_bytes());
            assert_eq!((told.code.as_deref(), told.message.as_str()), (code, message), "{body}");
        }
        Complaint::read(b"\xFF\xFE\x00");
    }

    #[test]
    fn a_server_can_say_when_in_three_ways() {
        let now: Timestamp = "2015-10-21T07:28:00Z".parse().expect("a time");
        for (name, value, expected) in [
            ("retry-after-ms", "1500", Some(1500)),
            ("retry-after", "2", Some(2000)),
            ("retry-after", "0.25", Some(250)),
            ("retry-after", "Wed, 21 Oct 2015 07:28:07 GMT", Some(7000)),
            ("retry-after", "Wed, 21 Oct 2015 07:27:00 GMT", None),
            ("retry-after", "0", None),
            ("retry-after", "-3", None),
            ("retry-after", "soon", None),
            ("retry-after", "NaN", None),
            ("retry-after", "1e300", Some(1_000_000_000_000)),
        ] {
            let headers = HeaderMap::from_iter([(name.parse().expect("a name"), value.parse().expect("a value"))]);
            let wait = retry_after(&headers, now).map(|wait| wait.as_millis());
            assert_eq!(wait, expected, "{name}: {value}");
        }
    }

    #[test]
    fn secrets_never_come_back_in_a_message() {
        let redaction = Redaction::new(vec!["sk-123456".to_owned(), "sk-123456-extra".to_owned(), "a".to_owned()]);
        assert_eq!(redaction.clean("bad key\nsk-123456-extra!"), "bad key [secret]!");
        assert_eq!(redaction.clean(&"é".repeat(5000)).chars().count(), LONGEST_MESSAGE + 1);
    }
}
