//! Scripts in JSON. An error names the place of the fault in the script.

use std::{collections::BTreeMap, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error},
};
use serde_json::{Map, Value};
use serde_path_to_error::Segment;

use super::{Authorization, Conversation, Events, Script, Turn, usage};
use crate::{Fault, Malformed, MockError};

/// Limit of a script, in bytes.
const LONGEST: usize = 16 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct ScriptFields {
    turns: Option<Vec<Turn>>,
    conversations: Option<Vec<Conversation>>,
    closing: Option<String>,
    authorization: Option<AuthorizationField>,
    events: Option<Events>,
    delta_chars: Option<usize>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "it is true, false, or the key")]
enum AuthorizationField {
    IsNeeded(bool),
    Key(String),
}

/// A fault, below its type. Faults without fields have braces, so that unknown fields are refused.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum FaultFields {
    None {},
    Status {
        status: u16,
        #[serde(default)]
        headers: BTreeMap<String, String>,
        body: Option<Value>,
    },
    Delay {
        ms: u64,
    },
    Slow {
        bytes: usize,
        every_ms: u64,
    },
    CutAfterEvents {
        events: usize,
    },
    CutAfterBytes {
        bytes: usize,
    },
    Failed(ErrorFields),
    ErrorEvent(ErrorFields),
    Incomplete {
        reason: Option<String>,
    },
    Empty {},
    ContentType {
        value: Option<String>,
    },
    Hang {},
    GarbageLine {},
    InvalidJson {},
    InvalidUtf8 {},
    Split {},
    Crlf {},
    Comments {},
    NoFinalBlank {},
    OversizedLine {
        bytes: usize,
    },
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ErrorFields {
    code: String,
    message: String,
}

impl Default for ErrorFields {
    fn default() -> Self {
        Self { code: "server_error".to_owned(), message: "The model failed.".to_owned() }
    }
}

pub(super) fn script(text: &str) -> Result<Script, MockError> {
    if text.len() > LONGEST {
        return Err(MockError::script("script", format!("it is longer than {LONGEST} bytes")));
    }
    let value = serde_json::from_str(text).map_err(MockError::Json)?;
    let fields: ScriptFields = read(value).map_err(|(place, reason)| {
        MockError::script(if place.is_empty() { "script".to_owned() } else { place }, reason)
    })?;
    let mut script = Script { closing: fields.closing, events: fields.events.unwrap_or_default(), ..Script::new() };
    script.conversations = match (fields.turns, fields.conversations) {
        (Some(_), Some(_)) => {
            return Err(MockError::script("conversations", "a script has either turns or conversations"));
        }
        (Some(turns), None) => vec![Conversation { turns, ..Conversation::new() }],
        (None, conversations) => conversations.unwrap_or_default(),
    };
    script.authorization = match fields.authorization {
        None | Some(AuthorizationField::IsNeeded(false)) => Authorization::Optional,
        Some(AuthorizationField::IsNeeded(true)) => Authorization::AnyKey,
        Some(AuthorizationField::Key(key)) => Authorization::Key(key),
    };
    Ok(match fields.delta_chars {
        Some(characters) => script.delta_chars(characters),
        None => script,
    })
}

/// Reads a value. An error is the place in the value, such as `turns[0].usage`, and the reason.
fn read<T: DeserializeOwned>(value: Value) -> Result<T, (String, String)> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        // A variant of an enum is no place in JSON.
        let place: String = error
            .path()
            .iter()
            .filter(|step| !matches!(step, Segment::Enum { .. }))
            .map(|step| if matches!(step, Segment::Map { .. }) { format!(".{step}") } else { step.to_string() })
            .collect();
        (place.trim_start_matches('.').to_owned(), error.into_inner().to_string())
    })
}

