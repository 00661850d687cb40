//! Permissions of an entry, read in the usual spellings: `0644`, `-rw-r--r--`, 420, or field by field.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

const DIRECTORY: u64 = 0o040_000;

/// Permission bits of an entry; 0755 unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Permissions {
    /// What the owner may do: 4 read, 2 write, 1 execute.
    pub owner: u8,
    /// What the group may do.
    pub group: u8,
    /// What other users may do.
    pub other: u8,
    /// Whether this describes a directory.
    pub directory: bool,
    /// Whether only owners may remove what is in the directory.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sticky: bool,
}

impl Default for Permissions {
    fn default() -> Self {
        Self::new(0o755)
    }
}

impl Permissions {
    /// From the usual octal number, such as `0o644`. Only the nine permission bits and the sticky bit are kept: set-id bits
    /// are never granted.
    #[must_use]
    pub fn new(mode: u32) -> Self {
        let bits = |shift: u32| ((mode >> shift) & 7) as u8;
        Self {
            owner: bits(6),
            group: bits(3),
            other: bits(0),
            directory: u64::from(mode) & DIRECTORY != 0,
            sticky: mode & 0o1000 != 0,
        }
    }

    /// The bits, without the kind of file.
    #[must_use]
    pub fn mode(&self) -> u32 {
        let sticky = if self.sticky { 0o1000 } else { 0 };
        sticky | u32::from(self.owner & 7) << 6 | u32::from(self.group & 7) << 3 | u32::from(self.other & 7)
    }

    /// Why these cannot be, if they cannot.
    pub(crate) fn fault(&self) -> Option<String> {
        let named = [("owner", self.owner), ("group", self.group), ("other", self.other)];
        named.iter().find(|(_, bits)| *bits > 7).map(|(name, bits)| format!("{name} is {bits}, but 0 to 7 is possible"))
    }

    fn from_number(number: u64) -> Result<Self, String> {
        match u32::try_from(number & !DIRECTORY) {
            Ok(mode) if mode <= 0o777 => Ok(Self { directory: number & DIRECTORY != 0, ..Self::new(mode) }),
            _ => Err(format!(
                "{number} is not a mode; a number is the mode itself (420 is 0644), so write \"0644\" as text"
            )),
        }
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let bad = || Err(format!("{text:?} is not a mode; write \"0644\" or \"-rw-r--r--\""));
        let digits = text.strip_prefix("0o").unwrap_or(text);
        if (3..=5).contains(&digits.len()) && digits.bytes().all(|byte| (b'0'..=b'7').contains(&byte)) {
            return match u32::from_str_radix(digits, 8) {
                Ok(mode) if mode <= 0o1777 => Ok(Self::new(mode)),
                _ => Err(format!("{text:?} asks for set-id bits, which are never granted")),
            };
        }
        // `ls` marks access lists, labels and extended attributes with one more character.
        let text = if text.len() == 11 { text.trim_end_matches(['@', '+', '.']) } else { text };
        let letters = text.as_bytes();
        let Some(kind) = letters.first().filter(|kind| letters.len() == 10 && matches!(**kind, b'd' | b'-')) else {
            return bad();
        };
        let mut triplets = [0u8; 3];
        for (triplet, part) in triplets.iter_mut().zip(letters[1..].chunks_exact(3)) {
            for ((letter, flag), bit) in part.iter().zip(b"rwx").zip([4, 2, 1]) {
                match letter {
                    letter if letter == flag => *triplet |= bit,
                    b's' | b't' if bit == 1 => *triplet |= bit,
                    b'-' => {}
                    b'S' | b'T' if bit == 1 => {}
                    _ => return bad(),
                }
            }
        }
        let [owner, group, other] = triplets;
        let sticky = matches!(letters[9], b't' | b'T');
        Ok(Self { owner, group, other, directory: *kind == b'd', sticky })
    }
}

