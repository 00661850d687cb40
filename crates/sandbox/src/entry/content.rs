//! The content of a file, serialized as text if it is UTF-8 and as base64 otherwise.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::SerializeStruct};
use serde_json::{Map, Value};

/// Content of a file. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Content(Bytes);

impl Content {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The content as text, if it is UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) if text.len() <= 80 => write!(f, "{text:?}"),
            _ => write!(f, "[{} bytes]", self.0.len()),
        }
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&[u8]> for Content {
    fn from(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(text) = self.text() {
            return serializer.serialize_str(text);
        }
        let mut fields = serializer.serialize_struct("Content", 2)?;
        fields.serialize_field("encoding", "base64")?;
        fields.serialize_field("data", &STANDARD.encode(&self.0))?;
        fields.end()
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(text.into()),
            Value::Object(fields) => encoded(&fields).map_err(D::Error::custom),
            _ => Err(D::Error::custom("must be text, or {\"encoding\": \"base64\", \"data\": …}")),
        }
    }
}

/// Reads the object forms: ours has `encoding`, others have `type`, and the data field has one of three names.
fn encoded(fields: &Map<String, Value>) -> Result<Content, String> {
    let text = |key| fields.get(key).and_then(Value::as_str);
    let encoding = text("encoding").or_else(|| text("type")).ok_or("needs an `encoding`")?;
    let data = text("data").or_else(|| text("value")).or_else(|| text("base64")).ok_or("needs `data`")?;
    if fields.len() != 2 {
        return Err("has only `encoding` and `data`".to_owned());
    }
    match encoding {
        "base64" | "bytes" => {
            STANDARD.decode(data).map(Content::from).map_err(|error| format!("is not base64: {error}"))
        }
        "utf-8" | "utf8" | "text" => Ok(data.into()),
        other => Err(format!("has the unknown encoding {other:?}; known are `base64`, `utf-8`")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn content_is_text_or_base64() {
        let table = [
            (json!("hé"), Some("hé".as_bytes())),
            (json!(""), Some(b"".as_slice())),
            (json!({"encoding": "base64", "data": "/w=="}), Some(b"\xff".as_slice())),
            (json!({"type": "base64", "data": "/w=="}), Some(b"\xff".as_slice())),
            (json!({"type": "bytes", "value": "aGk="}), Some(b"hi".as_slice())),
            (json!({"type": "base64", "base64": "aGk="}), Some(b"hi".as_slice())),
            (json!({"encoding": "utf-8", "data": "hi"}), Some(b"hi".as_slice())),
            (json!({"encoding": "base64", "data": "%%"}), None),
            (json!({"encoding": "rot13", "data": "hi"}), None),
            (json!({"encoding": "base64"}), None),
            (json!({"data": "hi"}), None),
            (json!({"encoding": "base64", "data": "aGk=", "mode": 1}), None),
            (json!(1), None),
            (json!(["hi"]), None),
        ];
        for (given, expected) in table {
            let read = serde_json::from_value::<Content>(given.clone()).ok();
            assert_eq!(read.as_ref().map(|read| read.bytes().as_ref()), expected, "{given}");
            if let Some(read) = read {
                let saved = serde_json::to_value(&read).unwrap();
                assert_eq!(saved.is_string(), read.text().is_some());
                assert_eq!(serde_json::from_value::<Content>(saved).unwrap(), read);
            }
        }
    }

    #[test]
    fn long_content_is_not_printed() {
        assert_eq!(format!("{:?}", Content::from("hi")), "\"hi\"");
        assert_eq!(format!("{:?}", Content::from("x".repeat(100))), "[100 bytes]");
    }
}
