//! A strict reader of scripts in JSON. An error names the position of the fault.

use std::time::Duration;

use serde_json::{Map, Value};

use super::{Authorization, Conversation, Events, Script, Turn, When, usage};
use crate::{Fault, Malformed, MockError};

/// Limit of a script, in bytes.
const LONGEST: usize = 16 << 20;

type Read<T> = Result<T, MockError>;

pub(super) fn script(text: &str) -> Read<Script> {
    if text.len() > LONGEST {
        return Err(MockError::script("script", format!("it is longer than {LONGEST} bytes")));
    }
    let value = serde_json::from_str(text).map_err(MockError::Json)?;
    let mut fields = Fields::new("", value)?;
    let mut script = Script::new();
    if let Some((place, turns)) = fields.list("turns")? {
        script = script.conversation(Conversation { turns: each(&place, turns, turn)?, ..Conversation::new() });
    }
    if let Some((place, conversations)) = fields.list("conversations")? {
        if !script.conversations.is_empty() {
            return Err(MockError::script(place, "a script has either turns or conversations"));
        }
        script.conversations = each(&place, conversations, conversation)?;
    }
    script.closing = fields.text("closing")?;
    script.authorization = match fields.take("authorization") {
        None | Some((_, Value::Bool(false) | Value::Null)) => Authorization::Optional,
        Some((_, Value::Bool(true))) => Authorization::AnyKey,
        Some((_, Value::String(key))) => Authorization::Key(key),
        Some((place, _)) => return Err(MockError::script(place, "it is true, false, or the key")),
    };
    script.events = match fields.text("events")?.as_deref() {
        None | Some("full") => Events::Full,
        Some("minimal") => Events::Minimal,
        Some(_) => return Err(MockError::script("events", "it is \"full\" or \"minimal\"")),
    };
    if let Some(characters) = fields.number("delta_chars")? {
        script = script.delta_chars(size(characters));
    }
    fields.end()?;
    Ok(script)
}

fn each<T>(place: &str, values: Vec<Value>, read: impl Fn(String, Value) -> Read<T>) -> Read<Vec<T>> {
    values.into_iter().enumerate().map(|(at, value)| read(format!("{place}[{at}]"), value)).collect()
}

fn conversation(place: String, value: Value) -> Read<Conversation> {
    let mut fields = Fields::new(&place, value)?;
    let name = fields.text("name")?;
    let when = match fields.take("when") {
        Some((place, value)) => when(&place, value)?,
        None => When::any(),
    };
    let Some((turns_place, turns)) = fields.list("turns")? else {
        return Err(MockError::script(place, "a conversation has turns"));
    };
    fields.end()?;
    Ok(Conversation { name, when, turns: each(&turns_place, turns, turn)? })
}

fn when(place: &str, value: Value) -> Read<When> {
    let mut fields = Fields::new(place, value)?;
    let when = When {
        last_user: fields.text("last_user")?,
        tool: fields.text("tool")?,
        model: fields.text("model")?,
        instructions: fields.text("instructions")?,
    };
    fields.end()?;
    Ok(when)
}

fn turn(place: String, value: Value) -> Read<Turn> {
    let mut fields = Fields::new(&place, value)?;
    let Some((_, output)) = fields.list("output")? else {
        return Err(MockError::script(place, "a turn has an output"));
    };
    let mut turn = Turn::new(output);
    if let Some((place, value)) = fields.take("usage") {
        turn.usage = tokens(&place, value)?;
    }
    if let Some((place, faults)) = fields.list("faults")? {
        turn.faults = each(&place, faults, fault)?;
    }
    fields.end()?;
    Ok(turn)
}

/// Usage: a complete object, only the numbers of input and output tokens, or null.
fn tokens(place: &str, value: Value) -> Read<Value> {
    let Value::Object(given) = value else {
        return if value.is_null() { Ok(value) } else { Err(MockError::script(place, "it is an object or null")) };
    };
    let number = |key: &str| given.get(key).and_then(Value::as_u64);
    let mut whole = usage(number("input_tokens").unwrap_or(0), number("output_tokens").unwrap_or(0));
    for (key, value) in given {
        let known = whole.get_mut(&key).filter(|known| known.is_u64() == value.is_u64());
        *known.ok_or_else(|| MockError::script(format!("{place}.{key}"), "it is not part of usage"))? = value;
    }
    Ok(whole)
}

fn fault(place: String, value: Value) -> Read<Fault> {
    if value.is_null() {
        return Ok(Fault::None);
    }
    let mut fields = Fields::new(&place, value)?;
    let Some(kind) = fields.text("type")? else { return Err(MockError::script(place, "a fault has a type")) };
    let fault = match kind.as_str() {
        "none" => Fault::None,
        "status" => status(&mut fields)?,
        "delay" => Fault::Delay(fields.pause("ms")?),
        "slow" => Fault::Slow { bytes: size(fields.needed("bytes")?), every: fields.pause("every_ms")? },
        "cut_after_events" => Fault::CutAfterEvents(size(fields.needed("events")?)),
        "cut_after_bytes" => Fault::CutAfterBytes(size(fields.needed("bytes")?)),
        "failed" => Fault::Failed { code: fields.code()?, message: fields.message()? },
        "error_event" => Fault::ErrorEvent { code: fields.code()?, message: fields.message()? },
        "incomplete" => {
            Fault::Incomplete { reason: fields.text("reason")?.unwrap_or_else(|| "max_output_tokens".to_owned()) }
        }
        "empty" => Fault::Empty,
        "hang" => Fault::Hang,
        "content_type" => Fault::ContentType(fields.text("value")?.unwrap_or_else(|| "text/html".to_owned())),
        other => match malformed(other, &mut fields)? {
            Some(how) => Fault::Malformed(how),
            None => return Err(MockError::script(format!("{place}.type"), format!("there is no fault {other:?}"))),
        },
    };
    fields.end()?;
    Ok(fault)
}

