//! Decodes JSON that a model wrote. Errors contain the JSON pointer of the value that does not fit.

use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_path_to_error::{Path, Segment};

/// Limits of the error message, in bytes: it may quote what the model wrote.
const REASON: usize = 400;
const LOCATION: usize = 200;

/// Why a text cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    /// The text is not JSON.
    #[error("not valid JSON: {0}")]
    Syntax(String),
    /// The JSON does not match the type.
    #[error("{}{reason}", if .at.is_empty() { String::new() } else { format!("{}: ", .at) })]
    Shape {
        /// JSON pointer.
        at: String,
        /// What is wrong at that position.
        reason: String,
    },
}

/// Decodes a text.
pub(crate) fn decode<T: DeserializeOwned>(text: &str) -> Result<T, DecodeError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| decode_error(error.inner(), &pointer(error.path())))?;
    reader.end().map_err(|error| decode_error(&error, ""))?;
    Ok(value)
}

fn decode_error(error: &serde_json::Error, at: &str) -> DecodeError {
    let whole = error.to_string();
    if error.classify() != Category::Data {
        return DecodeError::Syntax(shortened(&whole, REASON));
    }
    let position = format!(" at line {} column {}", error.line(), error.column());
    let reason = shortened(whole.strip_suffix(&position).unwrap_or(&whole), REASON);
    DecodeError::Shape { at: shortened(at, LOCATION), reason }
}

/// JSON pointer of a path.
fn pointer(path: &Path) -> String {
    let steps = path.iter().map(|step| format!("/{}", step_name(step).replace('~', "~0").replace('/', "~1")));
    steps.collect()
}

fn step_name(step: &Segment) -> String {
    match step {
        Segment::Seq { index } => index.to_string(),
        Segment::Map { key } | Segment::Enum { variant: key } => key.clone(),
        Segment::Unknown => "?".to_owned(),
    }
}

/// The text, or its two ends.
pub(super) fn shortened(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    // A serde error begins with what was found and ends with what was expected.
    let head = text.floor_char_boundary(limit / 2);
    let tail = text.ceil_char_boundary(text.len() - limit / 2);
    format!("{}…{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only decoded")]
    struct Order {
        city: String,
        #[serde(default)]
        parts: Vec<Part>,
        kind: Option<Kind>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only decoded")]
    struct Part {
        count: u8,
        #[serde(rename = "a/b~c", default)]
        odd: u8,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Small,
        Large,
    }

    fn error(text: &str) -> String {
        decode::<Order>(text).unwrap_err().to_string()
    }

    #[test]
    fn an_error_says_where_and_what() {
        for (text, expected) in [
            (r#"{"city": 5}"#, "/city: invalid type: integer `5`, expected a string"),
            (r#"{"parts": []}"#, "missing field `city`"),
            (
                "{\n \"city\": \"x\",\n \"parts\": [{\"count\": 1}, {\"count\": -1}]}",
                "/parts/1/count: invalid value: integer `-1`, expected u8",
            ),
            (r#"{"city": "x", "parts": [{"count": 1}, {}]}"#, "/parts/1: missing field `count`"),
            (r#"{"city": "x", "parts": {}}"#, "/parts: invalid type: map, expected a sequence"),
            (
                r#"{"city": "x", "parts": [{"count": 1, "a/b~c": "\"}"}]}"#,
                "/parts/0/a~1b~0c: invalid type: string \"\\\"}\", expected u8",
            ),
            (r#"{"city": "x", "kind": "huge"}"#, "/kind: unknown variant `huge`, expected `small` or `large`"),
            (r#"{"town": "x"}"#, "/town: unknown field `town`, expected one of `city`, `parts`, `kind`"),
            (r#"{"city": "ü", "parts": ["é"]}"#, "/parts/0: invalid type: string \"é\", expected struct Part"),
            (r#"{"city": "x""#, "not valid JSON: EOF while parsing an object at line 1 column 12"),
        ] {
            assert_eq!(error(text), expected, "{text}");
        }
    }

    #[test]
    fn what_the_model_wrote_is_not_repeated_at_length() {
        let text = format!(r#"{{"city": "x", "parts": "{}"}}"#, "ü".repeat(100_000));
        let error = error(&text);
        assert!(error.len() < 1000 && error.ends_with("expected a sequence"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn any_text_gives_an_error_and_no_panic(text in r#"[{}\[\]",:a1\\ \nü]{0,40}"#) {
            let _whatever_it_is = decode::<Vec<Part>>(&text);
        }
    }
}
