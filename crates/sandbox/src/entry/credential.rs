//! A value that grants access: written in the manifest, or (better) taken from a secret that the manifest names.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::Value;

use crate::{Result, Secret, SecretStore};

/// A key, a token or a header's value. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// The value itself.
    Plain(String),
    /// Name of a secret, looked up when it is needed.
    Secret {
        /// The secret's name.
        name: String,
        /// Text before its value, such as `Bearer `.
        prefix: String,
    },
}

impl Credential {
    /// The value of a secret, by its name.
    pub fn secret(name: impl Into<String>) -> Self {
        Self::Secret { name: name.into(), prefix: String::new() }
    }

    /// The value of a secret with text before it, such as `Bearer `.
    pub fn prefixed(prefix: impl Into<String>, name: impl Into<String>) -> Self {
        Self::Secret { name: name.into(), prefix: prefix.into() }
    }

    /// The value, with the secret looked up.
    ///
    /// # Errors
    /// `secret_not_found` if the store does not have it.
    pub fn resolve(&self, secrets: &SecretStore) -> Result<Secret> {
        match self {
            Self::Plain(value) => Ok(Secret::new(value)),
            Self::Secret { name, prefix } => Ok(Secret::new(format!("{prefix}{}", secrets.get(name)?.expose()))),
        }
    }

    /// Whether this is only the name of a secret.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        matches!(self, Self::Secret { .. })
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(_) => f.write_str("[secret]"),
            Self::Secret { name, .. } => write!(f, "secret {name:?}"),
        }
    }
}

impl From<&str> for Credential {
    fn from(value: &str) -> Self {
        Self::Plain(value.to_owned())
    }
}

impl From<String> for Credential {
    fn from(value: String) -> Self {
        Self::Plain(value)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reference {
    secret: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    prefix: String,
}

impl Serialize for Credential {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Plain(value) => serializer.serialize_str(value),
            Self::Secret { name, prefix } => {
                Reference { secret: name.clone(), prefix: prefix.clone() }.serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Credential {
    /// Errors never repeat the value: it may be the credential.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(value) => Ok(Self::Plain(value)),
            fields @ Value::Object(_) => match serde_json::from_value(fields) {
                Ok(Reference { secret, prefix }) if !secret.is_empty() => Ok(Self::Secret { name: secret, prefix }),
                _ => Err(D::Error::custom("a secret is named as {\"secret\": \"NAME\"}, optionally with a `prefix`")),
            },
            _ => Err(D::Error::custom("a credential is text, or {\"secret\": \"NAME\"}")),
        }
    }
}

/// Whether a header of this name usually grants access.
pub(super) fn header_grants(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["auth", "cookie", "token", "key", "secret", "credential", "signature"].iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_credential_is_text_or_the_name_of_a_secret() {
        let store = SecretStore::new().with("TOKEN", "hunter22");
        let table = [
            (json!("plain"), Some("plain")),
            (json!({"secret": "TOKEN"}), Some("hunter22")),
            (json!({"secret": "TOKEN", "prefix": "Bearer "}), Some("Bearer hunter22")),
            (json!({"secret": ""}), None),
            (json!({"secret": "TOKEN", "suffix": "x"}), None),
            (json!(31337), None),
        ];
        for (given, expected) in table {
            let read = serde_json::from_value::<Credential>(given.clone());
            match expected {
                Some(value) => {
                    let read = read.unwrap();
                    assert_eq!(read.resolve(&store).unwrap().expose(), value);
                    assert_eq!(serde_json::to_value(&read).unwrap(), given);
                }
                None => assert!(!read.unwrap_err().to_string().contains("31337")),
            }
        }
        assert!(!format!("{:?}", Credential::from("hunter22")).contains("hunter22"));
        assert_eq!(Credential::secret("NONE").resolve(&store).unwrap_err().code(), "secret_not_found");
    }

    #[test]
    fn headers_that_grant_access_are_known_by_their_names() {
        for name in ["Authorization", "cookie", "X-Api-Key", "PRIVATE-TOKEN"] {
            assert!(header_grants(name), "{name}");
        }
        assert!(!header_grants("Accept"));
    }
}
