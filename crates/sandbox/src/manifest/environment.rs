//! The variables that commands find in their environment: plain, described, ephemeral, or taken from a secret.

use std::{collections::BTreeMap, fmt};

use indexmap::IndexMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::SerializeMap};
use serde_json::{Map, Value};

use crate::{Result, SecretStore};

/// Where a variable's value comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum EnvSource {
    /// The value itself.
    Plain(String),
    /// The secret of this name, looked up when the session starts.
    Secret(String),
}

impl fmt::Debug for EnvSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(_) => f.write_str("[value]"),
            Self::Secret(name) => write!(f, "secret {name:?}"),
        }
    }
}

/// How a value was written, so that it is written the same way again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Typed,
    Described,
}

/// One variable's value and what is said about it. Values are never printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvValue {
    /// Where the value comes from.
    pub source: EnvSource,
    /// What it is for.
    pub description: Option<String>,
    /// Whether it is left out of everything that is saved.
    pub ephemeral: bool,
    form: Form,
}

impl EnvValue {
    /// A plain value.
    pub fn new(value: impl Into<String>) -> Self {
        Self { source: EnvSource::Plain(value.into()), description: None, ephemeral: false, form: Form::Text }
    }

    /// The value of a secret, by its name.
    pub fn secret(name: impl Into<String>) -> Self {
        Self { source: EnvSource::Secret(name.into()), description: None, ephemeral: false, form: Form::Typed }
    }

    /// The same value with a word about what it is for.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self.form = Form::Described;
        self
    }

    /// The same value, left out of everything that is saved.
    #[must_use]
    pub fn ephemeral(mut self) -> Self {
        self.ephemeral = true;
        self.form = Form::Described;
        self
    }

    fn typed(mut self) -> Self {
        self.form = Form::Typed;
        self
    }

    fn read(value: Value) -> Result<Self, String> {
        match value {
            Value::String(text) => Ok(Self::new(text)),
            Value::Object(fields) => Self::read_fields(fields),
            Value::Null => Err("has no value; write \"\" for an empty one".to_owned()),
            _ => Err("must be text; put it in quotes".to_owned()),
        }
    }

    /// `{"type": …}` is a value; an object without it describes one, and its `value` is text or such a value again.
    fn read_fields(mut fields: Map<String, Value>) -> Result<Self, String> {
        let description = take_text(&mut fields, "description")?;
        let ephemeral = match fields.remove("ephemeral") {
            None | Some(Value::Null) => None,
            Some(Value::Bool(given)) => Some(given),
            Some(_) => return Err("`ephemeral` is true or false".to_owned()),
        };
        let described = description.is_some() || ephemeral.is_some();
        let mut value = match take_text(&mut fields, "type")? {
            Some(kind) => Self::read_typed(&kind, &mut fields)?,
            None => match fields.remove("value") {
                Some(Value::String(text)) => Self::new(text).typed(),
                Some(Value::Object(mut inner)) => {
                    let kind = take_text(&mut inner, "type")?.unwrap_or_else(|| "str".to_owned());
                    let inner_value = Self::read_typed(&kind, &mut inner)?;
                    nothing_left(&inner)?;
                    Self { form: Form::Described, ..inner_value }
                }
                _ => return Err("needs a `value` that is text, or a `type`".to_owned()),
            },
        };
        nothing_left(&fields)?;
        if described {
            value.form = Form::Described;
        }
        Ok(Self { description, ephemeral: ephemeral.unwrap_or(false), ..value })
    }

    fn read_typed(kind: &str, fields: &mut Map<String, Value>) -> Result<Self, String> {
        let (key, make): (_, fn(String) -> Self) = match kind {
            "str" => ("value", |text| Self::new(text).typed()),
            "secret" => ("name", Self::secret),
            other => return Err(format!("has the unknown type {other:?}; known are `secret`, `str`")),
        };
        take_text(fields, key)?.map(make).ok_or_else(|| format!("of type `{kind}` needs `{key}`"))
    }
}

