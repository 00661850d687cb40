//! The arguments that a model gives to `exec_command` and `write_stdin`, and the command they become.

use std::{fmt, num::NonZeroUsize};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, Unexpected, Visitor},
};
use serde_json::{Value, json};

/// The default shell.
const SHELL: &str = "sh";

/// The arguments of `exec_command`. Unknown fields are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecCommandArgs {
    /// Command line for a shell.
    #[serde(deserialize_with = "not_empty")]
    pub cmd: String,
    /// Working directory; `None` is the workspace.
    #[serde(default)]
    pub workdir: Option<String>,
    /// The shell; `None` is `sh`.
    #[serde(default)]
    pub shell: Option<String>,
    /// Whether the shell is a login shell, which reads the user's profile first.
    #[serde(default)]
    pub login: Login,
    /// Whether the command gets a terminal.
    #[serde(default)]
    pub tty: bool,
    /// How many milliseconds to wait for the command; 10,000 by default.
    #[serde(default = "exec_yield", deserialize_with = "whole")]
    pub yield_time_ms: u64,
    /// How many tokens of its output to return.
    #[serde(default, deserialize_with = "whole_or_null")]
    pub max_output_tokens: Option<NonZeroUsize>,
}

/// The arguments of `write_stdin`. Unknown fields are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteStdinArgs {
    /// Number of the process.
    #[serde(deserialize_with = "whole")]
    pub session_id: u64,
    /// Text to write; an empty text only polls.
    #[serde(default)]
    pub chars: String,
    /// How many milliseconds to wait for an answer; 250 by default.
    #[serde(default = "write_yield", deserialize_with = "whole")]
    pub yield_time_ms: u64,
    /// How many tokens of output to return.
    #[serde(default, deserialize_with = "whole_or_null")]
    pub max_output_tokens: Option<NonZeroUsize>,
}

/// Whether a shell is a login shell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Option<bool>", into = "Option<bool>")]
pub enum Login {
    /// Not specified. A named shell is then a login shell; the default shell is not, because an earlier command could
    /// have changed the profile that it would run first.
    #[default]
    Unsaid,
    /// A login shell.
    Yes,
    /// Not a login shell.
    No,
}

impl From<Option<bool>> for Login {
    fn from(given: Option<bool>) -> Self {
        match given {
            None => Self::Unsaid,
            Some(true) => Self::Yes,
            Some(false) => Self::No,
        }
    }
}

impl From<Login> for Option<bool> {
    fn from(login: Login) -> Self {
        match login {
            Login::Unsaid => None,
            Login::Yes => Some(true),
            Login::No => Some(false),
        }
    }
}

fn exec_yield() -> u64 {
    10_000
}

fn write_yield() -> u64 {
    250
}

impl ExecCommandArgs {
    /// This command line, with default settings.
    pub fn new(cmd: impl Into<String>) -> Self {
        Self {
            cmd: cmd.into(),
            workdir: None,
            shell: None,
            login: Login::Unsaid,
            tty: false,
            yield_time_ms: exec_yield(),
            max_output_tokens: None,
        }
    }

    /// Sets the working directory.
    #[must_use]
    pub fn workdir(mut self, dir: impl Into<String>) -> Self {
        self.workdir = Some(dir.into());
        self
    }

    /// The working directory as a path: trimmed, and with slashes instead of backslashes; `None` if it is blank.
    #[must_use]
    pub fn directory(&self) -> Option<String> {
        let dir = self.workdir.as_deref()?.trim();
        (!dir.is_empty()).then(|| dir.replace('\\', "/"))
    }

    /// Gives the command a terminal.
    #[must_use]
    pub fn tty(mut self) -> Self {
        self.tty = true;
        self
    }

    /// Sets how long to wait for the command.
    #[must_use]
    pub fn yield_time_ms(mut self, time: u64) -> Self {
        self.yield_time_ms = time;
        self
    }

