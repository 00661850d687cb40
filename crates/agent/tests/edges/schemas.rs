//! Schemas from untrusted sources.

use std::time::{Duration, Instant};

use sandbar_agent::OutputType;
use serde_json::{Map, Value, json};

#[test]
fn a_schema_that_doubles_at_every_level_is_refused_in_time() {
    let levels = 40;
    let mut defs = Map::new();
    for level in 0..levels {
        let next = format!("#/$defs/d{}", level + 1);
        let child = |text: &str| json!({ "$ref": next, "description": text });
        defs.insert(
            format!("d{level}"),
            json!({ "type": "object", "properties": { "a": child("a"), "b": child("b") } }),
        );
    }
    defs.insert(format!("d{levels}"), json!({ "type": "string" }));
    let mut root = defs["d0"].clone();
    root["$defs"] = Value::Object(defs);
    let began = Instant::now();
    let output = OutputType::by_hand("Bomb", root, |_| Ok(()));
    assert!(output.format().is_err());
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn a_schema_that_leads_back_to_itself_ends() {
    for schema in [
        json!({ "$ref": "#", "description": "x" }),
        json!({ "type": "object", "properties": { "a": { "$ref": "#/properties/a", "description": "x" } } }),
        json!({ "type": "object", "properties": { "a": { "$ref": "#", "description": "x" } } }),
        json!({ "type": "object", "properties": { "a": { "allOf": [{ "$ref": "#/properties/a" }] } } }),
        json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/~1~0/%", "x": 1 } } }),
        json!({ "type": "object", "properties": [] }),
        json!({ "type": "object", "properties": { "a": 1 } }),
        json!({ "type": "object", "required": 5, "anyOf": "x" }),
    ] {
        let output = OutputType::by_hand("Loop", schema, |_| Ok(()));
        let _either_way = output.format().is_err();
    }
}
