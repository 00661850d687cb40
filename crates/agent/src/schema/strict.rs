//! The strict form of a schema: closed objects, nothing optional, every choice an `anyOf`.

use std::{fmt::Write as _, mem};

use indexmap::IndexMap;
use serde_json::{Map, Value, json};

use super::{SchemaError, SchemaFault, decode::shortened};

const DEPTH: usize = 100;
const NODES: usize = 100_000;
/// Limit of the text, because inlined references can multiply it.
const BYTES: usize = 16 << 20;
/// How many bytes of a pointer or a name an error quotes.
const QUOTED: usize = 400;

/// Keywords that may be siblings of a `$ref` because they do not restrict the value.
const BESIDE_REF: &[&str] = &[
    "$anchor",
    "$comment",
    "$defs",
    "$schema",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "default",
    "definitions",
    "deprecated",
    "description",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
];

/// Turns a schema into its strict form.
///
/// Objects are closed and all their properties are required; an optional property can allow null instead. `oneOf` becomes
/// `anyOf`, an `allOf` of one schema is merged, null defaults are removed, and a `$ref` with a description is inlined.
///
/// # Errors
/// When there is no strict form: an object that allows any property, a part without a type, a reference to nothing, a root
/// that is not an object, or more than 100 levels or 100,000 parts.
///
/// ```
/// use sandbar_agent::schema::strict;
/// use serde_json::json;
///
/// let schema = strict(&json!({ "type": "object", "properties": { "a": { "type": "string" } } }))?;
/// assert_eq!(schema["additionalProperties"], false);
/// assert_eq!(schema["required"], json!(["a"]));
///
/// let map = json!({ "type": "object", "properties": { "a": { "type": "object", "additionalProperties": {} } } });
/// assert_eq!(strict(&map).unwrap_err().at, "/properties/a");
/// # Ok::<(), sandbar_agent::schema::SchemaError>(())
/// ```
pub fn strict(schema: &Value) -> Result<Value, SchemaError> {
    if schema.as_object().is_some_and(Map::is_empty) {
        return Ok(json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": false }));
    }
    let mut walk = Walk { root: schema, nodes: 0, bytes: 0, at: String::new(), inlining: Vec::new() };
    let mut schema = walk.schema(schema, 1)?;
    if let Some(what) = unfit_root(&schema) {
        return Err(walk.fault(SchemaFault::Root(what)));
    }
    if let Value::Object(fields) = &mut schema
        && !fields.contains_key("properties")
    {
        fields.insert("properties".to_owned(), json!({}));
        fields.insert("required".to_owned(), json!([]));
    }
    Ok(schema)
}

fn unfit_root(schema: &Value) -> Option<&'static str> {
    if schema.get("anyOf").is_some() {
        return Some("a choice between several");
    }
    if schema.get("$ref").is_some() {
        return Some("a reference");
    }
    if schema["nullable"] == true || types(schema.get("type")).any(|name| name == "null") {
        return Some("null");
    }
    (!types(schema.get("type")).any(|name| name == "object")).then_some("anything else")
}

/// The names under `type`, which is a string or a list.
fn types(value: Option<&Value>) -> impl Iterator<Item = &str> {
    let one = value.and_then(Value::as_str);
    let list = value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    one.into_iter().chain(list)
}