    /// The JSON schema for the model.
    #[must_use]
    pub fn schema() -> Value {
        json!({"type": "object", "required": ["cmd"], "properties": {
            "cmd": {"type": "string", "minLength": 1},
            "workdir": {"type": ["string", "null"], "default": null},
            "shell": {"type": ["string", "null"], "default": null},
            "login": {"type": "boolean", "default": true},
            "tty": {"type": "boolean", "default": false},
            "yield_time_ms": {"type": "integer", "minimum": 0, "default": exec_yield()},
            "max_output_tokens": {"type": ["integer", "null"], "minimum": 1, "default": null},
        }})
    }

    /// The argument vector that runs the command.
    #[must_use]
    pub fn argv(&self) -> Vec<String> {
        shell_argv(&self.cmd, self.shell.as_deref(), self.login)
    }
}

impl WriteStdinArgs {
    /// Writes this text, with default settings.
    pub fn new(session_id: u64, chars: impl Into<String>) -> Self {
        Self { session_id, chars: chars.into(), yield_time_ms: write_yield(), max_output_tokens: None }
    }

    /// Only polls.
    #[must_use]
    pub fn poll(session_id: u64) -> Self {
        Self::new(session_id, "")
    }

    /// Sets how long to wait for an answer.
    #[must_use]
    pub fn yield_time_ms(mut self, time: u64) -> Self {
        self.yield_time_ms = time;
        self
    }

    /// The JSON schema for the model.
    #[must_use]
    pub fn schema() -> Value {
        json!({"type": "object", "required": ["session_id"], "properties": {
            "session_id": {"type": "integer"},
            "chars": {"type": "string", "default": ""},
            "yield_time_ms": {"type": "integer", "minimum": 0, "default": write_yield()},
            "max_output_tokens": {"type": ["integer", "null"], "minimum": 1, "default": null},
        }})
    }
}

/// The argument vector with which a shell runs `cmd`. A blank shell name is the default shell.
#[must_use]
pub fn shell_argv(cmd: &str, shell: Option<&str>, login: Login) -> Vec<String> {
    let named = shell.map(str::trim).filter(|shell| !shell.is_empty());
    let option = match (login, named) {
        (Login::Yes, _) | (Login::Unsaid, Some(_)) => "-lc",
        (Login::No, _) | (Login::Unsaid, None) => "-c",
    };
    [named.unwrap_or(SHELL), option, cmd].map(str::to_owned).into()
}

/// Variables that keep colours, pagers and other character sets out of the output that a model reads. Variables of the
/// manifest override them.
#[must_use]
pub fn model_env() -> &'static [(&'static str, &'static str)] {
    &[
        ("NO_COLOR", "1"),
        ("TERM", "dumb"),
        ("LANG", "C.UTF-8"),
        ("LC_CTYPE", "C.UTF-8"),
        ("LC_ALL", "C.UTF-8"),
        ("COLORTERM", ""),
        ("PAGER", "cat"),
        ("GIT_PAGER", "cat"),
        ("GH_PAGER", "cat"),
    ]
}

fn not_empty<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    from.deserialize_string(NotEmpty)
}

fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    from.deserialize_any(Whole { least: 0 })
}

fn whole_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<Option<NonZeroUsize>, D::Error> {
    from.deserialize_option(OrNull)
}

/// A text that is not empty. It is checked while it is parsed, so that the error contains its position.
struct NotEmpty;

impl Visitor<'_> for NotEmpty {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string of at least one character")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        if text.is_empty() { Err(E::invalid_value(Unexpected::Str(text), &self)) } else { Ok(text.to_owned()) }
    }
}

/// A whole number; models write `250` as well as `250.0`.
struct Whole {
    least: u64,
}

impl Visitor<'_> for Whole {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number, {} or more", self.least)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
        if number >= self.least { Ok(number) } else { Err(E::invalid_value(Unexpected::Unsigned(number), &self)) }
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<u64, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_negative) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }

    // Above 2^53 a float cannot represent every integer, so larger values are refused.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be whole and in range")]
    fn visit_f64<E: de::Error>(self, number: f64) -> Result<u64, E> {
        if number.fract() == 0.0 && (0.0..9e15).contains(&number) {
            self.visit_u64(number as u64)
        } else {
            Err(E::invalid_value(Unexpected::Float(number), &self))
        }
    }
}

/// A number that is not zero, or null.
struct OrNull;

