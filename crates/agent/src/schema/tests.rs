//! Tests of the strict form of schemas.

use std::collections::HashMap;

use proptest::prelude::*;
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::*;

#[test]
fn each_rule_of_the_strict_form_holds() {
    for (rule, schema, expected) in [
        (
            "nothing becomes a closed empty object",
            json!({}),
            json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": false }),
        ),
        (
            "all is required, at every level",
            json!({ "type": "object", "required": ["a"], "properties": {
                "a": { "type": "string" },
                "b": { "type": "object", "properties": { "c": { "type": ["string", "null"] } } } } }),
            json!({ "type": "object", "required": ["a", "b"], "additionalProperties": false, "properties": {
                "a": { "type": "string" },
                "b": { "type": "object", "properties": { "c": { "type": ["string", "null"] } },
                    "required": ["c"], "additionalProperties": false } } }),
        ),
        (
            "one of becomes any of, after what was any of",
            object(json!({ "anyOf": [{ "type": "null" }], "oneOf": [{ "type": "object", "properties": {} }] })),
            closed(json!({ "anyOf": [{ "type": "null" },
                { "type": "object", "properties": {}, "required": [], "additionalProperties": false }] })),
        ),
        (
            "an allOf of one is merged",
            object(json!({ "description": "d", "allOf": [{ "type": "string" }] })),
            closed(json!({ "description": "d", "type": "string" })),
        ),
        (
            "an allOf of two stays",
            object(json!({ "allOf": [{ "type": "object" }, { "type": "object" }] })),
            closed(json!({ "allOf": [{ "type": "object", "additionalProperties": false },
                { "type": "object", "additionalProperties": false }] })),
        ),
        (
            "null defaults go, others stay",
            json!({ "type": "object", "properties": {
                "a": { "type": ["string", "null"], "default": null }, "b": { "type": "integer", "default": 1 } } }),
            json!({ "type": "object", "required": ["a", "b"], "additionalProperties": false, "properties": {
                "a": { "type": ["string", "null"] }, "b": { "type": "integer", "default": 1 } } }),
        ),
        (
            "items are converted",
            object(json!({ "type": "array", "items": { "type": "object" } })),
            closed(json!({ "type": "array", "items": { "type": "object", "additionalProperties": false } })),
        ),
        (
            "an object is one by its properties",
            json!({ "properties": { "a": { "type": "string" } } }),
            closed(json!({ "type": "string" })),
        ),
        (
            "an object that may be null is closed too",
            object(json!({ "type": ["object", "null"] })),
            closed(json!({ "type": ["object", "null"], "additionalProperties": false })),
        ),
    ] {
        assert_eq!(strict(&schema), Ok(expected), "{rule}");
    }
}

#[test]
fn references_stay_unless_something_stands_beside_them() {
    let with = |part: Value| {
        json!({ "type": "object", "properties": { "a": part },
            "$defs": { "A/B": { "type": "object", "properties": { "x": { "type": "string" } } } } })
    };
    let plain = strict(&with(json!({ "$ref": "#/$defs/A~1B" }))).unwrap();
    assert_eq!(plain["properties"]["a"], json!({ "$ref": "#/$defs/A~1B" }));
    assert_eq!(plain["$defs"]["A/B"]["additionalProperties"], false);
    let target = json!({ "type": "object", "properties": { "x": { "type": "string" } }, "required": ["x"],
        "additionalProperties": false, "description": "the a" });
    for beside in [
        json!({ "$ref": "#/$defs/A~1B", "description": "the a" }),
        json!({ "allOf": [{ "$ref": "#/$defs/A~1B" }], "description": "the a" }),
        json!({ "$ref": "#/%24defs/A~1B", "description": "the a", "default": null }),
    ] {
        assert_eq!(strict(&with(beside.clone())).unwrap()["properties"]["a"], target, "{beside}");
    }
    let at_root = json!({ "$ref": "#/$defs/A", "$defs": { "A": { "type": "object" } } });
    assert_eq!(strict(&at_root).unwrap()["type"], "object");
}

#[test]
fn a_reference_must_lead_to_a_part_that_stays_where_it_is() {
    let schema = |target: &str| {
        json!({ "type": "object", "properties": {
            "choice": { "anyOf": [{ "type": "null" }, { "type": "object" }] },
            "list": { "type": "array", "items": { "type": "string" } },
            "both": { "allOf": [{ "type": "object" }, { "type": "object" }] },
            "one": { "oneOf": [{ "type": "null" }] },
            "only": { "allOf": [{ "type": "null" }] },
            "again": { "$ref": target },
        } })
    };
    for (target, leads) in [
        ("#", true),
        ("#/properties/choice", true),
        ("#/properties/choice/anyOf/1", true),
        ("#/properties/choice/anyOf/2", false),
        ("#/properties/list/items", true),
        ("#/properties/both/allOf/0", true),
        ("#/properties/one/oneOf/0", false),
        ("#/properties/only/allOf/0", false),
        ("#/properties", false),
        ("#/properties/", false),
        ("#anchor", false),
        ("", false),
    ] {
        assert_eq!(strict(&schema(target)).is_ok(), leads, "{target}");
    }
}