/// The JSON pointer in a reference to the same document.
fn pointer(reference: &str) -> Option<String> {
    let pointer = percent_decoded(reference.strip_prefix('#')?)?;
    (pointer.is_empty() || pointer.starts_with('/')).then_some(pointer)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let high = char::from(rest.next()?).to_digit(16)?;
        let low = char::from(rest.next()?).to_digit(16)?;
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// Whether a pointer leads to a part of the schema that keeps its pointer in the strict form.
fn leads_to_schema(root: &Value, pointer: &str) -> bool {
    let mut schema = root;
    let mut tokens = pointer.split('/').skip(1);
    while let Some(token) = tokens.next() {
        let inside = match (token, schema.get(token)) {
            ("items", Some(items)) => Some(items),
            ("$defs" | "definitions" | "properties", Some(Value::Object(schemas))) => {
                tokens.next().and_then(|name| schemas.get(&name.replace("~1", "/").replace("~0", "~")))
            }
            ("anyOf", Some(Value::Array(schemas))) => {
                tokens.next().and_then(|index| schemas.get(index.parse::<usize>().ok()?))
            }
            ("allOf", Some(Value::Array(schemas))) if schemas.len() > 1 => {
                tokens.next().and_then(|index| schemas.get(index.parse::<usize>().ok()?))
            }
            _ => None,
        };
        let Some(inside) = inside else { return false };
        schema = inside;
    }
    schema.is_object()
}

/// The fields of a schema, collected from one or several parts of the document.
type Fields<'a> = IndexMap<&'a str, &'a Value>;

struct Walk<'a> {
    root: &'a Value,
    nodes: usize,
    bytes: usize,
    /// Current position, as a JSON pointer into the result.
    at: String,
    /// References that are being inlined, the outermost first.
    inlining: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    fn schema(&mut self, schema: &'a Value, depth: usize) -> Result<Value, SchemaError> {
        self.enter(depth)?;
        let Value::Object(fields) = schema else {
            let anything = *schema == true;
            return Err(self.fault(if anything { SchemaFault::Anything } else { SchemaFault::NotASchema }));
        };
        let outer = self.inlining.len();
        let fields = self.in_place(fields)?;
        if depth > 1 && fields.keys().all(|key| BESIDE_REF.contains(key)) {
            return Err(self.fault(SchemaFault::Anything));
        }
        let strict = self.object(&fields, depth)?;
        self.inlining.truncate(outer);
        Ok(Value::Object(strict))
    }

    /// The fields of a schema after an `allOf` of one schema is merged and a `$ref` with siblings is inlined.
    fn in_place(&mut self, fields: &'a Map<String, Value>) -> Result<Fields<'a>, SchemaError> {
        let mut fields: Fields<'a> = fields.iter().map(|(key, value)| (key.as_str(), value)).collect();
        loop {
            if let Some(Value::Array(parts)) = fields.get("allOf")
                && let [Value::Object(only)] = &parts[..]
            {
                fields = self.merged(fields, only)?;
            } else if let Some(Value::String(reference)) = fields.get("$ref")
                && fields.len() > 1
            {
                fields = self.inlined(&fields, reference)?;
            } else {
                return Ok(fields);
            }
            self.add(1, 0)?;
        }
    }

    fn merged(&self, mut around: Fields<'a>, only: &'a Map<String, Value>) -> Result<Fields<'a>, SchemaError> {
        around.shift_remove("allOf");
        for (key, value) in only {
            match around.get(key.as_str()) {
                None => drop(around.insert(key, value)),
                Some(other) if *other == value || BESIDE_REF.contains(&key.as_str()) => {}
                Some(_) => return Err(self.fault(SchemaFault::Conflict(shortened(key, QUOTED)))),
            }
        }
        Ok(around)
    }

    fn inlined(&mut self, fields: &Fields<'a>, reference: &'a str) -> Result<Fields<'a>, SchemaError> {
        let at_root = self.at.is_empty();
        let is_known = |key: &str| BESIDE_REF.contains(&key) || key == "$ref" || (key == "$id" && at_root);
        let narrowing: Vec<String> = fields.keys().filter(|key| !is_known(key)).map(|key| format!("`{key}`")).collect();
        if !narrowing.is_empty() {
            return Err(self.fault(SchemaFault::RefBeside(shortened(&narrowing.join(", "), QUOTED))));
        }
        if self.inlining.contains(&reference) {
            // A recursive reference cannot be inlined; its siblings are dropped instead.
            return Ok(fields.iter().filter(|(key, _)| **key == "$ref").map(|(key, value)| (*key, *value)).collect());
        }
        let target = pointer(reference).and_then(|pointer| self.root.pointer(&pointer)).and_then(Value::as_object);
        let target = target.ok_or_else(|| self.unknown(reference))?;
        self.inlining.push(reference);
        let mut inlined: Fields<'a> = target.iter().map(|(key, value)| (key.as_str(), value)).collect();
        inlined.extend(fields.iter().filter(|(key, _)| **key != "$ref").map(|(key, value)| (*key, *value)));
        Ok(inlined)
    }

    fn object(&mut self, fields: &Fields<'a>, depth: usize) -> Result<Map<String, Value>, SchemaError> {
        let mut strict = Map::new();
        for (key, value) in fields {
            let converted = match (*key, *value) {
                ("default", Value::Null) | ("oneOf", Value::Array(_)) => continue,
                ("properties", Value::Object(schemas)) => self.map(key, schemas, depth)?,
                ("$defs" | "definitions", Value::Object(schemas)) => {
                    // Definitions are not part of the reference that is being inlined.
                    let inlining = mem::take(&mut self.inlining);
                    let definitions = self.map(key, schemas, depth)?;
                    self.inlining = inlining;
                    definitions
                }
                ("items", Value::Object(_)) => self.child("items", value, depth + 1)?,
                ("allOf" | "anyOf", Value::Array(schemas)) => Value::Array(self.list(key, 0, schemas, depth)?),
                ("$ref", Value::String(target)) => {
                    if !pointer(target).is_some_and(|pointer| leads_to_schema(self.root, &pointer)) {
                        return Err(self.unknown(target));
                    }
                    self.copy(value, depth + 1)?
                }
                _ => self.copy(value, depth + 1)?,
            };
            self.add(0, key.len())?;
            strict.insert((*key).to_owned(), converted);
        }
        if let Some(Value::Array(schemas)) = fields.get("oneOf") {
            let before = strict.get("anyOf").and_then(Value::as_array).map_or(0, Vec::len);
            let converted = self.list("anyOf", before, schemas, depth)?;
            if let Value::Array(choices) = strict.entry("anyOf").or_insert_with(|| json!([])) {
                choices.extend(converted);
            }
        }
        self.close(&mut strict)?;
        Ok(strict)
    }

    /// Closes an object, and requires all its properties.
    fn close(&self, fields: &mut Map<String, Value>) -> Result<(), SchemaError> {
        let properties = fields.get("properties").and_then(Value::as_object);
        let typed = fields.get("type");
        let is_object = types(typed).any(|name| name == "object") || (typed.is_none() && properties.is_some());
        let required: Option<Vec<Value>> = properties.map(|all| all.keys().cloned().map(Value::String).collect());
        if let Some(required) = required {
            fields.insert("required".to_owned(), Value::Array(required));
        }
        if !is_object {
            return Ok(());
        }
        if fields.get("additionalProperties").is_some_and(|open| *open != false) {
            return Err(self.fault(SchemaFault::OpenObject));
        }
        fields.entry("type").or_insert_with(|| json!("object"));
        fields.insert("additionalProperties".to_owned(), Value::Bool(false));
        Ok(())
    }

    fn map(&mut self, key: &str, schemas: &'a Map<String, Value>, depth: usize) -> Result<Value, SchemaError> {
        self.enter(depth + 1)?;
        let mut converted = Map::new();
        for (name, schema) in schemas {
            // The name appears twice: as a property and in `required`.
            self.add(0, 2 * name.len())?;
            let place = format!("{key}/{}", name.replace('~', "~0").replace('/', "~1"));
            converted.insert(name.clone(), self.child(&place, schema, depth + 2)?);
        }
        Ok(Value::Object(converted))
    }

    fn list(&mut self, key: &str, from: usize, all: &'a [Value], depth: usize) -> Result<Vec<Value>, SchemaError> {
        self.enter(depth + 1)?;
        let mut converted = Vec::with_capacity(all.len());
        for (index, schema) in all.iter().enumerate() {
            converted.push(self.child(&format!("{key}/{}", from + index), schema, depth + 2)?);
        }
        Ok(converted)
    }

    fn child(&mut self, place: &str, schema: &'a Value, depth: usize) -> Result<Value, SchemaError> {
        let outer = self.at.len();
        let _strings_take_all = write!(self.at, "/{place}");
        let converted = self.schema(schema, depth)?;
        self.at.truncate(outer);
        Ok(converted)
    }

    /// Copies a value that is not a schema.
    fn copy(&mut self, value: &Value, depth: usize) -> Result<Value, SchemaError> {
        Ok(match value {
            Value::Array(values) => {
                self.enter(depth)?;
                Value::Array(values.iter().map(|value| self.copy(value, depth + 1)).collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => {
                self.enter(depth)?;
                let copied = fields.iter().map(|(key, value)| {
                    self.add(0, key.len())?;
                    Ok((key.clone(), self.copy(value, depth + 1)?))
                });
                Value::Object(copied.collect::<Result<_, SchemaError>>()?)
            }
            plain => {
                self.add(1, plain.as_str().map_or(0, str::len))?;
                plain.clone()
            }
        })
    }

    fn enter(&mut self, depth: usize) -> Result<(), SchemaError> {
        if depth > DEPTH {
            return Err(self.fault(SchemaFault::TooDeep(DEPTH)));
        }
        self.add(1, 0)
    }

    fn add(&mut self, nodes: usize, bytes: usize) -> Result<(), SchemaError> {
        self.nodes += nodes;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.nodes > NODES {
            return Err(self.fault(SchemaFault::TooLarge(NODES)));
        }
        if self.bytes > BYTES {
            return Err(self.fault(SchemaFault::TooLong(BYTES)));
        }
        Ok(())
    }

    fn unknown(&self, reference: &str) -> SchemaError {
        self.fault(SchemaFault::UnknownRef(shortened(reference, QUOTED)))
    }

    fn fault(&self, fault: SchemaFault) -> SchemaError {
        SchemaError { at: shortened(&self.at, QUOTED), fault }
    }
}
