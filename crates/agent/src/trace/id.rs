//! Ids of traces, spans and groups: a prefix and random hexadecimal digits.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Error for a text that is not an id of this kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {prefix} and {digits} hexadecimal digits")]
pub struct BadId {
    text: String,
    prefix: &'static str,
    digits: usize,
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident: $prefix:literal, $bytes:literal;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// An id from the low bits of a random number.
            pub(super) fn of(random: u128) -> Self {
                let mut bytes = [0; $bytes];
                bytes.copy_from_slice(&random.to_be_bytes()[16 - $bytes..]);
                Self(bytes)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                let digits = text.strip_prefix($prefix).filter(|digits| {
                    digits.len() == 2 * $bytes && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
                });
                let number = digits.and_then(|digits| u128::from_str_radix(digits, 16).ok());
                let bad = || BadId { text: text.chars().take(80).collect(), prefix: $prefix, digits: 2 * $bytes };
                number.map(Self::of).ok_or_else(bad)
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadId;

            fn try_from(text: String) -> Result<Self, BadId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    )* };
}

ids! {
    /// Id of a trace: `trace_` and 32 hexadecimal digits.
    TraceId: "trace_", 16;
    /// Id of a span: `span_` and 24 hexadecimal digits.
    SpanId: "span_", 12;
    /// Id of a group of traces: `group_` and 24 hexadecimal digits.
    GroupId: "group_", 12;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_and_read_in_one_form() {
        let random = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;
        assert_eq!(TraceId::of(random).to_string(), "trace_0123456789abcdef0011223344556677");
        assert_eq!(SpanId::of(random).to_string(), "span_89abcdef0011223344556677");
        assert_eq!(GroupId::of(random).to_string(), "group_89abcdef0011223344556677");
        assert_eq!("span_89abcdef0011223344556677".parse(), Ok(SpanId::of(random)));
        let json = serde_json::to_string(&TraceId::of(1)).unwrap();
        assert_eq!(json, "\"trace_00000000000000000000000000000001\"");
        assert_eq!(serde_json::from_str::<TraceId>(&json).unwrap(), TraceId::of(1));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "trace_",
            "trace_12",
            "span_0123456789abcdef0011223344556677",
            "trace_+123456789abcdef0011223344556677",
        ] {
            assert!(text.parse::<TraceId>().is_err(), "{text}");
        }
        let error = "x".parse::<SpanId>().unwrap_err();
        assert_eq!(error.to_string(), "\"x\" is not span_ and 24 hexadecimal digits");
    }
}