#[test]
fn what_contains_itself_ends() {
    let tree = json!({ "$ref": "#/$defs/T", "$defs": { "T": { "type": "object", "properties": {
        "left": { "$ref": "#/$defs/T", "description": "smaller" }, "right": { "$ref": "#/$defs/T" } } } } });
    let strict = strict(&tree).unwrap();
    assert_eq!(strict["$defs"]["T"]["properties"]["left"]["description"], "smaller");
    assert_eq!(strict["$defs"]["T"]["properties"]["left"]["properties"]["left"], json!({ "$ref": "#/$defs/T" }));
}

#[test]
fn what_cannot_be_strict_is_told_with_its_place() {
    for (schema, at, fault) in [
        (object(json!(true)), "/properties/a", SchemaFault::Anything),
        (object(json!({ "description": "d" })), "/properties/a", SchemaFault::Anything),
        (object(json!(5)), "/properties/a", SchemaFault::NotASchema),
        (object(json!({ "type": "object", "additionalProperties": true })), "/properties/a", SchemaFault::OpenObject),
        (
            object(json!({ "anyOf": [{ "type": "null" }, { "type": "object", "additionalProperties": {} }] })),
            "/properties/a/anyOf/1",
            SchemaFault::OpenObject,
        ),
        (
            object(
                json!({ "type": "array", "items": { "type": ["object", "null"], "additionalProperties": { "type": "string" } } }),
            ),
            "/properties/a/items",
            SchemaFault::OpenObject,
        ),
        (
            object(json!({ "$ref": "#", "minLength": 1, "title": "t", "pattern": "x" })),
            "/properties/a",
            SchemaFault::RefBeside("`minLength`, `pattern`".to_owned()),
        ),
        (
            object(json!({ "$ref": "#/$defs/None" })),
            "/properties/a",
            SchemaFault::UnknownRef("#/$defs/None".to_owned()),
        ),
        (
            object(json!({ "$ref": "other.json", "title": "t" })),
            "/properties/a",
            SchemaFault::UnknownRef("other.json".to_owned()),
        ),
        (
            object(json!({ "$ref": "#/required/0" })),
            "/properties/a",
            SchemaFault::UnknownRef("#/required/0".to_owned()),
        ),
        (
            object(json!({ "type": "string", "allOf": [{ "type": "integer" }] })),
            "/properties/a",
            SchemaFault::Conflict("type".to_owned()),
        ),
        (
            json!({ "properties": { "x/y": { "type": "object", "additionalProperties": 1 } } }),
            "/properties/x~1y",
            SchemaFault::OpenObject,
        ),
        (json!({ "oneOf": [{ "type": "object" }] }), "", SchemaFault::Root("a choice between several")),
        (json!({ "type": ["object", "null"] }), "", SchemaFault::Root("null")),
        (json!({ "type": "string" }), "", SchemaFault::Root("anything else")),
        (json!("x"), "", SchemaFault::NotASchema),
    ] {
        assert_eq!(strict(&schema), Err(SchemaError { at: at.to_owned(), fault }), "{schema}");
    }
    let error = strict(&json!({ "type": ["object", "null"] })).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the schema cannot be strict: at its root: the root must be an object, and may not be null"
    );
}

