//! The formats of requests as JSON Schemas (`wire.json`), and the part of JSON Schema that they use.
//!
//! `discriminator` is OpenAPI's: a property chooses the schema. Its `default` counts if the property is absent.

use std::{fmt, sync::LazyLock};

use serde_json::Value;

use crate::{play::Play, refusal::Refusal};

static WIRE: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("wire.json")).unwrap_or(Value::Bool(false)));

/// Position in a request. The text is made only for a refusal: transcripts are long, and most are valid.
enum Pointer<'p> {
    Body,
    Key(&'p Pointer<'p>, &'p str),
    Index(&'p Pointer<'p>, usize),
}

impl fmt::Display for Pointer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body => Ok(()),
            Self::Key(Self::Body, key) => f.write_str(key),
            Self::Key(outer, key) => write!(f, "{outer}.{key}"),
            Self::Index(outer, at) => write!(f, "{outer}[{at}]"),
        }
    }
}

/// Checks the body of a request against the schema with this name.
pub(super) fn check(format: &str, body: &Value, play: &Play) -> Result<(), Refusal> {
    if !body.is_object() {
        return Err(Refusal::bare(400, "We could not parse the JSON body of your request: expected an object."));
    }
    Walk { play }.value(&WIRE["$defs"][format], body, &Pointer::Body)
}

struct Walk<'w> {
    play: &'w Play,
}

impl Walk<'_> {
    fn value(&self, schema: &Value, value: &Value, place: &Pointer<'_>) -> Result<(), Refusal> {
        if schema.is_null() {
            return Ok(());
        }
        if let Some(target) = schema["$ref"].as_str() {
            let target = WIRE.pointer(target.trim_start_matches('#'));
            self.value(target.unwrap_or(&Value::Bool(false)), value, place)?;
        }
        scalar(schema, value, place)?;
        if let Some(key) = texts(&schema["required"]).find(|key| is_absent(value, key)) {
            return Err(Refusal::lacks(&Pointer::Key(place, key).to_string()));
        }
        let alternatives = schema["anyOf"].as_array().into_iter().flatten();
        let mut failures = alternatives.map(|schema| self.value(schema, value, place));
        // The first alternative is the usual one, so its failure is reported.
        if let Some(Err(first)) = failures.next()
            && failures.all(|outcome| outcome.is_err())
        {
            return Err(first);
        }
        for (key, inner) in value.as_object().into_iter().flatten() {
            let schema = schema["properties"].get(key).unwrap_or(&schema["additionalProperties"]);
            let place = Pointer::Key(place, key);
            if schema == &Value::Bool(false) {
                return Err(Refusal::invalid(place.to_string(), format!("Unknown parameter: '{place}'."))
                    .code("unknown_parameter"));
            }
            if !inner.is_null() {
                self.value(schema, inner, &place)?;
            }
        }
        self.items(schema, value, place)?;
        self.variant(&schema["discriminator"], value, place)
    }

    fn items(&self, schema: &Value, value: &Value, place: &Pointer<'_>) -> Result<(), Refusal> {
        let Some(items) = value.as_array() else { return Ok(()) };
        if schema["minItems"].as_u64().is_some_and(|least| (items.len() as u64) < least) {
            return Err(Refusal::lacks(&place.to_string()));
        }
        if let Some(most) = schema["maxItems"].as_u64().filter(|most| items.len() as u64 > *most) {
            return Err(Refusal::invalid(place.to_string(), format!("Array too long: at most {most} items.")));
        }
        let mut numbered = items.iter().enumerate();
        numbered.try_for_each(|(at, item)| self.value(&schema["items"], item, &Pointer::Index(place, at)))
    }

    /// Checks a value against the schema that its discriminator names.
    fn variant(&self, choice: &Value, value: &Value, place: &Pointer<'_>) -> Result<(), Refusal> {
        let Some(key) = choice["propertyName"].as_str() else { return Ok(()) };
        let place_of_kind = Pointer::Key(place, key);
        let given = value.get(key).unwrap_or(&choice["default"]);
        let kind = given.as_str().ok_or_else(|| Refusal::lacks(&place_of_kind.to_string()))?;
        match choice["mapping"].get(kind) {
            Some(schema) => self.value(schema, value, place),
            // Every kind that the script contains is allowed.
            None if self.play.has_item(value) => Ok(()),
            None => {
                let kinds = choice["mapping"].as_object().into_iter().flatten().map(|(kind, _)| kind.as_str());
                Err(unsupported(given, kinds, &place_of_kind))
            }
        }
    }
}