impl fmt::Display for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.directory { "d" } else { "-" })?;
        for bits in [self.owner, self.group, self.other] {
            for (bit, letter) in [(4, "r"), (2, "w"), (1, "x")] {
                f.write_str(if bits & bit != 0 { letter } else { "-" })?;
            }
        }
        Ok(())
    }
}

/// The object form; a field that is left out means what it means to other sandboxes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    #[serde(default = "all")]
    owner: u8,
    #[serde(default)]
    group: u8,
    #[serde(default)]
    other: u8,
    #[serde(default)]
    directory: bool,
    #[serde(default)]
    sticky: bool,
}

fn all() -> u8 {
    7
}

impl<'de> Deserialize<'de> for Permissions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let permissions = match Value::deserialize(deserializer)? {
            Value::String(text) => Self::from_text(&text),
            Value::Number(number) => match number.as_u64() {
                Some(number) => Self::from_number(number),
                None => Err(format!("{number} is not a mode")),
            },
            fields @ Value::Object(_) => serde_json::from_value(fields)
                .map(|Fields { owner, group, other, directory, sticky }| Self {
                    owner,
                    group,
                    other,
                    directory,
                    sticky,
                })
                .map_err(|error| error.to_string()),
            _ => Err("must be text like \"0644\", a number, or an object".to_owned()),
        };
        let permissions = permissions.map_err(D::Error::custom)?;
        permissions.fault().map_or(Ok(permissions), |reason| Err(D::Error::custom(reason)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn modes_are_read_in_every_usual_spelling() {
        let table = [
            (json!("0644"), Some((0o644, false))),
            (json!("644"), Some((0o644, false))),
            (json!("0o600"), Some((0o600, false))),
            (json!("1777"), Some((0o1777, false))),
            (json!(420), Some((0o644, false))),
            (json!(0o040_755), Some((0o755, true))),
            (json!(0), Some((0, false))),
            (json!("-rw-r--r--"), Some((0o644, false))),
            (json!("drwxr-xr-x"), Some((0o755, true))),
            (json!("drwxr-xr-x@"), Some((0o755, true))),
            (json!("drwxrwxrwt"), Some((0o1777, true))),
            (json!("-rwsr-Sr-T"), Some((0o1744, false))),
            (json!({}), Some((0o700, false))),
            (json!({"owner": 6, "group": 4, "other": 4, "directory": false}), Some((0o644, false))),
            (json!({"owner": 7, "group": 7, "other": 7, "directory": true, "sticky": true}), Some((0o1777, true))),
            (json!({"owner": 8}), None),
            (json!({"owner": -1}), None),
            (json!({"user": 7}), None),
            (json!(644), None),
            (json!(-1), None),
            (json!(1.5), None),
            (json!("4755"), None),
            (json!("rw-r--r--"), None),
            (json!("lrwxrwxrwx"), None),
            (json!("-rwxrwxrwz"), None),
            (json!("-wrxrwxrwx"), None),
            (json!("888"), None),
            (json!(""), None),
            (json!("ü"), None),
            (json!(true), None),
        ];
        for (given, expected) in table {
            let read = serde_json::from_value::<Permissions>(given.clone());
            let seen = read.as_ref().ok().map(|read| (read.mode(), read.directory));
            assert_eq!(seen, expected, "{given} {read:?}");
            if let Ok(read) = read {
                let again = serde_json::from_value::<Permissions>(serde_json::to_value(read).unwrap()).unwrap();
                assert_eq!(again, read);
            }
        }
    }

    #[test]
    fn a_decimal_spelling_of_an_octal_mode_is_explained() {
        let error = serde_json::from_value::<Permissions>(json!(755)).unwrap_err();
        assert!(error.to_string().contains("write \"0644\" as text"), "{error}");
    }

    #[test]
    fn permissions_are_shown_as_ls_shows_them() {
        assert_eq!(Permissions::default().to_string(), "-rwxr-xr-x");
        assert_eq!(Permissions { directory: true, ..Permissions::new(0o640) }.to_string(), "drw-r-----");
    }
}
