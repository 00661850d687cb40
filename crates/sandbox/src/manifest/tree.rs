//! A document as a tree of values, with bounds on its depth, its size and its repetitions, and no name given twice.

use std::{cell::Cell, fmt};

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

/// How deep values may be inside each other; what JSON readers usually allow.
pub(super) const DEPTH: usize = 127;
/// How many values there may be. An alias in YAML counts each time it is used.
const VALUES: usize = 8_000_000;
/// How much text there may be in all values, with the same rule for aliases.
const TEXT: usize = super::load::TEXT_LIMIT;

/// Reads a document of any format.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let budget = Budget { values: Cell::new(VALUES), text: Cell::new(TEXT) };
    Tree { budget: &budget, depth: DEPTH }.deserialize(deserializer)
}

/// What may still come.
struct Budget {
    values: Cell<usize>,
    text: Cell<usize>,
}

#[derive(Clone, Copy)]
struct Tree<'a> {
    budget: &'a Budget,
    depth: usize,
}

impl Tree<'_> {
    fn value<E: Error>(&self) -> Result<(), E> {
        take(&self.budget.values, 1).ok_or_else(|| E::custom(format!("has more than {VALUES} values")))
    }

    fn text<E: Error>(&self, text: String) -> Result<String, E> {
        let fits = take(&self.budget.text, text.len());
        fits.map(|()| text).ok_or_else(|| E::custom(format!("has more than {TEXT} bytes of text")))
    }

    fn inside<E: Error>(&self) -> Result<Self, E> {
        let depth = self.depth.checked_sub(1);
        let depth = depth.ok_or_else(|| {
            E::custom(format!("is nested deeper than {DEPTH} levels; write paths like \"a/b/c\" instead of `children`"))
        })?;
        Ok(Self { depth, ..*self })
    }
}

fn take(budget: &Cell<usize>, count: usize) -> Option<()> {
    budget.set(budget.get().checked_sub(count)?);
    Some(())
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.value()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value without tags")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("has a number that is not finite"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.text(value.to_owned()).map(Value::String)
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        self.text(value).map(Value::String)
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(inside)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut values = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let name = self.text(name)?;
            if values.contains_key(&name) {
                return Err(A::Error::custom(format!("the name {name:?} is given twice")));
            }
            values.insert(name, map.next_value_seed(inside)?);
        }
        Ok(Value::Object(values))
    }
}
