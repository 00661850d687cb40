//! The encodings in which programs print a secret value: plain, line by line, JSON- or URL-escaped, base64.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// The shortest value that is hidden, in bytes. Shorter ones occur in so many other words that the text would be
/// unreadable, and its gaps would reveal them.
pub(super) const SHORTEST: usize = 8;

/// The longest multi-line value that is also searched as a whole, in bytes; of a longer one only the lines are
/// searched.
const WHOLE: usize = 4096;

/// The columns at which programs break base64 into lines.
const WRAPS: [usize; 2] = [76, 64];

/// The encoding of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Plain,
    /// The content of a JSON string; with `ascii`, other characters are written as `\uXXXX`.
    Json {
        ascii: bool,
    },
    Url(UrlCode),
    /// The base64 characters that depend on the value alone when `shift` bytes (modulo 3) precede it.
    Base64 {
        url_safe: bool,
        shift: usize,
    },
}

/// One way to escape a value for a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UrlCode {
    /// Punctuation that is not escaped.
    safe: &'static str,
    /// Whether a space is written as a plus sign.
    plus: bool,
    /// Whether hexadecimal digits above 9 are capitals.
    capitals: bool,
}

const fn url(safe: &'static str, plus: bool, capitals: bool) -> Code {
    Code::Url(UrlCode { safe, plus, capitals })
}

/// Each encoding with the name by which a saved run refers to it. A name is never reused for another encoding.
pub(super) const CODES: [(&str, Code); 17] = [
    ("plain", Code::Plain),
    ("json", Code::Json { ascii: false }),
    ("json-ascii", Code::Json { ascii: true }),
    ("url", url("-._~", false, true)),
    ("url-lower", url("-._~", false, false)),
    ("url-path", url("-._~/", false, true)),
    ("url-path-lower", url("-._~/", false, false)),
    ("url-component", url("-._~!*'()", false, true)),
    ("url-component-lower", url("-._~!*'()", false, false)),
    ("form", url("-._*", true, true)),
    ("form-lower", url("-._*", true, false)),
    ("base64", Code::Base64 { url_safe: false, shift: 0 }),
    ("base64-1", Code::Base64 { url_safe: false, shift: 1 }),
    ("base64-2", Code::Base64 { url_safe: false, shift: 2 }),
    ("base64url", Code::Base64 { url_safe: true, shift: 0 }),
    ("base64url-1", Code::Base64 { url_safe: true, shift: 1 }),
    ("base64url-2", Code::Base64 { url_safe: true, shift: 2 }),
];

impl Code {
    pub(super) fn write(self, value: &str) -> String {
        match self {
            Self::Plain => value.to_owned(),
            Self::Json { ascii } => json(value, ascii),
            Self::Url(code) => code.write(value),
            Self::Base64 { url_safe, shift } => {
                let mut bytes = vec![0; shift];
                bytes.extend_from_slice(value.as_bytes());
                let text = if url_safe { URL_SAFE_NO_PAD.encode(&bytes) } else { STANDARD_NO_PAD.encode(&bytes) };
                // Leave out base64 characters whose six bits include bits of a neighbouring byte.
                let (from, to) = ((shift * 8).div_ceil(6), bytes.len() * 8 / 6);
                text.get(from..to).unwrap_or_default().to_owned()
            }
        }
    }
}

fn json(value: &str, ascii: bool) -> String {
    let quoted = serde_json::to_string(value).unwrap_or_default();
    let inside = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
    if !ascii {
        return inside.to_owned();
    }
    let mut text = String::with_capacity(inside.len());
    for character in inside.chars() {
        if character.is_ascii() {
            text.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _into_memory = write!(text, "\\u{unit:04x}");
            }
        }
    }
    text
}

impl UrlCode {
    fn write(self, value: &str) -> String {
        let mut text = String::with_capacity(value.len());
        for byte in value.bytes() {
            let character = char::from(byte);
            if character.is_ascii_alphanumeric() || self.safe.contains(character) {
                text.push(character);
            } else if self.plus && byte == b' ' {
                text.push('+');
            } else {
                let _into_memory =
                    if self.capitals { write!(text, "%{byte:02X}") } else { write!(text, "%{byte:02x}") };
            }
        }
        text
    }
}