fn take_text(fields: &mut Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    match fields.remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{key}` must be text")),
    }
}

fn nothing_left(fields: &Map<String, Value>) -> Result<(), String> {
    match fields.keys().next() {
        None => Ok(()),
        Some(key) => Err(format!(
            "has the unknown field `{key}`; known are `description`, `ephemeral`, `type`, and `value` or (for a secret) `name`"
        )),
    }
}

impl From<&str> for EnvValue {
    fn from(value: &str) -> Self {
        Self::new(value)
    }
}

impl From<String> for EnvValue {
    fn from(value: String) -> Self {
        Self::new(value)
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Typed<'a> {
    Str { value: &'a str },
    Secret { name: &'a str },
}

impl Serialize for EnvValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let typed = match &self.source {
            EnvSource::Plain(value) => Typed::Str { value },
            EnvSource::Secret(name) => Typed::Secret { name },
        };
        match (&self.source, self.form) {
            (EnvSource::Plain(value), Form::Text) if self.description.is_none() && !self.ephemeral => {
                serializer.serialize_str(value)
            }
            (_, Form::Typed | Form::Text) if self.description.is_none() && !self.ephemeral => {
                typed.serialize(serializer)
            }
            _ => {
                let mut map = serializer.serialize_map(None)?;
                if let Some(description) = &self.description {
                    map.serialize_entry("description", description)?;
                }
                map.serialize_entry("ephemeral", &self.ephemeral)?;
                map.serialize_entry("value", &typed)?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for EnvValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Variables by name, in the order they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(IndexMap<String, EnvValue>);

impl Environment {
    /// No variables.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a variable.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<EnvValue>) {
        self.0.insert(name.into(), value.into());
    }

    /// The value of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&EnvValue> {
        self.0.get(name)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &EnvValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Whether no variable is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every variable with its value; secrets are looked up in `secrets`.
    ///
    /// # Errors
    /// `secret_not_found` for the first secret that `secrets` does not contain.
    pub fn resolve(&self, secrets: &SecretStore) -> Result<BTreeMap<String, String>> {
        let resolve = |(name, value): (&String, &EnvValue)| {
            let value = match &value.source {
                EnvSource::Plain(value) => value.clone(),
                EnvSource::Secret(secret) => secrets.get(secret)?.expose().to_owned(),
            };
            Ok((name.clone(), value))
        };
        self.0.iter().map(resolve).collect()
    }

    /// Reads one more variable; the error says why its text is refused.
    pub(crate) fn read(&mut self, name: String, value: Value) -> Result<(), String> {
        let value = EnvValue::read(value)?;
        self.0.insert(name, value);
        Ok(())
    }

    /// Takes the ephemeral variables out and says which they were.
    pub(crate) fn remove_ephemeral(&mut self) -> Vec<String> {
        let gone = self.iter().filter(|(_, value)| value.ephemeral).map(|(name, _)| name.to_owned()).collect();
        self.0.retain(|_, value| !value.ephemeral);
        gone
    }
}

impl<N: Into<String>, V: Into<EnvValue>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

#[derive(Serialize)]
struct Wrapped<'a> {
    value: &'a IndexMap<String, EnvValue>,
}

impl Serialize for Environment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Wrapped { value: &self.0 }.serialize(serializer)
    }
}

/// The variables inside either spelling: `{"value": {NAME: …}}`, or simply `{NAME: …}`.
pub(crate) fn variables(mut fields: Map<String, Value>) -> Map<String, Value> {
    if fields.len() == 1
        && let Some(Value::Object(inner)) = fields.get_mut("value")
    {
        return std::mem::take(inner);
    }
    fields
}

/// Why a variable cannot be, if it cannot.
pub(crate) fn variable_fault(name: &str, value: &EnvValue) -> Option<&'static str> {
    let mut letters = name.bytes();
    let first = letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_');
    if !first || !letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_') {
        return Some("is not a name for a variable: letters, digits and `_`, not beginning with a digit");
    }
    match &value.source {
        EnvSource::Plain(text) if text.contains('\0') => Some("contains a NUL byte"),
        EnvSource::Secret(name) if name.is_empty() => Some("names no secret"),
        _ => None,
    }
}