impl<'de> Visitor<'de> for OrNull {
    type Value = Option<NonZeroUsize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number, 1 or more, or null")
    }

    fn visit_none<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        let number = from.deserialize_any(Whole { least: 1 })?;
        Ok(NonZeroUsize::new(usize::try_from(number).unwrap_or(usize::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_a_login_shell_if_requested_or_if_it_is_named() {
        let table = [
            (None, Login::Unsaid, ["sh", "-c"]),
            (None, Login::Yes, ["sh", "-lc"]),
            (None, Login::No, ["sh", "-c"]),
            (Some(" "), Login::Unsaid, ["sh", "-c"]),
            (Some("bash"), Login::Unsaid, ["bash", "-lc"]),
            (Some("/bin/zsh"), Login::Yes, ["/bin/zsh", "-lc"]),
            (Some("bash"), Login::No, ["bash", "-c"]),
        ];
        for (shell, login, expected) in table {
            assert_eq!(shell_argv("a && b", shell, login), [expected[0], expected[1], "a && b"], "{shell:?} {login:?}");
        }
    }

    #[test]
    fn missing_arguments_have_defaults() {
        let args: ExecCommandArgs = serde_json::from_value(json!({"cmd": "ls", "justification": "because"})).unwrap();
        assert_eq!((args.yield_time_ms, args.tty, args.max_output_tokens), (10_000, false, None));
        assert_eq!(args.argv(), ["sh", "-c", "ls"]);
        let args: WriteStdinArgs = serde_json::from_value(json!({"session_id": 1000})).unwrap();
        assert_eq!((args.session_id, args.chars.as_str(), args.yield_time_ms), (1000, "", 250));
    }

    #[test]
    fn a_working_directory_is_normalised() {
        let table = [
            (None, None),
            (Some(""), None),
            (Some(" \t"), None),
            (Some("src"), Some("src")),
            (Some(" src\\deep \n"), Some("src/deep")),
            (Some("/workspace/a b"), Some("/workspace/a b")),
        ];
        for (workdir, expected) in table {
            let args = ExecCommandArgs { workdir: workdir.map(str::to_owned), ..ExecCommandArgs::new("ls") };
            assert_eq!(args.directory().as_deref(), expected, "{workdir:?}");
        }
    }

    #[test]
    fn numbers_may_be_written_as_floats_but_must_be_whole() {
        let parse = |json: Value| serde_json::from_value::<ExecCommandArgs>(json);
        let args =
            parse(json!({"cmd": "x", "yield_time_ms": 500.0, "max_output_tokens": 10.0, "login": null})).unwrap();
        assert_eq!(
            (args.yield_time_ms, args.max_output_tokens, args.login),
            (500, NonZeroUsize::new(10), Login::Unsaid)
        );
        let bad = [
            json!({}),
            json!({"cmd": ""}),
            json!({"cmd": "x", "yield_time_ms": -1}),
            json!({"cmd": "x", "yield_time_ms": 0.5}),
            json!({"cmd": "x", "yield_time_ms": 1e300}),
            json!({"cmd": "x", "max_output_tokens": 0}),
            json!({"cmd": "x", "tty": "yes"}),
        ];
        for json in bad {
            assert!(parse(json.clone()).is_err(), "{json}");
        }
    }

    #[test]
    fn the_schemas_have_the_fields_that_are_parsed() {
        for (schema, example) in
            [(ExecCommandArgs::schema(), json!({"cmd": "x"})), (WriteStdinArgs::schema(), json!({"session_id": 1}))]
        {
            let properties = schema["properties"].as_object().unwrap();
            let mut full = example.clone();
            for (name, property) in properties {
                if let Some(default) = property.get("default") {
                    full[name] = default.clone();
                }
            }
            let parsed = match properties.contains_key("cmd") {
                true => serde_json::to_value(serde_json::from_value::<ExecCommandArgs>(full).unwrap()).unwrap(),
                false => serde_json::to_value(serde_json::from_value::<WriteStdinArgs>(full).unwrap()).unwrap(),
            };
            let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(&parsed), names(&schema["properties"]));
        }
    }
}