/// Usage: a complete object, only the numbers of input and output tokens, or null.
pub(super) fn tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let Some(given) = Option::<Map<String, Value>>::deserialize(deserializer)? else { return Ok(Value::Null) };
    let number = |key: &str| given.get(key).and_then(Value::as_u64);
    let mut whole = usage(number("input_tokens").unwrap_or(0), number("output_tokens").unwrap_or(0));
    for (key, value) in given {
        let known = whole.get_mut(&key).filter(|known| known.is_u64() == value.is_u64());
        *known.ok_or_else(|| D::Error::custom(format!("{key}: it is not part of usage")))? = value;
    }
    Ok(whole)
}

impl<'de> Deserialize<'de> for Fault {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Some(mut fields) = Option::<Map<String, Value>>::deserialize(deserializer)? else { return Ok(Self::None) };
        let kind = fields.shift_remove("type").ok_or_else(|| D::Error::missing_field("type"))?;
        let kind = String::deserialize(kind).map_err(|error| D::Error::custom(format!("type: {error}")))?;
        // serde knows the place of an error below a tag, but not beside one.
        let tagged = Value::Object([(kind, Value::Object(fields))].into_iter().collect());
        read(tagged).map(FaultFields::into).map_err(|(place, reason)| match place.as_str() {
            "" => D::Error::custom(reason),
            place => D::Error::custom(format!("{place}: {reason}")),
        })
    }
}