/// The parts of a value that are searched: the whole value (number 0) and, if it has several lines, each line (from 1
/// on). White space at either end is trimmed; lines that are too short or that only frame a key are left out.
pub(super) fn parts(value: &str) -> Vec<(usize, &str)> {
    let whole = value.trim();
    let mut parts = Vec::new();
    let several = whole.contains('\n');
    if whole.len() >= SHORTEST && (!several || whole.len() <= WHOLE) {
        parts.push((0, whole));
    }
    if several {
        let lines = whole.split('\n').map(str::trim).enumerate().map(|(at, line)| (at + 1, line));
        let frames = |line: &str| line.starts_with("-----BEGIN ") || line.starts_with("-----END ");
        parts.extend(lines.filter(|(_, line)| line.len() >= SHORTEST && !frames(line)));
    }
    parts
}

/// The part with this number, if the value has it.
pub(super) fn part(value: &str, number: usize) -> Option<&str> {
    parts(value).into_iter().find(|(at, _)| *at == number).map(|(_, part)| part)
}

/// The lines of a part's base64 text as programs wrap it, if nothing but the value was encoded.
pub(super) fn wrapped(part: &str) -> Vec<String> {
    let text = Code::Base64 { url_safe: false, shift: 0 }.write(part);
    let lines = WRAPS.iter().filter(|wrap| text.len() > **wrap).flat_map(|wrap| text.as_bytes().chunks(*wrap));
    let lines = lines.filter(|line| line.len() >= SHORTEST);
    lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_encoded_as_programs_print_it() {
        let value = "p/ä ss\"w+rd~(1)\t";
        let written = |name: &str| {
            let code = CODES.iter().find(|(known, _)| *known == name).expect("a form").1;
            code.write(value)
        };
        for (name, expected) in [
            ("plain", value),
            ("json", "p/ä ss\\\"w+rd~(1)\\t"),
            ("json-ascii", "p/\\u00e4 ss\\\"w+rd~(1)\\t"),
            ("url", "p%2F%C3%A4%20ss%22w%2Brd~%281%29%09"),
            ("url-lower", "p%2f%c3%a4%20ss%22w%2brd~%281%29%09"),
            ("url-path", "p/%C3%A4%20ss%22w%2Brd~%281%29%09"),
            ("url-component", "p%2F%C3%A4%20ss%22w%2Brd~(1)%09"),
            ("form", "p%2F%C3%A4+ss%22w%2Brd%7E%281%29%09"),
        ] {
            assert_eq!(written(name), expected, "{name}");
        }
    }

    #[test]
    fn base64_is_found_at_every_offset_in_the_encoded_text() {
        for before in ["", "u", "us", "user:", "x-access-token:"] {
            for after in ["", "\n", "@host"] {
                for url_safe in [false, true] {
                    let text = format!("{before}hunter2?>?2~{after}");
                    let whole = if url_safe { URL_SAFE_NO_PAD.encode(&text) } else { STANDARD_NO_PAD.encode(&text) };
                    let form = Code::Base64 { url_safe, shift: before.len() % 3 }.write("hunter2?>?2~");
                    assert!(form.len() >= SHORTEST && whole.contains(&form), "{text:?}: {form} in {whole}");
                }
            }
        }
    }

    #[test]
    fn a_multi_line_value_is_found_by_its_lines() {
        let key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\r\nshort\n  kqhkiG9w0BAQEF  \n-----END KEY-----\n";
        let found: Vec<_> = parts(key).into_iter().skip(1).collect();
        assert_eq!(found, [(2, "MIIEvQIBADANBg"), (4, "kqhkiG9w0BAQEF")]);
        assert_eq!(parts(" sword \n"), []);
        assert_eq!(parts("swordfish\n"), [(0, "swordfish")]);
        assert_eq!(part(key, 4), Some("kqhkiG9w0BAQEF"));
        assert_eq!(part(key, 3), None);
        let long = "0123456789abcdef\n".repeat(300);
        assert!(parts(&long).iter().all(|(at, _)| *at > 0));
    }
}
