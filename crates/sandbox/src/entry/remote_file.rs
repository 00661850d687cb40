//! A file that is fetched when the session starts.

use std::fmt;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::{Attributes, Credential, Kind, Shape, credential, url};
use crate::manifest::{At, Fault};

/// A file that is fetched over HTTP.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteFile {
    /// Fields that every entry has.
    #[serde(skip)]
    pub attributes: Attributes,
    /// Address of the file.
    pub url: String,
    /// Request headers by name.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub headers: IndexMap<String, Credential>,
    /// Expected SHA-256, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Limit of the file, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

impl RemoteFile {
    /// The file at this address.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            attributes: Attributes::of(Shape::File),
            url: url.into(),
            headers: IndexMap::new(),
            sha256: None,
            max_bytes: None,
        }
    }
}

/// Generates the methods that entries share which are fetched over HTTP.
macro_rules! fetched {
    ($kind:ident) => {
        impl $kind {
            /// The same with one more header, plain or from a secret.
            #[must_use]
            pub fn header(mut self, name: impl Into<String>, value: impl Into<Credential>) -> Self {
                self.headers.insert(name.into(), value.into());
                self
            }

            /// The same, refused if what is fetched has another SHA-256.
            #[must_use]
            pub fn sha256(mut self, digits: impl Into<String>) -> Self {
                self.sha256 = Some(digits.into());
                self
            }

            /// The same, refused if what is fetched is larger.
            #[must_use]
            pub fn max_bytes(mut self, limit: u64) -> Self {
                self.max_bytes = Some(limit);
                self
            }

            /// The address for messages: without user, password and the values of a query.
            #[must_use]
            pub fn shown_url(&self) -> String {
                crate::fetch::shown_text(&self.url)
            }
        }
    };
}

pub(super) use fetched;

fetched!(RemoteFile);

/// Leaves out the secret parts of the address.
impl fmt::Debug for RemoteFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteFile")
            .field("attributes", &self.attributes)
            .field("url", &self.shown_url())
            .field("headers", &self.headers)
            .field("sha256", &self.sha256)
            .field("max_bytes", &self.max_bytes)
            .finish()
    }
}

impl Kind for RemoteFile {
    const SHAPE: Shape = Shape::File;

    fn faults(&self, at: &At<'_>) -> Vec<Fault> {
        fetch_faults(at, &self.url, &self.headers, self.sha256.as_deref())
    }

    fn redact(&mut self) -> bool {
        url::redact(&mut self.url) | redact_headers(&mut self.headers)
    }
}

/// Faults of an address, its headers and its expected hash.
pub(super) fn fetch_faults(
    at: &At<'_>,
    address: &str,
    headers: &IndexMap<String, Credential>,
    sha256: Option<&str>,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    if let Some(reason) = url::fault(address) {
        faults.push(Fault::invalid(&at.field("url"), reason));
    }
    for (name, value) in headers {
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let field = at.field("headers");
        if name.is_empty() || !name.bytes().all(token) {
            faults.push(Fault::invalid(&field.key(name), "is not a name for a header"));
        }
        let text = match value {
            Credential::Plain(text) => text,
            Credential::Secret { prefix, .. } => prefix,
        };
        if text.contains(|c: char| c.is_control() && c != '\t') {
            faults.push(Fault::invalid(&field.key(name), "contains a line break or another control character"));
        }
    }
    if let Some(digits) = sha256
        && (digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
    {
        faults.push(Fault::invalid(&at.field("sha256"), "must be 64 hexadecimal digits"));
    }
    faults
}

/// Removes headers that grant access by a plain value; those that name a secret stay. Returns whether there were any.
pub(super) fn redact_headers(headers: &mut IndexMap<String, Credential>) -> bool {
    let before = headers.len();
    headers.retain(|name, value| value.is_secret() || !credential::header_grants(name));
    headers.len() != before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_remote_file_are_checked() {
        let good = "0".repeat(64);
        let table = [
            (RemoteFile::new("https://example.com/a").sha256(&good).header("Accept", "*/*"), None),
            (RemoteFile::new("ftp://example.com/a"), Some("x.url")),
            (RemoteFile::new("https://example.com/a").sha256("abc"), Some("x.sha256")),
            (RemoteFile::new("https://example.com/a").sha256("g".repeat(64)), Some("x.sha256")),
            (RemoteFile::new("https://example.com/a").header("a b", "c"), Some("x.headers[\"a b\"]")),
            (RemoteFile::new("https://example.com/a").header("", "c"), Some("x.headers[\"\"]")),
            (RemoteFile::new("https://example.com/a").header("a", "b\r\nc: d"), Some("x.headers[\"a\"]")),
            (
                RemoteFile::new("https://example.com/a").header("a", Credential::prefixed("b\n", "T")),
                Some("x.headers[\"a\"]"),
            ),
        ];
        for (entry, expected) in table {
            let faults = entry.faults(&At::top("x"));
            assert_eq!(faults.first().map(Fault::at), expected, "{entry:?}");
        }
    }

    #[test]
    fn headers_that_grant_access_are_removed_unless_they_name_a_secret() {
        let mut entry = RemoteFile::new("https://example.com")
            .header("Accept", "*/*")
            .header("Authorization", "Bearer hunter22")
            .header("X-Token", Credential::secret("T"));
        assert!(!format!("{entry:?}").contains("hunter22"));
        assert!(entry.redact());
        assert_eq!(entry.headers.keys().collect::<Vec<_>>(), ["Accept", "X-Token"]);
        assert!(!entry.redact());
    }
}