impl From<FaultFields> for Fault {
    fn from(fields: FaultFields) -> Self {
        match fields {
            FaultFields::None {} => Self::None,
            FaultFields::Status { status, headers, body } => {
                Self::Status { status, headers: headers.into_iter().collect(), body }
            }
            FaultFields::Delay { ms } => Self::Delay(Duration::from_millis(ms)),
            FaultFields::Slow { bytes, every_ms } => Self::Slow { bytes, every: Duration::from_millis(every_ms) },
            FaultFields::CutAfterEvents { events } => Self::CutAfterEvents(events),
            FaultFields::CutAfterBytes { bytes } => Self::CutAfterBytes(bytes),
            FaultFields::Failed(ErrorFields { code, message }) => Self::Failed { code, message },
            FaultFields::ErrorEvent(ErrorFields { code, message }) => Self::ErrorEvent { code, message },
            FaultFields::Incomplete { reason } => {
                Self::Incomplete { reason: reason.unwrap_or_else(|| "max_output_tokens".to_owned()) }
            }
            FaultFields::Empty {} => Self::Empty,
            FaultFields::ContentType { value } => Self::ContentType(value.unwrap_or_else(|| "text/html".to_owned())),
            FaultFields::Hang {} => Self::Hang,
            FaultFields::GarbageLine {} => Self::Malformed(Malformed::GarbageLine),
            FaultFields::InvalidJson {} => Self::Malformed(Malformed::InvalidJson),
            FaultFields::InvalidUtf8 {} => Self::Malformed(Malformed::InvalidUtf8),
            FaultFields::Split {} => Self::Malformed(Malformed::Split),
            FaultFields::Crlf {} => Self::Malformed(Malformed::Crlf),
            FaultFields::Comments {} => Self::Malformed(Malformed::Comments),
            FaultFields::NoFinalBlank {} => Self::Malformed(Malformed::NoFinalBlank),
            FaultFields::OversizedLine { bytes } => Self::Malformed(Malformed::OversizedLine(bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{When, item};

    #[test]
    fn a_script_from_json_is_the_script_from_code() {
        let read = script(
            &json!({
                "conversations": [
                    {"name": "weather", "when": {"tool": "weather", "model": "m"}, "turns": [
                        {"output": [{"type": "message", "content": "sunny"}], "usage": {"input_tokens": 7}},
                    ]},
                    {"turns": [{"output": [], "usage": null, "faults": [
                        null,
                        {"type": "status", "status": 429, "headers": {"retry-after": "1"}, "body": "slow down"},
                        {"type": "slow", "bytes": 3, "every_ms": 5},
                        {"type": "oversized_line", "bytes": 10},
                        {"type": "failed", "code": "c", "message": "m"},
                    ]}]},
                ],
                "closing": "bye", "authorization": "key", "events": "minimal", "delta_chars": 2,
            })
            .to_string(),
        );
        let weather = Conversation::new()
            .name("weather")
            .when(When::any().tool("weather").model("m"))
            .turn(Turn::new([item::text("sunny")]).tokens(7, 0));
        let mut weather = weather;
        weather.turns[0].usage["total_tokens"] = json!(7);
        let rest = Turn::new([])
            .usage(Value::Null)
            .fault(Fault::None)
            .fault(Fault::status(429).header("retry-after", "1").body("slow down"))
            .fault(Fault::Slow { bytes: 3, every: Duration::from_millis(5) })
            .fault(Fault::Malformed(Malformed::OversizedLine(10)))
            .fault(Fault::Failed { code: "c".to_owned(), message: "m".to_owned() });
        let expected = Script::new()
            .conversation(weather)
            .conversation(Conversation::new().turn(rest))
            .closing("bye")
            .authorization(Authorization::Key("key".to_owned()))
            .events(Events::Minimal)
            .delta_chars(2);
        assert_eq!(read.unwrap(), expected);
    }

    #[test]
    fn what_a_script_should_not_say_is_refused_with_its_place() {
        let turn = |fields: Value| json!({"turns": [{"output": []}, fields]});
        let fault = |fields: Value| turn(json!({"output": [], "faults": [fields]}));
        for (given, place) in [
            (json!([]), "script: invalid length 0"),
            (json!(1), "script: invalid type: integer `1`, expected an object"),
            (json!({"turn": []}), "turn: unknown field `turn`, expected one of `turns`, `conversations`"),
            (json!({"turns": [], "conversations": []}), "conversations: a script has either turns or conversations"),
            (json!({"turns": {}}), "turns: invalid type: map, expected a sequence"),
            (json!({"turns": [{}]}), "turns[0]: missing field `output`"),
            (turn(json!({"output": [], "x": 1})), "turns[1].x: unknown field `x`, expected one of `output`, `usage`"),
            (turn(json!({"output": [], "usage": {"tokens": 1}})), "turns[1].usage: tokens: it is not part of usage"),
            (fault(json!({})), "turns[1].faults[0]: missing field `type`"),
            (fault(json!({"type": 1})), "turns[1].faults[0]: type: invalid type: integer `1`, expected a string"),
            (
                fault(json!({"type": "odd"})),
                "turns[1].faults[0]: unknown variant `odd`, expected one of `none`, `status`",
            ),
            (fault(json!({"type": "delay"})), "turns[1].faults[0]: missing field `ms`"),
            (
                fault(json!({"type": "delay", "ms": "1"})),
                "turns[1].faults[0]: ms: invalid type: string \"1\", expected u64",
            ),
            (fault(json!({"type": "hang", "ms": 1})), "turns[1].faults[0]: ms: unknown field `ms`"),
            (
                fault(json!({"type": "status", "status": 500, "headers": {"a": 1}})),
                "turns[1].faults[0]: headers.a: invalid type: integer `1`, expected a string",
            ),
            (
                json!({"conversations": [{"turns": [], "when": {"tools": "x"}}]}),
                "conversations[0].when.tools: unknown field `tools`, expected one of `last_user`",
            ),
            (json!({"conversations": [{}]}), "conversations[0]: missing field `turns`"),
            (json!({"events": "some"}), "events: unknown variant `some`, expected `full` or `minimal`"),
            (json!({"authorization": 1}), "authorization: it is true, false, or the key"),
            (json!({"delta_chars": "2"}), "delta_chars: invalid type: string \"2\", expected usize"),
        ] {
            let error = script(&given.to_string()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("the script is not usable: {place}")), "{given}: {error}");
        }
        assert!(matches!(script("{").unwrap_err(), MockError::Json(_)));
        assert!(script(&" ".repeat(LONGEST + 1)).is_err());
    }
}
