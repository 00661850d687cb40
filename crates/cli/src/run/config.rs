//! Options from a configuration file: inserted into the command line before the typed options.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use clap::CommandFactory as _;
use sandbar::sandbox::Format;
use serde_json::{Map, Value};

use crate::{args::Args, failure::Failure};

/// Contents of a configuration file.
type Table = Map<String, Value>;

/// Inserts the options of the configuration file into a command line of `sandbar run`.
///
/// Typed options come later, and override those of the file. If the typed options alone are valid, but not together with the
/// file, the error names the file.
pub(crate) fn words(typed: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let Some(place) = typed.iter().position(|word| word == "run").filter(|place| *place > 0) else { return Ok(typed) };
    let before = &typed[1..place];
    // Only options precede a subcommand; `run` after another subcommand is an argument of that one.
    let is_option = |word: &&OsString| word.as_encoded_bytes().starts_with(b"-");
    if !before.iter().all(|word| is_option(&word) || is_value_of_color(before, word)) {
        return Ok(typed);
    }
    let alone = Args::read(typed.clone()).err();
    if alone.as_ref().is_some_and(|error| error.exit_code() == 0) {
        // Help must not depend on the file.
        return Ok(typed);
    }
    let Some((path, table)) = table(&typed[place..])? else { return Ok(typed) };
    let mut words = typed[..=place].to_vec();
    words.extend(options(&path, &table)?);
    words.extend_from_slice(&typed[place + 1..]);
    match (Args::read(words.clone()), alone) {
        (Ok(_), _) => Ok(words),
        (Err(_), Some(_)) => Ok(typed),
        (Err(error), None) => Err(blame(&path, &error)),
    }
}

/// Converts an error of clap into a failure that names the file.
fn blame(path: &Path, error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    let lines =
        text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    let reason = lines.join(" ");
    let reason = reason.strip_prefix("error: ").unwrap_or(&reason);
    Failure::new(format!("cannot use {}; {reason}", path.display())).code("config")
}

fn is_value_of_color(before: &[OsString], word: &OsStr) -> bool {
    before.windows(2).any(|pair| pair[0] == "--color" && pair[1] == *word)
}

/// Reads the file that `--config` names, or the default one if it exists.
fn table(typed: &[OsString]) -> Result<Option<(PathBuf, Table)>, Failure> {
    // Arguments after `--` are not options.
    let end = typed.iter().position(|word| word == "--").unwrap_or(typed.len());
    let named = typed[..end].iter().enumerate().find_map(|(place, word)| {
        let given = word.to_str()?.strip_prefix("--config=").map(PathBuf::from);
        given.or_else(|| (word == "--config").then(|| typed.get(place + 1).map(PathBuf::from))?)
    });
    let path = match named {
        Some(path) => path,
        None => match usual(env::var_os("XDG_CONFIG_HOME").map(PathBuf::from), env::home_dir()) {
            Some(path) if path.exists() => path,
            _ => return Ok(None),
        },
    };
    let unread = |error| Failure::from(error).saying(format!("cannot read {}", path.display())).code("config");
    let (format, text, _directory) = Format::load(&path).map_err(unread)?;
    let wrong = |reason: String| Failure::new(format!("cannot use {}; {reason}", path.display())).code("config");
    match format.document(&text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))? {
        Value::Object(table) => Ok(Some((path, table))),
        _ => Err(wrong("its top level must be a table of options".to_owned())),
    }
}

fn usual(config_home: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let config_home = config_home.filter(|dir| dir.is_absolute());
    let dir = config_home.or_else(|| home.filter(|home| home.is_absolute()).map(|home| home.join(".config")))?;
    Some(dir.join("sandbar").join("config.toml"))
}

/// Converts each key into the option of the same name.
fn options(path: &Path, table: &Table) -> Result<Vec<OsString>, Failure> {
    let command = Args::command();
    let known: Vec<&str> = command
        .find_subcommand("run")
        .into_iter()
        .flat_map(|run| run.get_arguments())
        .filter_map(|arg| arg.get_long())
        .collect();
    let wrong = |reason: String| Failure::new(format!("cannot use {}; {reason}", path.display())).code("config");
    let mut words = Vec::new();
    for (key, value) in table {
        let name = key.replace('_', "-");
        if name == "git" {
            return Err(wrong("git is not allowed in a file; use --git on the command line".to_owned()));
        }
        if !known.contains(&name.as_str()) || matches!(name.as_str(), "config" | "help") {
            return Err(wrong(format!("there is no option {key:?}; the keys are those of `sandbar run --help`")));
        }
        let mut word = |value: &Value| match value {
            Value::Bool(false) => Ok(()),
            Value::Bool(true) => {
                words.push(format!("--{name}").into());
                Ok(())
            }
            Value::String(text) => {
                words.push(format!("--{name}={text}").into());
                Ok(())
            }
            Value::Number(number) => {
                words.push(format!("--{name}={number}").into());
                Ok(())
            }
            _ => Err(wrong(format!("{key:?} must be text, a number, true, false, or a list of those"))),
        };
        match value {
            Value::Array(values) => values.iter().try_for_each(&mut word)?,
            value => word(value)?,
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(table: Value) -> Result<Vec<String>, String> {
        let Value::Object(table) = table else { panic!("a table") };
        let words = options(Path::new("config.toml"), &table).map_err(|failure| failure.to_string())?;
        Ok(words.into_iter().map(|word| word.into_string().expect("text")).collect())
    }

    #[test]
    fn keys_are_the_options_of_the_same_name() {
        let table = json!({"model": "gpt-5.5", "max_turns": 40, "in-place": false, "json": true, "ro": ["/a", "/b"]});
        let expected = ["--model=gpt-5.5", "--max-turns=40", "--json", "--ro=/a", "--ro=/b"];
        assert_eq!(of(table).expect("understood"), expected);
        assert!(of(json!({"modle": "x"})).expect_err("unknown").contains("no option \"modle\""));
        assert!(of(json!({"model": {"a": 1}})).expect_err("a table").contains("must be text"));
        assert!(of(json!({"config": "x"})).is_err());
        assert!(of(json!({"git": "rw"})).expect_err("not from a file").contains("git is not allowed in a file"));
    }

    #[test]
    fn the_default_file_is_in_the_configuration_directory() {
        let path = |text: &str| Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty());
        let found = |config: &str, home: &str| usual(path(config), path(home)).map(|path| path.display().to_string());
        assert_eq!(found("/c", "/h").as_deref(), Some("/c/sandbar/config.toml"));
        assert_eq!(found("", "/h").as_deref(), Some("/h/.config/sandbar/config.toml"));
        assert_eq!(found("", ""), None);
    }
}