#[test]
fn depth_and_size_have_limits() {
    let nested = |levels: usize| {
        (0..levels).fold(json!({ "type": "string" }), |inner, _| json!({ "type": "array", "items": inner }))
    };
    assert!(strict(&object(nested(90))).is_ok());
    assert_eq!(strict(&object(nested(120))).unwrap_err().fault, SchemaFault::TooDeep(100));
    let wide = json!({ "type": "object", "properties": { "a": { "enum": vec![1; 100_001] } } });
    assert_eq!(strict(&wide).unwrap_err().fault, SchemaFault::TooLarge(100_000));
    // Twenty definitions, each of which refers twice to the previous one; all references are inlined.
    let mut definitions = serde_json::Map::new();
    definitions.insert("D0".to_owned(), json!({ "type": "string" }));
    for level in 1..=20 {
        let part = json!({ "$ref": format!("#/$defs/D{}", level - 1), "description": "again" });
        definitions.insert(format!("D{level}"), json!({ "type": "object", "properties": { "a": part, "b": part } }));
    }
    let bomb = json!({ "type": "object", "properties": {}, "$defs": definitions });
    assert_eq!(strict(&bomb).unwrap_err().fault, SchemaFault::TooLarge(100_000));
    // A long text that is inlined many times, and a long name above many parts.
    let part = json!({ "$ref": "#/$defs/Long", "title": "again" });
    let parts: serde_json::Map<String, Value> =
        (0..1000).map(|number: u32| (number.to_string(), part.clone())).collect();
    let long = json!({ "type": "string", "description": "x".repeat(100_000) });
    let wordy = json!({ "type": "object", "properties": parts, "$defs": { "Long": long } });
    assert_eq!(strict(&wordy).unwrap_err().fault, SchemaFault::TooLong(16 << 20));
    let below: serde_json::Map<String, Value> =
        (0..20_000).map(|part| (part.to_string(), json!({ "$ref": "#" }))).collect();
    let named =
        json!({ "type": "object", "properties": { "x".repeat(1 << 20): { "type": "object", "properties": below } } });
    assert!(strict(&named).is_ok());
    let open = json!({ "type": "object", "properties": { "x".repeat(1 << 20): true } });
    assert!(strict(&open).unwrap_err().to_string().len() < 1000);
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema matters")]
struct Report {
    /// What it is about.
    title: String,
    score: f64,
    age: u8,
    when: Option<String>,
    level: Level,
    /// The one before.
    previous: Option<Box<Report>>,
    tags: Vec<Tag>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema matters")]
enum Level {
    Low,
    /// Very much so.
    High,
}

#[derive(JsonSchema)]
#[serde(tag = "kind")]
#[expect(dead_code, reason = "only its schema matters")]
enum Tag {
    Named { name: String },
    Numbered { number: i64 },
}

#[test]
fn the_schema_of_a_type_is_fit_for_strict_servers() {
    let schema = strict(&schema_of::<Report>()).unwrap();
    assert!(schema.get("$schema").is_none() && schema.get("title").is_none(), "{schema}");
    assert!(!schema.to_string().contains("\"format\""), "{schema}");
    assert_eq!(schema["required"], json!(["title", "score", "age", "when", "level", "previous", "tags"]));
    assert_eq!(schema["properties"]["title"], json!({ "description": "What it is about.", "type": "string" }));
    assert_eq!(schema["properties"]["when"]["type"], json!(["string", "null"]));
    assert_eq!(schema["properties"]["previous"]["anyOf"][1], json!({ "type": "null" }));
    assert_eq!(schema["$defs"]["Tag"]["anyOf"].as_array().map(Vec::len), Some(2));
    assert!(!schema.to_string().contains("oneOf"));
}

#[test]
fn maps_and_anything_are_refused_where_they_are() {
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema matters")]
    struct Loose<T> {
        inner: T,
    }
    for (schema, fault) in [
        (schema_of::<Loose<HashMap<String, String>>>(), SchemaFault::OpenObject),
        (schema_of::<Loose<Option<HashMap<String, String>>>>(), SchemaFault::OpenObject),
        (schema_of::<Loose<Value>>(), SchemaFault::Anything),
    ] {
        assert_eq!(strict(&schema), Err(SchemaError { at: "/properties/inner".to_owned(), fault }), "{schema}");
    }
}

fn object(part: Value) -> Value {
    json!({ "type": "object", "properties": { "a": part } })
}

fn closed(part: Value) -> Value {
    json!({ "type": "object", "properties": { "a": part }, "required": ["a"], "additionalProperties": false })
}

/// A random value that resembles a schema.
fn some_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({ "type": "string" })),
        Just(json!({ "$ref": "#/properties/a" })),
        Just(json!({ "$ref": "#", "description": "d" })),
        Just(json!({ "type": "object", "additionalProperties": true })),
        Just(json!(true)),
        Just(json!({ "default": null, "enum": [null] })),
    ];
    leaf.prop_recursive(5, 32, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..3);
        prop_oneof![
            prop::collection::hash_map("[ab~/]", inner.clone(), 0..3)
                .prop_map(|properties| json!({ "type": "object", "properties": properties })),
            list.clone().prop_map(|all| json!({ "allOf": all, "title": "t" })),
            list.clone().prop_map(|all| json!({ "oneOf": all })),
            inner.prop_map(|one| json!({ "type": "array", "items": one })),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_strict_stays_as_it_is(schema in some_schema()) {
        if let Ok(once) = strict(&schema) {
            prop_assert_eq!(strict(&once), Ok(once));
        }
    }
}
