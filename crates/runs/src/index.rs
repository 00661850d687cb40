//! The index of a working copy at its start: each path with its kind, permissions and digest.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::{self, Read},
};

use sandbar_host_files::OuterRules;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use sha2::{Digest as _, Sha256};

/// Version of `base.json`.
pub(crate) const VERSION: u32 = 1;

/// A path of any bytes. In JSON, a backslash is doubled, and a byte that is not UTF-8 is `\xNN`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathBytes(pub Vec<u8>);

impl fmt::Display for PathBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            f.write_str(&chunk.valid().replace('\\', "\\\\"))?;
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl PathBytes {
    /// The path as text, with replacement characters where it is not UTF-8.
    pub fn to_lossy(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }

    /// Whether the path is relative and normalized: no empty component, no `.`, no `..`.
    pub(crate) fn is_plain(&self) -> bool {
        !self.0.split(|byte| *byte == b'/').any(|part| matches!(part, b"" | b"." | b".."))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('\\') {
            bytes.extend_from_slice(&rest.as_bytes()[..at]);
            rest = &rest[at + 1..];
            match rest.strip_prefix('\\') {
                Some(after) => {
                    bytes.push(b'\\');
                    rest = after;
                }
                None => {
                    let digits = rest.strip_prefix('x')?.get(..2)?;
                    bytes.push(u8::from_str_radix(digits, 16).ok()?);
                    rest = &rest[3..];
                }
            }
        }
        bytes.extend_from_slice(rest.as_bytes());
        Some(Self(bytes))
    }
}

impl Serialize for PathBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PathBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("an unknown backslash escape"))
    }
}

/// A SHA-256 digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of at most `limit` bytes, and their number.
    pub(crate) fn read(from: impl Read, limit: u64) -> io::Result<(Self, u64)> {
        let mut digest = Sha256::new();
        let (mut buffer, mut from, mut size) = (vec![0; 128 << 10], from.take(limit), 0);
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return Ok((Self(digest.finalize().into()), size)),
                Ok(length) => {
                    digest.update(&buffer[..length]);
                    size += length as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || D::Error::custom("not a SHA-256");
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut sum = [0; 32];
        for (byte, at) in sum.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(sum))
    }
}

/// One path of the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[non_exhaustive]
pub enum IndexEntry {
    /// A directory.
    Dir {
        /// Permission bits.
        mode: u32,
    },
    /// A regular file.
    File {
        /// Permission bits.
        mode: u32,
        /// Bytes.
        size: u64,
        /// Absent for large files in `.git`, and for files whose size alone shows the change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sha256: Option<Digest>,
        /// Offset of the content in `base.data`, if it is stored there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<u64>,
    },
    /// A symbolic link.
    Link {
        /// Its target.
        to: PathBytes,
    },
}

impl IndexEntry {
    /// The mode that git records; `None` for a directory.
    pub fn git_mode(&self) -> Option<u32> {
        match self {
            Self::Dir { .. } => None,
            Self::File { mode, .. } => Some(if mode & 0o100 == 0 { 0o100_644 } else { 0o100_755 }),
            Self::Link { .. } => Some(0o120_000),
        }
    }
}

/// The whole index.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Index {
    pub(crate) version: u32,
    /// Ignore rules from above the source directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "crate::rules::saved")]
    pub(crate) outer: Vec<OuterRules>,
    pub(crate) entries: BTreeMap<PathBytes, IndexEntry>,
    /// Paths that a manifest added to the working copy: they are not part of the source.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) given: BTreeSet<PathBytes>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_written_as_text_and_read_back() {
        for (bytes, text) in [
            (&b"a/b c"[..], "a/b c"),
            (b"gr\xc3\xb6\xc3\x9fe", "größe"),
            (b"a\\b", "a\\\\b"),
            (b"\xff\xfe", "\\xff\\xfe"),
            (b"\\xff", "\\\\xff"),
        ] {
            assert_eq!(PathBytes(bytes.to_vec()).to_string(), text);
            assert_eq!(PathBytes::parse(text), Some(PathBytes(bytes.to_vec())));
        }
        for wrong in ["\\", "\\x", "\\xf", "\\xfü", "\\y", "a\\xgg"] {
            assert_eq!(PathBytes::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_a_name(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
            let name = PathBytes(bytes);
            let text = serde_json::to_string(&name).unwrap();
            prop_assert_eq!(serde_json::from_str::<PathBytes>(&text).unwrap(), name);
        }
    }
}