/// Checks the type of a value, and the value itself.
fn scalar(schema: &Value, value: &Value, place: &Pointer<'_>) -> Result<(), Refusal> {
    let expected = |what: String| {
        let message = format!("Invalid value for '{place}': expected {what}.");
        Err(Refusal::invalid(place.to_string(), message).code("invalid_type"))
    };
    let types: Vec<&str> = texts(&schema["type"]).collect();
    if !types.is_empty() && !types.iter().any(|name| is_of_type(value, name)) {
        return expected(types.iter().map(|name| with_article(name)).collect::<Vec<_>>().join(" or "));
    }
    let is_listed = |listed: &Vec<Value>| listed.contains(value);
    if schema["enum"].as_array().is_some_and(|listed| !is_listed(listed)) {
        return Err(unsupported(value, texts(&schema["enum"]), place));
    }
    let (least, most) = (&schema["minimum"], &schema["maximum"]);
    let Some(number) = value.as_f64() else { return Ok(()) };
    let is_low = least.as_f64().is_some_and(|least| number < least);
    let is_high = most.as_f64().is_some_and(|most| number > most);
    match most {
        _ if !is_low && !is_high => Ok(()),
        Value::Null => expected(format!("a value >= {least}")),
        most => expected(format!("a value between {least} and {most}")),
    }
}

fn unsupported<'k>(value: &Value, known: impl Iterator<Item = &'k str>, place: &Pointer<'_>) -> Refusal {
    let value = value.as_str().map_or_else(|| value.to_string(), |text| format!("'{text}'"));
    let known = known.collect::<Vec<_>>().join("', '");
    Refusal::invalid(place.to_string(), format!("Invalid value: {value}. Supported values are: '{known}'."))
}

fn is_absent(value: &Value, key: &str) -> bool {
    value.as_object().is_some_and(|fields| fields.get(key).is_none_or(Value::is_null))
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "array" => value.is_array(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "object" => value.is_object(),
        "string" => value.is_string(),
        _ => false,
    }
}

fn with_article(name: &str) -> String {
    let article = if name.starts_with(['a', 'i', 'o']) { "an" } else { "a" };
    format!("{article} {name}")
}

/// The strings of a list, or the only string.
fn texts(value: &Value) -> impl Iterator<Item = &str> {
    let list = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    list.iter().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYWORDS: &[&str] = &[
        "$ref",
        "additionalProperties",
        "anyOf",
        "discriminator",
        "enum",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "properties",
        "required",
        "type",
    ];

    /// Every schema below a schema.
    fn schemas<'s>(schema: &'s Value, found: &mut Vec<&'s Value>) {
        found.push(schema);
        let maps = [&schema["properties"], &schema["discriminator"]["mapping"]];
        let named = maps.into_iter().filter_map(Value::as_object).flatten().map(|(_, inner)| inner);
        let listed = schema["anyOf"].as_array().into_iter().flatten();
        let single = ["items", "additionalProperties"].into_iter().filter_map(|key| schema.get(key));
        named.chain(listed).chain(single).for_each(|inner| schemas(inner, found));
    }

    #[test]
    fn the_schemas_use_only_what_is_checked() {
        let definitions = WIRE["$defs"].as_object().unwrap();
        for format in ["responses", "compact", "conversation", "conversation_items", "chat"] {
            assert!(definitions.contains_key(format), "{format}");
        }
        let mut found = Vec::new();
        definitions.values().for_each(|schema| schemas(schema, &mut found));
        for schema in found {
            let keywords = schema.as_object().into_iter().flatten().map(|(keyword, _)| keyword.as_str());
            let unknown: Vec<&str> = keywords.filter(|keyword| !KEYWORDS.contains(keyword)).collect();
            assert_eq!((schema.is_object() || *schema == Value::Bool(false), unknown), (true, vec![]), "{schema}");
            for name in texts(&schema["type"]) {
                let samples = [Value::Null, "".into(), 1.into(), 1.5.into(), true.into(), vec![0].into(), WIRE.clone()];
                assert!(samples.iter().any(|sample| is_of_type(sample, name)), "{name}");
            }
            if let Some(target) = schema["$ref"].as_str() {
                assert!(WIRE.pointer(target.strip_prefix('#').unwrap()).is_some(), "{target}");
            }
        }
    }
}