fn malformed(kind: &str, fields: &mut Fields) -> Read<Option<Malformed>> {
    Ok(Some(match kind {
        "garbage_line" => Malformed::GarbageLine,
        "invalid_json" => Malformed::InvalidJson,
        "invalid_utf8" => Malformed::InvalidUtf8,
        "split" => Malformed::Split,
        "crlf" => Malformed::Crlf,
        "comments" => Malformed::Comments,
        "no_final_blank" => Malformed::NoFinalBlank,
        "oversized_line" => Malformed::OversizedLine(size(fields.needed("bytes")?)),
        _ => return Ok(None),
    }))
}

fn status(fields: &mut Fields) -> Read<Fault> {
    let status = u16::try_from(fields.needed("status")?).unwrap_or(0);
    let mut headers = Vec::new();
    if let Some((place, value)) = fields.take("headers") {
        let Value::Object(given) = value else { return Err(MockError::script(place, "it is an object of strings")) };
        for (name, value) in given {
            let Value::String(value) = value else {
                return Err(MockError::script(format!("{place}.{name}"), "it is a string"));
            };
            headers.push((name, value));
        }
    }
    Ok(Fault::Status { status, headers, body: fields.take("body").map(|(_, body)| body) })
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Fields of an object that were not read yet.
struct Fields {
    place: String,
    left: Map<String, Value>,
}

impl Fields {
    fn new(place: &str, value: Value) -> Read<Self> {
        match value {
            Value::Object(left) => Ok(Self { place: place.to_owned(), left }),
            _ if place.is_empty() => Err(MockError::script("script", "it is an object")),
            _ => Err(MockError::script(place, "it is an object")),
        }
    }

    fn at(&self, key: &str) -> String {
        if self.place.is_empty() { key.to_owned() } else { format!("{}.{key}", self.place) }
    }

    fn take(&mut self, key: &str) -> Option<(String, Value)> {
        self.left.shift_remove(key).map(|value| (self.at(key), value))
    }

    fn text(&mut self, key: &str) -> Read<Option<String>> {
        match self.take(key) {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text)),
            Some((place, _)) => Err(MockError::script(place, "it is a string")),
        }
    }

    fn list(&mut self, key: &str) -> Read<Option<(String, Vec<Value>)>> {
        match self.take(key) {
            None => Ok(None),
            Some((place, Value::Array(list))) => Ok(Some((place, list))),
            Some((place, _)) => Err(MockError::script(place, "it is a list")),
        }
    }

    fn number(&mut self, key: &str) -> Read<Option<u64>> {
        match self.take(key) {
            None => Ok(None),
            Some((place, value)) => match value.as_u64() {
                Some(number) => Ok(Some(number)),
                None => Err(MockError::script(place, "it is a whole number")),
            },
        }
    }

    fn needed(&mut self, key: &str) -> Read<u64> {
        self.number(key)?.ok_or_else(|| MockError::script(self.at(key), "it is missing"))
    }

    fn pause(&mut self, key: &str) -> Read<Duration> {
        self.needed(key).map(Duration::from_millis)
    }

    fn code(&mut self) -> Read<String> {
        Ok(self.text("code")?.unwrap_or_else(|| "server_error".to_owned()))
    }

    fn message(&mut self) -> Read<String> {
        Ok(self.text("message")?.unwrap_or_else(|| "The model failed.".to_owned()))
    }

    fn end(self) -> Read<()> {
        match self.left.keys().next() {
            Some(key) => Err(MockError::script(self.at(key), "there is no such key")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::item;

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
        for (given, place) in [
            (json!([]), "script: it is an object"),
            (json!({"turn": []}), "turn: there is no such key"),
            (json!({"turns": [], "conversations": []}), "conversations: a script has either turns or conversations"),
            (json!({"turns": {}}), "turns: it is a list"),
            (json!({"turns": [{}]}), "turns[0]: a turn has an output"),
            (json!({"turns": [{"output": [], "x": 1}]}), "turns[0].x: there is no such key"),
            (
                json!({"turns": [{"output": [], "usage": {"tokens": 1}}]}),
                "turns[0].usage.tokens: it is not part of usage",
            ),
            (json!({"turns": [{"output": [], "faults": [{}]}]}), "turns[0].faults[0]: a fault has a type"),
            (
                json!({"turns": [{"output": [], "faults": [{"type": "odd"}]}]}),
                "turns[0].faults[0].type: there is no fault \"odd\"",
            ),
            (json!({"turns": [{"output": [], "faults": [{"type": "delay"}]}]}), "turns[0].faults[0].ms: it is missing"),
            (
                json!({"turns": [{"output": [], "faults": [{"type": "hang", "ms": 1}]}]}),
                "turns[0].faults[0].ms: there is no such key",
            ),
            (
                json!({"conversations": [{"turns": [], "when": {"tools": "x"}}]}),
                "conversations[0].when.tools: there is no such key",
            ),
            (json!({"conversations": [{}]}), "conversations[0]: a conversation has turns"),
            (json!({"events": "some"}), "events: it is \"full\" or \"minimal\""),
            (json!({"delta_chars": "2"}), "delta_chars: it is a whole number"),
        ] {
            let error = script(&given.to_string()).unwrap_err().to_string();
            assert_eq!(error, format!("the script is not usable: {place}"), "{given}");
        }
        assert!(matches!(script("{").unwrap_err(), MockError::Json(_)));
        assert!(script(&" ".repeat(LONGEST + 1)).is_err());
    }
}
