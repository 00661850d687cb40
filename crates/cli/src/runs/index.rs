//! What a working copy began as: every path of it with its kind, its permissions and the digest of its content.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::{self, Read},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use sha2::{Digest as _, Sha256};

use super::ignored::Outer;

/// The version of the document.
pub(crate) const VERSION: u32 = 1;

/// The name of something, of whatever bytes. In documents, a backslash is two, and a byte that is not text is `\xNN`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name(pub(crate) Vec<u8>);

impl fmt::Display for Name {
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

impl Name {
    /// Whether it is a path below some directory, spelt in the one way there is.
    pub(super) fn is_plain(&self) -> bool {
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

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("a backslash that means nothing"))
    }
}

/// The SHA-256 of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sum(pub(crate) [u8; 32]);

impl Sum {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Of the first so many bytes, and how many there were.
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

impl Serialize for Sum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }
}

impl<'de> Deserialize<'de> for Sum {
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

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Entry {
    Dir {
        mode: u32,
    },
    File {
        mode: u32,
        size: u64,
        /// Missing where it was not worth its time: of large files in a repository's own directory, and of files that
        /// are known to have changed by their size.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sha256: Option<Sum>,
        /// Where its content begins in the file of contents, if it was put there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<u64>,
    },
    Link {
        to: Name,
    },
}

impl Entry {
    /// The mode as git writes it; nothing of a directory.
    pub(crate) fn git_mode(&self) -> Option<u32> {
        match self {
            Self::Dir { .. } => None,
            Self::File { mode, .. } => Some(if mode & 0o100 == 0 { 0o100_644 } else { 0o100_755 }),
            Self::Link { .. } => Some(0o120_000),
        }
    }
}

/// All of it.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Index {
    pub(crate) version: u32,
    /// What is ignored beside what the copy says itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) outer: Vec<Outer>,
    pub(crate) entries: BTreeMap<Name, Entry>,
    /// What was put into the working copy besides, by a manifest: it is not the source's, and stays where it is.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) given: BTreeSet<Name>,
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
            assert_eq!(Name(bytes.to_vec()).to_string(), text);
            assert_eq!(Name::parse(text), Some(Name(bytes.to_vec())));
        }
        for wrong in ["\\", "\\x", "\\xf", "\\xfü", "\\y", "a\\xgg"] {
            assert_eq!(Name::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_a_name(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
            let name = Name(bytes);
            let text = serde_json::to_string(&name).unwrap();
            prop_assert_eq!(serde_json::from_str::<Name>(&text).unwrap(), name);
        }
    }
}
